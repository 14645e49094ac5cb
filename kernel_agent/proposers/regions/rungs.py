"""Kernels of the corpus that stand for one call as it is, filled in for its sizes."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_agent.proposers.templates.express import fill, text
from kernel_agent.proposers.templates.graph import Node, Spec
from kernel_agent.proposers.templates.lowering import mentions, names

WINOGRAD = "conv2d_winograd"


def is_rung(node: Node) -> bool:
    """Whether a kernel of ours stands for this call."""
    return names(node.op)[0] == WINOGRAD


def reads(node: Node) -> list[str]:
    """The tensors that the kernel takes, in the order of its arguments."""
    return mentions(node.args)


def source(node: Node, known: Mapping[str, Spec]) -> str:
    """The kernel in C++; its `run` takes what the call reads, and then the result."""
    (batch, channels, height, width), out = known[node.args[0].node].shape, node.spec.shape[1]
    bias, pad = node.args[2] is not None, node.args[3]
    sizes = f"BATCH = {batch}, IN = {channels}, OUT = {out}, HEIGHT = {height}, WIDTH = {width}, PAD = {pad}"
    shape = f"constexpr int64_t {sizes};\nconstexpr bool BIAS = {str(bias).lower()};"
    tensors = ["x", "w", *(["bias"] if bias else []), "out"]
    arguments = ", ".join(f"tvm::ffi::TensorView {name}" for name in tensors)
    pointers = [f"static_cast<{'' if name == 'out' else 'const '}float*>({name}.data_ptr())" for name in tensors]
    if not bias:
        pointers.insert(2, "nullptr")
    run = f"void run({arguments}) {{\n  launch({', '.join(pointers)});\n}}"
    return fill(text("convolution/level_01.cpp"), {"shape": shape, "run": run})
