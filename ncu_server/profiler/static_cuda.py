"""What the compiler made of a library's kernels, read with `cuobjdump`: registers, memory, a mix of instructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ncu_server.compiler import occupancy, sass
from ncu_server.machine import toolkit
from ncu_server.sandbox.supervisor import Supervisor
from ncu_server.wire.profiling import StaticKernel

NAME, TIMEOUT_S = "cuobjdump", 120.0
FUNCTION = re.compile(r"Function (?:: )?(\S+?):?\s")
USED = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(.+)$", re.MULTILINE)
LOCAL, TENSOR = ("local load", "local store"), ("tensor",)
"""Classes of build.sass."""
BLOCKS, MOST_OPCODES = (128, 256, 512, 1024), 12


async def kernels(library: Path, arch: str) -> list[StaticKernel]:
    """The kernels that a library (or a cubin) holds. Raises Refusal NO_PROFILER."""
    program = toolkit.find(NAME)
    used = (await Supervisor().run([program, "-res-usage", str(library)], TIMEOUT_S)).output.decode(errors="replace")
    code = (await Supervisor().run([program, "-sass", str(library)], TIMEOUT_S)).output.decode(errors="replace")
    mixes = dict(mixes_in(code))
    return [static_kernel(name, numbers, mixes.get(name, Counter()), arch) for name, numbers in usage_in(used)]


def usage_in(text: str) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """Name, then registers, stack, shared and local memory, of each function that `-res-usage` lists."""
    for part in re.split(r"(?=Function )", text):
        name, used = FUNCTION.match(part), USED.search(part)
        if name and used:
            registers, stack, shared, local = map(int, used.groups())
            yield name[1], (registers, stack, shared, local)


def mixes_in(text: str) -> Iterator[tuple[str, Counter[str]]]:
    """Name and instructions by opcode, of each function that `-sass` lists."""
    for part in re.split(r"(?=Function : )", text):
        if name := FUNCTION.match(part):
            yield name[1], Counter(filter(None, map(sass.opcode_of, INSTRUCTION.findall(part))))


def static_kernel(name: str, used: tuple[int, int, int, int], mix: Counter[str], arch: str) -> StaticKernel:
    """A kernel by what `usage_in` and `mixes_in` found of it."""
    registers, stack, shared, local = used
    own = occupancy.own_shared(arch, shared)
    possible = {str(n): occupancy.possible_pct(arch, registers, n, own) for n in BLOCKS}
    return StaticKernel(
        name=name,
        registers_per_thread=registers,
        shared_bytes_per_block=own,
        stack_bytes=stack,
        local_bytes=local,
        possible_occupancy_pct={n: round(share, 1) for n, share in possible.items() if share is not None},
        instructions={opcode: float(count) for opcode, count in mix.most_common(MOST_OPCODES)},
        tensor_instructions=_counted(mix, TENSOR),
        local_instructions=_counted(mix, LOCAL),
    )


def _counted(mix: Counter[str], classes: tuple[str, ...]) -> float:
    return float(sum(count for opcode, count in mix.items() if sass.class_of(opcode) in classes))
