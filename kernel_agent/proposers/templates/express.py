"""The C expressions of terms, which C++ and CUDA C++ share, and the texts of the corpus with places to fill."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from math import isinf, isnan
from typing import Protocol

from kernel_agent.proposers.templates.program import Call, Constant, Program, Read, Term
from kernel_agent.proposers.templates.strides import Pattern
from rag.corpus_path import CORPUS

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OURS = ["exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "rsqrt", "max", "min", "sign", "remainder"]
OURS += ["round_float16", "round_bfloat16"]
RENAMED = {"abs": "fabs", "round": "nearbyint"}


class Terms(Protocol):
    """Anything made of terms."""

    @property
    def terms(self) -> Sequence[Term]:
        """Its terms, arguments before users."""
        ...


def literal(value: float) -> str:
    """A float of C: 0.5f, 1e-06f, INFINITY, NAN."""
    if isnan(value):
        return "NAN"
    if isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}"
    text = f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"
    return f"({text})" if value < 0 or text.startswith("-") else text


def operand(program: Terms, i: int) -> str:
    """How a term is mentioned: a constant as itself, others by name."""
    term = program.terms[i]
    return literal(float(term.value)) if isinstance(term, Constant) else f"v{i}"


def expression(program: Terms, i: int) -> str:
    """What a call computes, by the names of its arguments."""
    term = program.terms[i]
    assert isinstance(term, Call)
    args = [operand(program, a) for a in term.args]
    name = term.function
    if name in INFIX:
        return f"{args[0]} {INFIX[name]} {args[1]}"
    if name in COMPARE:
        return f"{args[0]} {COMPARE[name]} {args[1]} ? 1.0f : 0.0f"
    if name == "neg":
        return f"-{args[0]}"
    if name == "where":
        return f"{args[0]} != 0.0f ? {args[1]} : {args[2]}"
    if name in OURS:
        return f"k_{name}({', '.join(args)})"
    return f"std::{RENAMED.get(name, name)}({', '.join(args)})"


def index(pattern: Pattern, of: str) -> str:
    """The integer expression of a map: `r / 8 % 4 * 16 + r % 8`."""
    terms, place = list[str](), 1
    for position, (size, stride) in reversed(list(enumerate(pattern))):
        digit = of if place == 1 else f"{of} / {place}"
        digit = digit if position == 0 else f"{digit} % {size}"
        if stride:
            terms.insert(0, digit if stride == 1 else f"{digit} * {stride}")
        place *= size
    return summed(*terms)


def summed(*terms: str) -> str:
    """A sum of integer expressions without its zeros."""
    return " + ".join(term for term in terms if term != "0") or "0"


def contiguous(program: Program, i: int) -> bool:
    """Whether a Read's elements follow each other along the row."""
    columns = program.places[i][1]
    return columns == ((program.columns, 1),)


def leaf_name(program: Program, i: int) -> str:
    """The member of `Tensors` that a Read reads."""
    term = program.terms[i]
    assert isinstance(term, Read)
    return f"in{program.leaves.index(term.leaf)}"


@cache
def text(name: str) -> str:
    """A file of the corpus, such as `norm/level_02.cpp`, from its first include on."""
    whole = (CORPUS / "kernels" / name).read_text()
    return whole[whole.index("#include") :]


def fill(frame: str, places: Mapping[str, str]) -> str:
    """The frame with what stands between `//@begin NAME` and `//@end NAME` replaced, and the markers gone."""
    for name, body in places.items():
        pattern = rf"[ ]*//@begin {name}\n.*?//@end {name}\n"
        frame, count = re.subn(pattern, lambda _, body=body: body.rstrip("\n") + "\n", frame, flags=re.DOTALL)  # type: ignore[misc]
        assert count == 1, f"the frame has {count} places called {name}"
    return frame


def helpers(source: str, body: str, first: tuple[str, ...]) -> str:
    """The functions of a math file that the body calls, and those that they call, in the file's order."""
    pieces = dict(re.findall(r"//@begin (k_\w+)\n(.*?)//@end \1\n", text(source), flags=re.DOTALL))
    wanted, stack = set[str](), [*first, *re.findall(r"\bk_\w+", body)]
    while stack:
        name = stack.pop()
        if name in pieces and name not in wanted:
            wanted.add(name)
            stack.extend(re.findall(r"\bk_\w+", pieces[name]))
    return "".join(piece for name, piece in pieces.items() if name in wanted)
