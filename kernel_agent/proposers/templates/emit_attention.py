"""Attention in CUDA C++, written into corpus/kernels/attention/level_01.cu."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_agent.proposers.templates.attention import Attention
from kernel_agent.proposers.templates.attention_tile import AttentionTile, tiled
from kernel_agent.proposers.templates.emit_product import instruction, together
from kernel_agent.proposers.templates.express import fill, helpers, index, literal, summed, text
from kernel_agent.proposers.templates.product import Operand
from kernel_agent.proposers.templates.writer import TYPES, run, tensors, types


def emit(attention: Attention, genes: Mapping[str, object]) -> str:
    """The whole CUDA source; it exports `run`, which takes the attention's leaves, its output and scratch."""
    tile = tiled(attention, genes)
    last = "launch(t, static_cast<float*>(scratch.data_ptr()), out0.device());"
    stages = min(int(str(genes["stages"])), tile.stages)
    places = {
        "shape": "\n".join([*_shape(attention), *_tile(tile, stages, str(genes["arithmetic"]))]),
        "tensors": tensors(attention),
        "operands": _operands(attention),
        "instructions": f"{instruction(tile.keys)}\n{instruction(tile.columns, kept=True)}",
        "run": run(attention, [last], ["scratch"]),
    }
    kinds = types(attention)
    places["math"] = helpers("math/level_01.cu", "".join(places.values()), kinds)
    return fill(text("attention/level_01.cu"), places)


def scratch(attention: Attention, genes: Mapping[str, object]) -> int:
    """Floats in which parts of keys and values wait."""
    return tiled(attention, genes).scratch


def _shape(of: Attention) -> list[str]:
    """Sizes and strides, and how the mask works."""
    shape, mask = of.shape, of.mask
    return [
        f"constexpr int64_t HEADS = {shape.heads}, M = {shape.queries}, N = {shape.keys};",
        f"constexpr int D = {shape.terms}, E = {shape.values};",
        f"constexpr int64_t Q_M = {of.q.row}, Q_D = {of.q.term}, K_N = {of.k.row}, K_D = {of.k.term};",
        f"constexpr int64_t V_N = {of.v.row}, V_E = {of.v.term}, O_M = {of.row};",
        f"constexpr int64_t MASK_M = {mask.row if mask else 0}, MASK_N = {mask.term if mask else 0};",
        f"constexpr int TOGETHER = {together(of.q, shape.queries, shape.terms) if of.q.term == 1 else 1};",
        f"constexpr float SCALE = {literal(of.scale)}, FILL = {literal(of.fill)};",
        f"constexpr bool EMPTY_IS_ZERO = {'true' if of.empty_is_zero else 'false'};",
        f"constexpr Mask MASK = Mask::{of.how};",
        f"constexpr bool SHARED_MASK = {'true' if of.shares_mask else 'false'};",
    ]


def _tile(tile: AttentionTile, stages: int, arithmetic: str) -> list[str]:
    return [
        f"constexpr int CONSUMERS = {tile.groups}, KEYS = {tile.keys}, STAGES = {stages};",
        f"constexpr Way WAY = Way::{arithmetic};",
    ]


def _operands(of: Attention) -> str:
    """The functions that say where what belongs to a head begins."""
    order = [leaf.node for leaf in of.leaves]
    pairs = zip(("queries", "keys", "values", "mask"), of.operands, strict=False)
    given, hidden = TYPES[of.result.dtype], TYPES[of.mask.leaf.spec.dtype] if of.mask else "float"
    lines = [f"using Given = {given};", f"using Hidden = {hidden};"]
    lines += [_begins(name, one, order.index(one.leaf.node)) for name, one in pairs]
    if not of.mask:
        lines.append(
            "__device__ __forceinline__ const Hidden* mask_of(const Tensors&, int64_t) { return nullptr; }",
        )
    head = "__device__ __forceinline__ Given* results_of(const Tensors& t, [[maybe_unused]] int64_t h)"
    return "\n".join([*lines, f"{head} {{ return t.out0 + ({index(of.batch, 'h')}); }}"])


def _begins(name: str, one: Operand, number: int) -> str:
    kind = "Hidden" if name == "mask" else "Given"
    head = f"__device__ __forceinline__ const {kind}* {name}_of(const Tensors& t, [[maybe_unused]] int64_t h)"
    return f"{head} {{ return t.in{number} + ({summed(str(one.offset), index(one.batch, 'h'))}); }}"
