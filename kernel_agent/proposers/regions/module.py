"""The module of a plan: the problem's source, the kernels' source, and a `ModelNew` that a person can read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_agent.proposers.regions import rungs
from kernel_agent.proposers.regions.calls import spoken, written
from kernel_agent.proposers.regions.plan import COPY, Kernel, Plan, Slice
from kernel_agent.proposers.templates.candidate import argument_names, attribute_path, guards, returned, unused
from kernel_agent.proposers.templates.graph import Leaf, Node, Ref, Spec
from kernel_agent.proposers.templates.lowering import mentions, names
from kernel_agent.proposers.templates.routine import Routine
from kernel_agent.proposers.templates.targets import Source, TemplateTarget

RESERVED = {"self", "torch"}
Emit = Callable[[Routine], Source]


@dataclass
class Kernels:
    """The kernels of a plan by name, those alike written once: `sources` are the texts of C++ or CUDA C++, `functions`
    those of the Python functions that call them."""

    plan: Plan
    emit: Emit
    taken: str
    prefix: str
    sources: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    _names: dict[object, str] = field(default_factory=dict)

    def name(self, kernel: Kernel) -> str:
        """The name of a kernel's function; it is written at the first mention."""
        key = kernel.program.likeness
        if key not in self._names:
            title = unused(f"k{len(self._names) + 1}_{self._title(kernel)}", self.taken)
            self._names[key] = title
            source = self.emit(kernel.program)
            self.sources[title] = source.text
            leaves = [leaf.spec for leaf in kernel.program.leaves]
            outputs = [None if output.slab else output.spec for output in kernel.program.outputs]
            self.functions[title] = _function(title, leaves, outputs, self.prefix, source.scratch)
        return self._names[key]

    def rung(self, node: Node) -> str:
        """The name of the function that stands for a call as it is."""
        specs = [self.plan.specs[name] for name in rungs.reads(node)]
        key = node.op, tuple(specs), node.spec, len(node.args[2:]) and node.args[3]
        if key not in self._names:
            title = unused(f"k{len(self._names) + 1}_{names(node.op)[0]}", self.taken)
            self._names[key] = title
            self.sources[title] = rungs.source(node, self.plan.specs)
            self.functions[title] = _function(title, specs, [node.spec], self.prefix)
        return self._names[key]

    def _title(self, kernel: Kernel) -> str:
        calls = (self.plan.node(name).op for name in kernel.nodes)
        ops = [names(op)[0].strip("_") for op in calls if op != "_operator.getitem"]
        return "_".join(list(dict.fromkeys(ops))[:4])


def joined(sources: dict[str, str]) -> str:
    """Several sources as one: each in a namespace of its own, its `run` under its name, what they include once."""
    includes, bodies = dict[str, None](), list[str]()
    for name, source in sources.items():
        head, body = _includes(source)
        includes.update(dict.fromkeys(head))
        macros = dict.fromkeys(re.findall(r"^#define (\w+)", body, flags=re.MULTILINE))
        body = re.sub(r"#ifndef \w+\n(#define \w+ .*\n)#endif\n", r"\1", body)
        body = body.replace("namespace {", f"namespace {name}_ {{", 1).replace(
            "}  // namespace\n", f"}}  // namespace {name}_\n", 1
        )
        body = body.replace("void run(", f"void {name}(", 1)
        at = body.index(f"void {name}(")
        opened = body.index("{\n", at) + 2
        body = f"{body[:opened]}  using namespace {name}_;\n{body[opened:]}"
        bodies.append("\n".join([body.strip(), *(f"#undef {macro}" for macro in macros)]))
    return "\n".join(includes) + "\n\n" + "\n\n".join(bodies)


def _includes(source: str) -> tuple[list[str], str]:
    """The lines before the first namespace, conditions kept together, and the rest."""
    at = source.index("namespace {")
    head, found, block = source[:at], list[str](), list[str]()
    for line in head.splitlines():
        if line.startswith("#if"):
            block = [line]
        elif block:
            block.append(line)
            if line.startswith("#endif"):
                found.append("\n".join(block))
                block = []
        elif line.strip():
            found.append(line)
    return found, source[at:]


def assemble(problem: str, title: str, plan: Plan, emit: Emit, flags: Sequence[str], target: TemplateTarget) -> str:
    """One Python module, which says its title in the comment `# kernel: TITLE` and its rules below.

    Raises NotCovered where a call of PyTorch can't be written.
    """
    prefix = unused("kernels", problem)
    kernels = Kernels(plan, emit, problem, prefix)
    forward = Forward(plan, kernels, prefix).text()
    listed = ", ".join(f'"{flag}"' for flag in flags)
    functions = ", ".join(f'"{name}"' for name in kernels.sources)
    arguments = [
        f"{target.sources}=_{prefix}_source",
        f"{target.cflags}=[{listed}]",
        *([target.more] if target.more else []),
    ]
    build = "\n    ".join(f"{argument}," for argument in arguments)
    rules = "".join(f"# {line}\n" for line in (_told(plan)))
    functions_text = "\n\n".join(kernels.functions.values())
    return f'''{problem.rstrip()}


# kernel: {title}
{rules}import torch
from tvm_ffi.cpp import load_inline as _load_inline

_{prefix}_source = r"""
{joined(kernels.sources).strip()}
"""

_{prefix} = _load_inline(
    "{prefix}",
    functions=[{functions}],
    {build}
)


def _{prefix}_ready(name, tensor, shape, dtype):
    """The tensor, dense and aligned for vector loads. Raises ValueError where the kernel was written for another."""
    if tuple(tensor.shape) != shape or tensor.dtype != dtype:
        found, wanted = f"{{tensor.dtype}} {{list(tensor.shape)}}", f"{{dtype}} {{list(shape)}}"
        raise ValueError(f"{{name}} is {{found}}, and this kernel was written for {{wanted}}")
    tensor = tensor.detach().contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


{functions_text}


class ModelNew(Model):
    @torch.no_grad()
{forward}'''


def _told(plan: Plan) -> list[str]:
    """What the module's first lines say: which rules hold, and what stays PyTorch."""
    kept = dict.fromkeys(spoken(step) for step in plan.steps if isinstance(step, Node) and step.name in plan.reasons)
    lines = [f"Rule: {rule}." for rule in plan.rules]
    return [*lines, f"PyTorch computes {', '.join(kept)}." if kept else "No call of PyTorch computes."]


def _function(name: str, leaves: Sequence[Spec], outputs: Sequence[Spec | None], prefix: str, scratch: int = 0) -> str:
    """The Python function of a kernel: it checks its tensors, makes room for its outputs and launches.

    An output without a spec is a slice that the caller gives. `scratch` is how many floats of memory the kernel works
    in.
    """
    ins = [f"in{n}" for n in range(len(leaves))]
    outs = [f"out{n}" for n in range(len(outputs))]
    given = [out for out, spec in zip(outs, outputs, strict=True) if spec is None]
    lines = [f"def _{name}({', '.join([*ins, *given])}):"]
    device = next((n for n, leaf in enumerate(leaves) if leaf.shape), 0)
    for n, leaf in enumerate(leaves):
        where = f"in{n}" if leaf.shape or n == device else f"in{n}.to(in{device}.device)"
        lines.append(f'    in{n} = _{prefix}_ready("in{n} of {name}", {where}, {leaf.shape}, torch.{leaf.dtype})')
    for n, output in enumerate(outputs):
        if output is None:
            continue
        made = f"torch.empty({output.shape}, dtype=torch.{output.dtype}, device=in{device}.device)"
        lines.append(f"    out{n} = {made}")
    if scratch:
        where = f"dtype=torch.float32, device=in{device}.device"  # whatever dtype tensors have by default
        lines.append(f"    scratch = torch.empty({scratch}, {where})")
    lines.append(f"    _{prefix}.{name}({', '.join([*ins, *outs, *(['scratch'] if scratch else [])])})")
    if made_here := [out for out in outs if out not in given]:
        lines.append(f"    return {', '.join(made_here)}")
    return "\n".join(lines)


class Forward:
    """Writes `forward`: a line a step, and what is not read again let go."""

    def __init__(self, plan: Plan, kernels: Kernels, prefix: str) -> None:
        self._plan, self._kernels, self._prefix = plan, kernels, prefix
        graph = plan.graph
        self._arguments = argument_names(graph)
        self._said = {a.leaf.node: name for a, name in zip(graph.arguments, self._arguments, strict=True) if a.leaf}
        first = next((name for a, name in zip(graph.arguments, self._arguments, strict=True) if a.leaf), None)
        self._device = f"{first}.device" if first else '"cpu"'
        self._said |= {n: self._attribute(leaf) for n, leaf in graph.leaves.items() if leaf.path is not None}
        used = {*RESERVED, *self._arguments}
        for node in graph.nodes:
            name = node.name if node.name.isidentifier() else f"v_{len(used)}"
            while name in used:
                name += "_"
            used.add(name)
            self._said[node.name] = name
        self._said |= {name: self._slice(place) for name, place in plan.slices.items()}

    def _attribute(self, leaf: Leaf) -> str:
        if leaf.made and leaf.value is not None:
            return f"torch.tensor({leaf.value!r}, dtype=torch.{leaf.spec.dtype}, device={self._device})"
        return f"self.{attribute_path(leaf)}"

    def text(self) -> str:
        """The method, indented as a class's."""
        graph = self._plan.graph
        lines = [f"def forward({', '.join(['self', *self._arguments])}):", *guards(graph, self._arguments)]
        last = self._last_reads()
        for n, step in enumerate(self._plan.steps):
            lines.append(f"    {self._line(step)}")
            gone = [self._said[name] for name in last.get(n, ())]
            if gone:
                lines.append(f"    del {', '.join(gone)}")
        lines.append(f"    return {returned(graph.structure, [self._said[name] for name in graph.outputs])}")
        return "".join(f"    {line}\n" for line in lines)

    def _line(self, step: Kernel | Node) -> str:
        if isinstance(step, Kernel):
            given = [self._said[name] for name in (*step.reads, *self._given(step))]
            outs = ", ".join(self._said[name] for name in _gives(step, self._plan.slices))
            call = f"_{self._kernels.name(step)}({', '.join(given)})"
            return f"{outs} = {call}" if outs else call
        if step.op == COPY:
            whole, dim, start, end, part = step.args
            return f"{self._slice(Slice(whole.node, dim, start, end))}.copy_({self._said[part.node]})"
        if rungs.is_rung(step):
            reads = [self._said[name] for name in rungs.reads(step)]
            return f"{self._said[step.name]} = _{self._kernels.rung(step)}({', '.join(reads)})"
        expression = written(step, lambda ref: self._mention(ref), self._device)
        return f"{self._said[step.name]} = {expression}"

    def _given(self, kernel: Kernel) -> list[str]:
        """What a kernel writes that lies in other tensors."""
        return [name for name in kernel.writes if name in self._plan.slices]

    def _slice(self, place: Slice) -> str:
        """A slice of a tensor: `cat[:, 8:24]`."""
        size = self._plan.specs[place.whole].shape[place.dim]
        start, end = place.start or "", place.end if place.end < size else ""
        return f"{self._said[place.whole]}[{', '.join([*[':'] * place.dim, f'{start}:{end}'])}]"

    def _mention(self, ref: Ref) -> str:
        return self._said[ref.node]

    def _reads(self, step: Kernel | Node) -> list[str]:
        """What a step reads or writes into, a slice by the name of the tensor that it lies in."""
        names_ = [*step.reads, *self._given(step)] if isinstance(step, Kernel) else mentions([step.args, step.kwargs])
        return [self._plan.slices[name].whole if name in self._plan.slices else name for name in names_]

    def _last_reads(self) -> dict[int, list[str]]:
        """After which step nobody reads a step's result again, and whose."""
        made = {name for step in self._plan.steps for name in _gives(step, self._plan.slices)}
        ends: dict[str, int] = {}
        for n, step in enumerate(self._plan.steps):
            ends.update({name: n for name in (*_gives(step, self._plan.slices), *self._reads(step)) if name in made})
        found: dict[int, list[str]] = {}
        for name, n in ends.items():
            if name not in self._plan.graph.outputs:
                found.setdefault(n, []).append(name)
        return found


def _gives(step: Kernel | Node, slices: Mapping[str, Slice]) -> tuple[str, ...]:
    """The names of new tensors that a step makes."""
    if isinstance(step, Kernel):
        return tuple(name for name in step.writes if name not in slices)
    return () if step.op == COPY else (step.name,)
