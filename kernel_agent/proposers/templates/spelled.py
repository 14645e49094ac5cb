"""The pieces of a centred kernel as functions of C++ and CUDA C++, and its frame of the corpus filled in with them.

On the CPU a piece is `float k_NAME(t, r, c)`; on a GPU it is `k_NAME<N>(t, r, c, x)`, which fills N elements of a row
from column c on. The last piece takes what the frame has made and stores it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import indent

from kernel_agent.proposers.templates.centred import Centred, Piece
from kernel_agent.proposers.templates.express import expression, fill, helpers, literal, summed, text
from kernel_agent.proposers.templates.program import Constant, Output, Read
from kernel_agent.proposers.templates.strides import Pattern
from kernel_agent.proposers.templates.writer import run, tensors, types

LAST = "out"  # the piece that stores
INDEX = "at"  # the piece that gives an index, which no float holds
INLINE = {"cpu": "[[gnu::always_inline]] inline", "cuda": "__device__ __forceinline__"}
MATH = {"cpu": "math/level_01.cpp", "cuda": "math/level_01.cu"}
LAUNCH = {"cpu": "launch(t);", "cuda": "launch(t, out0.device());"}


def source(
    routine: Centred, target: str, frame: str, shape: Sequence[str], once: bool = False, streamed: bool = False
) -> str:
    """The frame with its shape, tensors, pieces and `run`; it takes the leaves and then the outputs.

    On a GPU, `once` says that no element is read twice, and `streamed` that outputs are not to stay in the caches.
    """
    pieces = [
        _index(routine, name, piece, target)
        if name == INDEX
        else _cpu(routine, name, piece)
        if target == "cpu"
        else _cuda(routine, name, piece, once, streamed)
        for name, piece in routine.pieces
    ]
    places = {
        "shape": "\n".join(shape),
        "tensors": tensors(routine),
        "pieces": "\n".join(pieces),
        "run": run(routine, [LAUNCH[target]]),
    }
    body = "".join([*places.values(), text(frame)])
    places["math"] = helpers(MATH[target], body, types(routine))
    return fill(text(frame), places)


def macros(genes: Mapping[str, object], **named: str) -> list[str]:
    """The tunables as macros that a compiler's flag may set: `macros(genes, block="BLOCK")`."""
    return [f"#ifndef {macro}\n#define {macro} {genes[gene]}\n#endif" for gene, macro in named.items()]


def _address(offset: int, rows: Pattern, columns: Pattern, c: str) -> str:
    return summed(str(offset), _digits(rows, "r"), _digits(columns, c))


def _digits(pattern: Pattern, of: str) -> str:
    """The element that a row or column is, computed in 64 bits: `int64_t(r / 8 % 4) * 16 + r % 8`."""
    parts, place = list[str](), 1
    for position, (size, stride) in reversed(list(enumerate(pattern))):
        digit = of if place == 1 else f"{of} / {place}"
        digit = digit if position == 0 else f"{digit} % {size}"
        if stride:
            parts.insert(0, digit if stride == 1 else f"int64_t({digit}) * {stride}")
        place *= size
    return summed(*parts)


def _place(piece: Piece, i: int, c: str) -> str:
    """The address of a read at row r and a column."""
    term, halves = piece.terms[i], piece.places(i)
    assert isinstance(term, Read)
    if halves is None:
        return summed(str(term.offset), _digits(term.pattern, f"(r * int64_t({piece.columns}) + {c})"))
    return _address(term.offset, *halves, c)


def _read(routine: Centred, piece: Piece, i: int) -> Read:
    term = piece.terms[i]
    assert isinstance(term, Read)
    return term


def _tensor(routine: Centred, piece: Piece, i: int) -> str:
    nodes = [leaf.node for leaf in routine.leaves]
    return f"t.in{nodes.index(_read(routine, piece, i).leaf.node)}"


def _value(piece: Piece, i: int) -> str:
    term = piece.terms[i]
    return literal(float(term.value)) if isinstance(term, Constant) else f"v{i}"


def _given(routine: Centred, value: str) -> str:
    """What the frame hands over, rounded as the operator's result is."""
    dtype = routine.core.spec.dtype
    return value if dtype == "float32" else f"k_round_{dtype}({value})"


def _index(routine: Centred, name: str, piece: Piece, target: str) -> str:
    head = f"{INLINE[target]} int64_t k_{name}(const Tensors& t, "
    head += "[[maybe_unused]] int64_t r, [[maybe_unused]] int64_t c)"
    return f"{head} {{\n  return {_tensor(routine, piece, 0)}[{_place(piece, 0, 'c')}];\n}}"


def _cpu(routine: Centred, name: str, piece: Piece) -> str:
    lines = list[str]()
    for i, term in enumerate(piece.terms):
        if isinstance(term, Constant):
            continue
        if not isinstance(term, Read):
            value = expression(piece, i)
        elif term.leaf.node == piece.given:
            value = _given(routine, "given")
        else:
            tensor, at = _tensor(routine, piece, i), _place(piece, i, "c")
            value = f"{tensor}[{at}]" if term.leaf.spec.dtype == "float32" else f"k_load({tensor} + ({at}))"
        lines.append(f"const float v{i} = {value};")
    if name != LAST:
        lines.append(f"return {_value(piece, piece.results[0])};")
        head = f"{INLINE['cpu']} float k_{name}([[maybe_unused]] const Tensors& t, "
        head += "[[maybe_unused]] int64_t r, [[maybe_unused]] int64_t c) {\n"
        return head + indent("\n".join(lines), "  ") + "\n}"
    for n, output in enumerate(routine.outputs):
        at = f"r * {piece.columns} + c"
        value = _value(piece, output.term)
        plain = output.spec.dtype == "float32"
        lines.append(f"t.out{n}[{at}] = {value};" if plain else f"k_store(t.out{n} + ({at}), {value});")
    head = f"{INLINE['cpu']} void k_{name}(const Tensors& t, int64_t r, int64_t c, float given) {{\n"
    return head + indent("\n".join(lines), "  ") + "\n}"


def _cuda(routine: Centred, name: str, piece: Piece, once: bool, streamed: bool) -> str:
    fetches, body = list[str](), list[str]()
    for i, term in enumerate(piece.terms):
        if isinstance(term, Constant):
            continue
        if not isinstance(term, Read):
            value = expression(piece, i)
        elif term.leaf.node == piece.given:
            value = _given(routine, "given[j]")
        else:
            fetch, value = _fetched(routine, piece, i, once)
            fetches += fetch
        body.append(f"const float v{i} = {value};")
    head = f"template <int N>\n{INLINE['cuda']} void k_{name}([[maybe_unused]] const Tensors& t, "
    head += "[[maybe_unused]] int64_t r, [[maybe_unused]] int64_t c, "
    puts = list[str]()
    if name != LAST:
        head += "float (&x)[N]) {\n"
        body.append(f"x[j] = {_value(piece, piece.results[0])};")
    else:
        head += "const float (&given)[N]) {\n"
        for n, output in enumerate(routine.outputs):
            fetches.append(f"k_vector<std::remove_pointer_t<decltype(t.out{n})>, N> o{n};")
            value = _value(piece, output.term)
            plain = output.spec.dtype == "float32"
            body.append(f"o{n}.at[j] = {value};" if plain else f"k_store(o{n}.at[j], {value});")
            puts.append(f"k_put<{_flag(streamed)}>(t.out{n} + ({_stored(piece, output)}), o{n});")
    loop = ["#pragma unroll", "for (int j = 0; j < N; ++j) {", indent("\n".join(body), "  "), "}"]
    return head + indent("\n".join([*fetches, *loop, *puts]), "  ") + "\n}"


def _stored(piece: Piece, output: Output) -> str:
    """Where in an output a row's element at a column goes."""
    slab = output.slab
    if slab is None or slab.run == piece.rows * piece.columns:
        return f"r * {piece.columns} + c"
    rows = slab.run // piece.columns
    return f"r / {rows} * {slab.pitch} + r % {rows} * {piece.columns} + c"


def _fetched(routine: Centred, piece: Piece, i: int, once: bool) -> tuple[list[str], str]:
    """What is loaded before the elements' loop, and the element in it."""
    term, tensor = _read(routine, piece, i), _tensor(routine, piece, i)
    plain = term.leaf.spec.dtype == "float32"
    halves = piece.places(i)
    if piece.contiguous(i):
        load = f"const auto p{i} = k_fetch<N, {_flag(once)}>({tensor} + ({_place(piece, i, 'c')}));"
        element, before = f"p{i}.at[j]", [load]
    elif halves is not None and not any(stride for _, stride in halves[1]):
        load = f"const auto p{i} = k_fetch<1, false>({tensor} + ({_place(piece, i, 'c')}));"
        element, before = f"p{i}.at[0]", [load]
    else:
        element, before = f"k_fetch<1, false>({tensor} + ({_place(piece, i, '(c + j)')})).at[0]", []
    return before, element if plain else f"k_load({element})"


def _flag(value: bool) -> str:
    return "true" if value else "false"
