"""Matrix products in CUDA C++, written into corpus/kernels/gemm/level_02.cu."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import indent

from kernel_agent.errors import NotCovered
from kernel_agent.proposers.templates.express import expression, fill, helpers, index, operand, summed, text
from kernel_agent.proposers.templates.product import Operand, Product
from kernel_agent.proposers.templates.program import Constant, Read
from kernel_agent.proposers.templates.strides import split
from kernel_agent.proposers.templates.writer import TYPES, run, tensors, types

TILES = {  # rows and columns of a block's tile, and of a warp's
    "128x128": (128, 128, 64, 32),
    "128x64": (128, 64, 64, 32),
    "64x128": (64, 128, 64, 32),
    "64x64": (64, 64, 32, 32),
    "32x128": (32, 128, 32, 32),
    "128x32": (128, 32, 32, 32),
}
DEPTH = 32  # terms of a tile
FOLD = 4  # tiles whose sums the tensor cores keep: 128 terms, of which rounding toward zero takes 24 half units at most
BLOCKS = 2**31  # of a launch, at most


def emit(product: Product, genes: Mapping[str, object]) -> str:
    """The whole CUDA source; it exports `run`, which takes the product's leaves, its outputs and maybe scratch."""
    split_up = scratch(product, genes) > 0
    last = f"launch(t, {'static_cast<float*>(scratch.data_ptr())' if split_up else 'nullptr'}, out0.device());"
    places = {
        "shape": _shape(product, genes),
        "tensors": tensors(product.leaves, product.outputs),
        "tail": _tail(product),
        "operands": indent(_operands(product), "  "),
        "run": run(product.leaves, product.outputs, [last], ["scratch"] if split_up else []),
    }
    kinds = types(product.leaves, product.outputs)
    places["math"] = helpers("math/level_01.cu", "".join(places.values()), kinds)
    return fill(text("gemm/level_02.cu"), places)


def scratch(product: Product, genes: Mapping[str, object]) -> int:
    """Floats in which the parts of sums wait for each other; none where each sum is one block's."""
    parts = int(str(genes["split"]))
    return parts * product.batch * product.rows * product.columns if parts > 1 else 0


def blocks(product: Product, tile: str, parts: int = 1) -> int:
    """Blocks of a launch."""
    rows, columns = TILES[tile][:2]
    return product.batch * -(-product.rows // rows) * -(-product.columns // columns) * parts


def _shape(product: Product, genes: Mapping[str, object]) -> str:
    tile, parts, stages = str(genes["tile"]), int(str(genes["split"])), genes["stages"]
    if max(blocks(product, tile, parts), product.batch * product.rows * product.columns // 256 * (parts > 1)) >= BLOCKS:
        raise NotCovered("this product takes more blocks than a launch has.")
    a, b, (tile_m, tile_n, warp_m, warp_n) = product.a, product.b, TILES[tile]
    low, high = product.band or (0, 0)
    return "\n".join(
        [
            f"constexpr int64_t BATCH = {product.batch}, M = {product.rows};",
            f"constexpr int64_t N = {product.columns}, K = {product.depth};",
            f"constexpr int64_t A_M = {a.row}, A_K = {a.term}, B_K = {b.term}, B_N = {b.row};",
            f"constexpr int COPY_A = {together(a, product.rows, product.depth)};",
            f"constexpr int COPY_B = {together(b, product.columns, product.depth)};",
            f"constexpr int TILE_M = {tile_m}, TILE_N = {tile_n}, WARP_M = {warp_m}, WARP_N = {warp_n};",
            f"constexpr int STAGES = {stages}, FOLD = {FOLD}, SPLITS = {parts}, GROUP = {genes['group']};",
            f"constexpr Way WAY = Way::{genes['arithmetic']};",
            f"constexpr bool BANDED = {'true' if product.band else 'false'};",
            f"constexpr int64_t LOWEST = {low}, HIGHEST = {high};",
        ]
    )


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


def _operands(product: Product) -> str:
    order = [leaf.node for leaf in product.leaves]
    lines = []
    for name, one, first in (("a", product.a, "m0 * A_M"), ("b", product.b, "n0 * B_N")):
        at = summed(str(one.offset), index(one.batch, "batch"), first)
        lines.append(f"const float* {name} = t.in{order.index(one.leaf.node)} + ({at});")
    return "\n".join(lines)


def _tail(product: Product) -> str:
    """The function that finishes W neighbouring sums: terms in order, then the stores."""
    tail, order, body = product.tail, [leaf.node for leaf in product.leaves], list[str]()
    for i, term in enumerate(tail.terms):
        if isinstance(term, Constant):
            continue
        if not isinstance(term, Read):
            body.append(f"const float v{i} = {expression(tail, i)};")
        elif term.leaf.node == product.value:
            body.append(f"const float v{i} = product[j];")
        else:
            halves = split(term.pattern, product.columns)
            assert halves is not None
            at = summed(str(term.offset), index(halves[0], "r"), index(halves[1], "(c + j)"))
            element = f"t.in{order.index(term.leaf.node)}[{at}]"
            body.append(f"const float v{i} = {element if term.leaf.spec.dtype == 'float32' else f'k_load({element})'};")
    made, stores = list[str](), list[str]()
    for n, output in enumerate(product.outputs):
        value, kind = operand(tail, output.term), TYPES[output.spec.dtype]
        made.append(f"{kind} o{n}[W];")
        body.append(f"o{n}[j] = {value};" if kind == "float" else f"k_store(o{n}[j], {value});")
        stores.append(f"put(t.out{n} + (r * N + c), o{n});")
    loop = ["#pragma unroll", "for (int j = 0; j < W; ++j) {", indent("\n".join(body), "  "), "}"]
    head = "__device__ __forceinline__ void finish(const Tensors& t, int64_t r, int64_t c, const float (&product)[W]) {"
    return "\n".join(["template <int W>", head, indent("\n".join([*made, *loop, *stores]), "  "), "}"])
