"""The candidate: the problem's source, the kernel's source, and a `ModelNew` that calls it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence

from kernel_agent.proposers.templates.graph import Graph, Leaf
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import TemplateTarget


def assemble(
    problem: str,
    title: str,
    kernel: str,
    program: Routine,
    tunables: Mapping[str, tuple[int | str, Sequence[int | str]]],
    flags: Sequence[str],
    target: TemplateTarget,
) -> str:
    """One Python module, which says its title in the comment `# kernel: TITLE`.

    `tunables` maps names (macros of the kernel) to their value and the values worth trying.
    """
    prefix = unused("kernel", problem)
    names = {name: unused(name, problem) for name in tunables}
    declared = "".join(
        f"{names[name]} = {value}  # tune: {', '.join(str(v) for v in values)}\n"
        for name, (value, values) in tunables.items()
    )
    defines = [f'f"-D{name}={{{names[name]}}}"' for name in tunables]
    listed = ", ".join([*(f'"{flag}"' for flag in flags), *defines])
    arguments = (f"{target.sources}=_{prefix}_source", f"{target.cflags}=[{listed}]", target.more)
    build = "\n    ".join(f"{argument}," for argument in arguments if argument)
    return f'''{problem.rstrip()}


# kernel: {title}
import torch
from tvm_ffi.cpp import load_inline as _load_inline

{declared}
_{prefix}_source = r"""
{kernel.strip()}
"""

_{prefix} = _load_inline(
    "{prefix}",
    functions=["run"],
    {build}
)


def _{prefix}_ready(name, tensor, shape, dtype):
    """The tensor, dense and aligned for vector loads. Raises ValueError where the kernel was written for another."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        found, wanted = f"{{tensor.dtype}} {{list(tensor.shape)}}", f"{{dtype}} {{list(shape)}}"
        raise ValueError(f"{{name}} is {{found}}, and this kernel was written for {{wanted}}")
    tensor = tensor.detach().contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


class ModelNew(Model):
{_forward(program, prefix)}'''


def _forward(program: Routine, prefix: str) -> str:
    graph = program.graph
    names = argument_names(graph)
    lines = [f"def forward({', '.join(['self', *names])}):"]
    lines += guards(graph, names)
    by_node = {a.leaf.node: name for a, name in zip(graph.arguments, names, strict=True) if a.leaf}
    for n, leaf in enumerate(program.leaves):
        where = by_node.get(leaf.node) or f"self.{attribute_path(leaf)}"
        if leaf.path and not leaf.spec.shape and by_node:  # a number may wait on the CPU, where no kernel could read it
            where += f".to({next(iter(by_node.values()))}.device)"
        expected = f"{leaf.spec.shape}, torch.{leaf.spec.dtype}"
        lines.append(f'    in{n} = _{prefix}_ready("{leaf.path or leaf.node}", {where}, {expected})')
    device = "in0.device" if program.leaves else '"cpu"'
    for n, output in enumerate(program.outputs):
        lines.append(f"    out{n} = torch.empty({output.spec.shape}, dtype=torch.{output.spec.dtype}, device={device})")
    outs = [f"out{n}" for n in range(len(program.outputs))]
    every = ", ".join([*(f"in{n}" for n in range(len(program.leaves))), *outs])
    lines.append(f"    _{prefix}.run({every})")
    lines.append(f"    return {returned(graph.structure, outs)}")
    return "".join(f"    {line}\n" for line in lines)


def guards(graph: Graph, names: Sequence[str]) -> list[str]:
    """Lines that raise ValueError where a plain value is not the one that the trace has baked in."""
    lines = list[str]()
    for argument, name in zip(graph.arguments, names, strict=True):
        if argument.leaf is None:
            lines.append(f"    if {name} != {argument.value!r}:")
            lines.append(f'        raise ValueError("{name} was {argument.value!r} when this kernel was written")')
    return lines


def returned(structure: str, outs: Sequence[str]) -> str:
    """The expression that forward returns."""
    if structure == "tensor":
        return outs[0]
    return f"[{', '.join(outs)}]" if structure == "list" else f"({', '.join(outs)},)"


def argument_names(graph: Graph) -> list[str]:
    """Names for forward's arguments: keywords as they are, the traced ones of others where they can be used."""
    names = [argument.name for argument in graph.arguments][: len(graph.arguments) - len(graph.keywords)]
    usable = all(n.isidentifier() and not keyword.iskeyword(n) and n not in ("self", "torch") for n in names)
    usable = usable and not any(re.fullmatch(r"(in|out)\d+", n) or n in graph.keywords for n in names)
    return [*(names if usable else (f"argument{i}" for i in range(len(names)))), *graph.keywords]


def attribute_path(leaf: Leaf) -> str:
    """A parameter or buffer below `self`."""
    assert leaf.path is not None
    parts = leaf.path.split(".")
    head, *rest = parts
    text = head
    for part in rest:
        text = f"{text}.{part}" if part.isidentifier() else f"{text}[{part}]"
    return text


def unused(name: str, source: str) -> str:
    """The name, lengthened until no name of the source begins with it."""
    while re.search(rf"\b_?{name}", source):
        name = f"{name}_"
    return name
