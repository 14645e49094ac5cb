"""What a candidate's outputs are held against: structure first, then the error budget."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Tree = Mapping[str, Any]
"""The spec of a tree of tensors; see sandbox.shared_memory.Spec."""

# Bound on the error in units of the reference's own in full float32: honest kernels measured 0.15 to 16, precision
# cheats 4,600 and up. What the reference errs as it runs, and long sums, may allow more; see rules.precision.
BOUND = 64.0
FLOAT32_EPS = 2.0**-23
LAYOUT = ("shape", "dtype", "bytes")  # of a tensor that is compared


def structure_fault(expected: Tree, tensors: Sequence[Mapping[str, Any]], got: Tree) -> str | None:
    """In words, how what is seen differs in tree, plain values or layout from the reference's; None where they agree.
    Dicts are equal whatever the order of their keys, as Python's are."""
    if fault := next(_differences(expected["structure"], got["structure"], ""), None):
        return fault
    for want, have in zip(tensors, ordered(expected, got, got["tensors"]), strict=True):
        for what in LAYOUT:
            if want[what] != have[what]:
                return f"{want['name']} has {what} {have[what]}, the reference's has {want[what]}"
    return None


def ordered(expected: Tree, got: Tree, things: Sequence[T]) -> list[T]:
    """What belongs to the tensors of `got`, in the order of `expected`'s; the trees differ in that of keys alone."""
    place = dict(zip(_numbers(expected["structure"]), _numbers(got["structure"]), strict=True))
    return [things[place[number]] for number in range(len(place))]


def _numbers(structure: dict[str, Any]) -> Iterator[int]:
    kind, body = next(iter(structure.items()))
    if kind == "tensor":
        yield body
    for _, inner in _entries(kind, body):
        yield from _numbers(inner)


def _entries(kind: str, body: Any) -> list[tuple[str, dict[str, Any]]]:
    """What a container holds and where: a dict's by key, not in the order in which it was filled, and so an object's by
    name; a named tuple's by place."""
    match kind, body:
        case "dict", entries:
            return [(f"[{key!r}]", inner) for key, inner in sorted(entries, key=lambda entry: repr(entry[0]))]
        case "record", ["namedtuple", _, fields]:
            return [(f"[{i}]", inner) for i, (_, inner) in enumerate(fields)]
        case "record", [_, _, fields]:
            return [(f".{name}", inner) for name, inner in sorted(fields, key=lambda field: str(field[0]))]
    return [(f"[{i}]", inner) for i, inner in enumerate(body)] if kind in ("list", "tuple") else []


def _differences(want: dict[str, Any], have: dict[str, Any], at: str) -> Iterator[str]:
    """In words, where two trees differ; `at` is the way there, as Python indexes it."""
    (kind, body), (other, held) = next(iter(want.items())), next(iter(have.items()))
    parts, others = _entries(kind, body), _entries(other, held)
    leaf = kind not in ("list", "tuple", "dict", "record")
    alike = _form(kind, body) in (_form(other, held), _stands_in(other, held))
    if not alike or [way for way, _ in parts] != [way for way, _ in others] or (leaf and not _agree(want, have)):
        place = f" at {at}" if at else ""
        yield f"returns {_words(have)}{place} where the reference returns {_words(want)}"
        return
    for (way, one), (_, two) in zip(parts, others, strict=True):
        yield from _differences(one, two, f"{at}{way}")


def _form(kind: str, body: Any) -> tuple[str, ...]:
    """What a part of a tree is: a record of another name, or a named tuple with other names, is another thing."""
    if kind != "record":
        return (kind,)
    form, label, fields = body
    named = [name for name, _ in fields] if form == "namedtuple" else []
    return (form, label.rpartition(":")[2].rpartition(".")[2], *named)


def _stands_in(kind: str, body: Any) -> tuple[str, ...]:
    """What a part may be taken for: a named tuple is a tuple, too."""
    return ("tuple",) if kind == "record" and body[0] == "namedtuple" else _form(kind, body)


def _agree(want: dict[str, Any], have: dict[str, Any]) -> bool:
    """Whether two leaves of one kind are equal, floats but for the rounding of float32; tensors are compared later."""
    match want, have:
        case {"tensor": _}, {"tensor": _}:
            return True
        case {"value": float(a)}, {"value": float(b)}:
            return math.isclose(a, b, rel_tol=BOUND * FLOAT32_EPS) or (math.isnan(a) and math.isnan(b))
    return want == have


def _words(structure: dict[str, Any]) -> str:
    kind, body = next(iter(structure.items()))
    match kind:
        case "list" | "tuple":
            return f"a {kind} of {len(body)}"
        case "dict":
            return f"a dict with keys {', '.join(str(key) for key, _ in body)}" if body else "an empty dict"
        case "record":
            form, label, fields = body
            article, parts = "a" if form in ("dataclass", "namedtuple") else "an", ", ".join(name for name, _ in fields)
            return f"{article} {form} {label.rpartition(':')[2]}({parts})"
        case "tensor":
            return "a tensor"
        case "dtype":
            return f"torch.{body}"
    return reprlib.repr(body)


def value_fault(names: list[str], results: Sequence[Mapping[str, Any]], bounds: Sequence[float]) -> str | None:
    """In words, where and by how much the values are off; None where every output is inside its bound."""
    for name, r, bound in zip(names, results, bounds, strict=True):
        if r["outside"]:
            share = r["outside"] / max(r["total"], 1)
            return (
                f"{name}: {r['outside']} of {r['total']} elements ({share:.1%}) are off; the worst, flat index "
                f"{r['index']}, is {r['have']:.9g} where {r['want']:.9g} is right "
                f"(error {r['error']:.3g} units, at most {bound:.4g} allowed)"
                + "".join(f"; {said}" for said in _pattern(r))
            )
    return None


def _pattern(result: Mapping[str, Any]) -> Iterator[str]:
    """What those outside the bound have in common: the box that they lie in, zeros, NaN, memory that
    was never written."""
    span, shape = result.get("span"), result.get("shape")
    if span and shape and any(b - a + 1 < size for (a, b), size in zip(span, shape, strict=True)):
        box = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in span)
        yield f"all of them lie in [{box}] of {shape}"
    for name, what in (("zeros", "0"), ("nans", "NaN")):
        if count := result.get(name):
            yield f"{count / result['outside']:.0%} of them are {what}"
    if count := result.get("unwritten"):
        yield f"{count / result['outside']:.0%} of them are what the judge fills fresh memory with: never written"
