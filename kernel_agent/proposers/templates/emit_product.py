"""Matrix products in CUDA C++, written into corpus/kernels/gemm/level_02.cu and level_03.cu."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from textwrap import indent

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.express import fill, helpers, index, operand, summed, text
from kernel_agent.proposers.templates.product import Operand, Product
from kernel_agent.proposers.templates.program import Read
from kernel_agent.proposers.templates.strides import split
from kernel_agent.proposers.templates.tails import tail_lines
from kernel_agent.proposers.templates.writer import TYPES, run, tensors, types

TILES = {  # rows and columns of a block's tile, and of a warp's
    "128x128": (128, 128, 64, 32),
    "128x64": (128, 64, 64, 32),
    "64x128": (64, 128, 64, 32),
    "64x64": (64, 64, 32, 32),
    "32x128": (32, 128, 32, 32),
    "128x32": (128, 32, 32, 32),
    "wgmma": (128, 128, 64, 128),
    "wgmma-256": (128, 256, 64, 256),
}
CUT = "wgmma"  # begins the names of tiles for operands that are cut beforehand, and instructions of sm_90a
DIGITS = "int8x3"  # has sums of integers, and a step for each row
DIGIT_TERMS = 1 << 16  # of a sum at most: each adds up to 2 x 127 x 128, and the sum is of 32 bits
UNFOLDED = "wgmma-256"  # has no registers in which sums are folded
DEPTH = 32  # terms of a tile
FOLD = 128  # terms that the tensor cores add, of which rounding toward zero takes 24 half units at most
CUT_FOLD = 512  # the same of one narrow product, whose operands are rounded far more
CUT_ROOM = 226 << 10  # bytes of shared memory for the ring, whose tiles have rows of 128 bytes
BLOCKS = 2**31  # of a launch, at most


def emit(product: Product, genes: Mapping[str, object]) -> str:
    """The whole CUDA source; it exports `run`, which takes the product's leaves, its outputs and maybe scratch."""
    room = scratch(product, genes) > 0
    last = f"launch(t, {'static_cast<float*>(scratch.data_ptr())' if room else 'nullptr'}, out0.device());"
    tile = cut_shape(matrices(product), genes) if is_cut(genes) else _tile_shape(product, genes)
    places = {
        "shape": "\n".join(_shape(product, genes) + tile),
        "tensors": tensors(product),
        "tail": _tail(product),
        "operands": _matrices(product) if is_cut(genes) else indent(_operands(product), "  "),
        "run": run(product, [last], ["scratch"] if room else []),
    }
    if is_cut(genes):
        places["instruction"] = instruction(TILES[str(genes["tile"])][1])
    kinds = types(product)
    places["math"] = helpers("math/level_01.cu", "".join(places.values()), kinds)
    return fill(text(f"gemm/level_0{3 if is_cut(genes) else 2}.cu"), places)


def is_cut(genes: Mapping[str, object]) -> bool:
    """Whether operands are cut beforehand."""
    return str(genes["tile"]).startswith(CUT)


def cut_parts(genes: Mapping[str, object]) -> tuple[int, int]:
    """Into how many parts an operand is cut, and how many bytes a term of each takes."""
    name = str(genes["arithmetic"])
    return 1 + name.endswith("x3"), 4 if name.startswith("tf32") else 1 if name == DIGITS else 2


def cut_bytes(arithmetic: str) -> int:
    """Bytes of all parts of a term."""
    return prod(cut_parts({"arithmetic": arithmetic}))


def scratch(product: Product, genes: Mapping[str, object]) -> int:
    """Floats in which cut operands and the parts of sums wait; none where there are neither."""
    splits = int(str(genes["split"]))
    sums = splits * product.batch * product.rows * product.columns if splits > 1 else 0
    if not is_cut(genes):
        return sums
    (a, b), (parts, size) = matrices(product), cut_parts(genes)
    rows, together = a * product.rows + b * product.columns, 16 if size == 1 else 8
    terms = rows * -(-product.depth // together) * together
    return sums + terms * parts * size // 4 + (rows if size == 1 else 0)


def matrices(product: Product) -> tuple[int, int]:
    """How many different matrices each operand has: one where all batches read the same."""
    return tuple(product.batch if any(step for _, step in one.batch) else 1 for one in (product.a, product.b))  # type: ignore[return-value]


def blocks(product: Product, tile: str, parts: int = 1) -> int:
    """Blocks of a launch."""
    rows, columns = TILES[tile][:2]
    return product.batch * -(-product.rows // rows) * -(-product.columns // columns) * parts


def _shape(product: Product, genes: Mapping[str, object]) -> list[str]:
    """Sizes, strides and what else both kernels know when they are compiled."""
    tile, parts, a, b = str(genes["tile"]), int(str(genes["split"])), product.a, product.b
    if max(blocks(product, tile, parts), product.batch * product.rows * product.columns // 256 * (parts > 1)) >= BLOCKS:
        raise NotCovered("this product takes more blocks than a launch has.")
    low, high = product.band or (0, 0)
    return [
        f"constexpr int64_t BATCH = {product.batch}, M = {product.rows};",
        f"constexpr int64_t N = {product.columns}, K = {product.depth};",
        f"constexpr int64_t A_M = {a.row}, A_K = {a.term}, B_K = {b.term}, B_N = {b.row};",
        f"constexpr int SPLITS = {parts}, GROUP = {genes['group']};",
        f"constexpr bool BANDED = {'true' if product.band else 'false'};",
        f"constexpr int64_t LOWEST = {low}, HIGHEST = {high};",
    ]


def _tile_shape(product: Product, genes: Mapping[str, object]) -> list[str]:
    if genes["arithmetic"] == DIGITS:
        raise NotCovered("digits are cut beforehand, for wgmma alone.")
    tile_m, tile_n, warp_m, warp_n = TILES[str(genes["tile"])]
    return [
        f"constexpr int COPY_A = {together(product.a, product.rows, product.depth)};",
        f"constexpr int COPY_B = {together(product.b, product.columns, product.depth)};",
        f"constexpr int TILE_M = {tile_m}, TILE_N = {tile_n}, WARP_M = {warp_m}, WARP_N = {warp_n};",
        f"constexpr int STAGES = {genes['stages']}, FOLD = {FOLD // DEPTH};",
        f"constexpr Way WAY = Way::{genes['arithmetic']};",
    ]


def cut_shape(matrices: tuple[int, int], genes: Mapping[str, object]) -> list[str]:
    """What a kernel of operands that are cut beforehand knows of its tile, given how many matrices each has.

    Raises NotCovered where the tile has no registers for the arithmetic.
    """
    (a, b), (parts, size) = matrices, cut_parts(genes)
    if parts > 1 and genes["tile"] == UNFOLDED:
        raise NotCovered("a tile of 256 columns leaves no registers in which the sums of three products are folded.")
    columns = TILES[str(genes["tile"])][1]
    stages = min(int(str(genes["stages"])), CUT_ROOM // (parts * (128 + columns) * 128))
    fold = (FOLD if parts > 1 else CUT_FOLD) * size // 128  # of digits none
    return [
        f"constexpr int64_t A_BATCH = {a}, B_BATCH = {b};",
        f"constexpr int STAGES = {stages}, FOLD = {fold};",
        f"constexpr Way WAY = Way::{genes['arithmetic']};",
        f"constexpr int TILE_N = {columns};",
    ]


def instruction(columns: int, kept: bool = False) -> str:
    """The macro that multiplies 64 rows by so many columns, a multiple of 8: a thread holds half as many sums. The rows
    are in shared memory, or `kept` in registers."""
    count = columns // 2
    rows = [",".join(f"%{n}" for n in range(first, min(first + 32, count))) for first in range(0, count, 32)]
    last = [f"F4({first})" for first in range(count // 16 * 16, count, 4)]
    words = [f"%{count + n}" for n in range(4 if kept else 1)]
    a = f"{{{', '.join(words)}}}" if kept else words[0]
    b = count + len(words)
    held = ", ".join(f'"r"(a[{n}])' for n in range(4)) if kept else '"l"(a)'
    lines = [
        f"#define WGMMA{'_KEPT' if kept else ''}(TYPES, SIGNS)",
        "  asm volatile(",
        f'      "{{ .reg .pred p; setp.ne.b32 p, %{b + 1}, 0; "',
        f'      "wgmma.mma_async.sync.aligned.m64n{columns}" TYPES " {{"',
        *(f'      "{row}{"," if row is not rows[-1] else ""}"' for row in rows),
        f'      "}}, {a}, %{b}, p" SIGNS "; }}"',
        f"      : {', '.join([f'F16({first})' for first in range(0, count - 15, 16)] + last)}",
        f'      : {held}, "l"(b), "r"(adds))',
    ]
    return " \\\n".join(lines)


def together(one: Operand, rows: int, depth: int) -> int:
    """Floats of an operand that lie together, aligned, and that end where it does."""
    if one.term == 1:
        sizes = [depth, one.row]
    elif one.row == 1:
        sizes = [rows, one.term]
    else:
        return 1
    sizes += [one.offset, *(stride for _, stride in one.batch)]
    return next(n for n in (4, 2, 1) if all(size % n == 0 for size in sizes))


def _places(product: Product) -> list[tuple[str, str]]:
    """The tensor of each operand, and where in it the matrix of a batch begins."""
    order = [leaf.node for leaf in product.leaves]
    both = (product.a, product.b)
    return [(f"t.in{order.index(one.leaf.node)}", summed(str(one.offset), index(one.batch, "batch"))) for one in both]


def _operands(product: Product) -> str:
    """Where a tile's rows begin in each operand."""
    firsts = (("a", "m0 * A_M"), ("b", "n0 * B_N"))
    pairs = zip(firsts, _places(product), strict=True)
    return "\n".join(f"const float* {name} = {of} + ({summed(at, first)});" for (name, first), (of, at) in pairs)


def _matrices(product: Product) -> str:
    """The functions that say where the matrices of a batch begin."""
    head = "__device__ __forceinline__ const float* matrix_{}(const Tensors& t, [[maybe_unused]] int64_t batch)"
    pairs = zip("ab", _places(product), strict=True)
    return "\n".join(f"{head.format(name)} {{ return {of} + ({at}); }}" for name, (of, at) in pairs)


def _tail(product: Product) -> str:
    """The function that finishes W neighbouring sums: terms in order, then the stores."""
    tail, order = product.tail, [leaf.node for leaf in product.leaves]

    def element(term: Read) -> str:
        halves = split(term.pattern, product.columns)
        assert halves is not None
        at = summed(str(term.offset), index(halves[0], "r"), index(halves[1], "(c + j)"))
        return f"t.in{order.index(term.leaf.node)}[{at}]"

    body = tail_lines(tail, product.value, "product[j]", element)
    made, stores = list[str](), list[str]()
    for n, output in enumerate(product.outputs):
        value, kind = operand(tail, output.term), TYPES[output.spec.dtype]
        made.append(f"{kind} o{n}[W];")
        body.append(f"o{n}[j] = {value};" if kind == "float" else f"k_store(o{n}[j], {value});")
        stores.append(f"put(t.out{n} + (r * N + c), o{n});")
    loop = ["#pragma unroll", "for (int j = 0; j < W; ++j) {", indent("\n".join(body), "  "), "}"]
    head = "__device__ __forceinline__ void finish(const Tensors& t, int64_t r, int64_t c, const float (&product)[W]) {"
    return "\n".join(["template <int W>", head, indent("\n".join([*made, *loop, *stores]), "  "), "}"])
