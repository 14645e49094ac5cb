"""What the compiler made of a library for an x86-64 processor, read with `objdump`: its inner loops, by function."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncu_server.errors import Code, Refusal
from ncu_server.sandbox.supervisor import Supervisor
from ncu_server.wire.profiling import Loop, StaticKernel

TIMEOUT_S = 60.0
FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$", re.MULTILINE)
INSTRUCTION = re.compile(r"^[ \t]*([0-9a-f]+):\t(?:(?:lock|rep|repz|notrack|bnd) )*([a-z]\w*)[ \t]*(.*)$", re.MULTILINE)
ARITHMETIC = re.compile(r"v?(?:f(?:n?m(?:add|sub)|maddsub|msubadd)\d{3}|add|sub|mul|div|sqrt|max|min)([ps])[sdh]")
STACKED = re.compile(r"-?0x[0-9a-f]+\(%r[sb]p\)|(?<!\S)\(%rsp\)")
VECTOR = re.compile(r"%[xyz]mm\d+")
TARGET = re.compile(r"([0-9a-f]+) <")
CALLED = re.compile(r"<([^@>+]+)")
BOILERPLATE = re.compile(r"^(?:std::|tvm::|void std::|_|GOMP_|omp_|mem(?:cpy|set|move)$)")
MOST_FUNCTIONS, MOST_LOOPS = 6, 3


@dataclass(frozen=True, slots=True)
class Instruction:
    address: int
    name: str
    operands: str

    @property
    def back_to(self) -> int | None:
        """Where a jump backwards goes."""
        target = TARGET.match(self.operands) if self.name.startswith("j") else None
        return int(target[1], 16) if target and int(target[1], 16) <= self.address else None


async def functions(library: Path) -> list[StaticKernel]:
    """The functions of a library that compute in loops, most arithmetic first. Raises Refusal NO_PROFILER."""
    program = shutil.which("objdump")
    if program is None:
        raise Refusal(Code.NO_PROFILER, "objdump, which reads what the compiler made, is not here", "install binutils")
    command = [program, "--disassemble", "--demangle", "--no-show-raw-insn", str(library)]
    return functions_in((await Supervisor().run(command, TIMEOUT_S)).output.decode(errors="replace"))


def functions_in(text: str) -> list[StaticKernel]:
    """The same of what objdump printed."""
    names, starts = FUNCTION.findall(text), [found.start() for found in FUNCTION.finditer(text)]
    found = [
        StaticKernel(name=name, loops=loops)
        for name, start, end in zip(names, starts, [*starts[1:], len(text)], strict=True)
        if (loops := _loops(_instructions(text[start:end])))
    ]
    return sorted(found, key=lambda one: -sum(map(_work, one.loops)))[:MOST_FUNCTIONS]


def _instructions(text: str) -> list[Instruction]:
    return [Instruction(int(found[1], 16), found[2], found[3]) for found in INSTRUCTION.finditer(text)]


def _loops(code: Sequence[Instruction]) -> list[Loop]:
    """The innermost loops that compute, those with most arithmetic first."""
    found = [_loop(code[first : last + 1]) for first, last in _innermost(code)]
    return sorted(filter(_work, found), key=_work, reverse=True)[:MOST_LOOPS]


def _work(loop: Loop) -> int:
    """Operations of a turn, about: a vector holds eight floats."""
    return 8 * loop.vector + loop.scalar


def _innermost(code: Sequence[Instruction]) -> Iterator[tuple[int, int]]:
    """First and last place of each stretch that is jumped back over and holds no other such stretch."""
    places = {one.address: place for place, one in enumerate(code)}
    spans = [(places[one.back_to], place) for place, one in enumerate(code) if one.back_to in places]
    for first, last in spans:
        if not any(first <= a and b <= last for a, b in spans if (a, b) != (first, last)):
            yield first, last


def _loop(body: Sequence[Instruction]) -> Loop:
    kinds = [match[1] for one in body if (match := ARITHMETIC.fullmatch(one.name))]
    moved = [one for one in body if "mov" in one.name and VECTOR.search(one.operands) and STACKED.search(one.operands)]
    called = (CALLED.search(one.operands) for one in body if one.name.startswith("call"))
    names = dict.fromkeys(match[1] for match in called if match and not BOILERPLATE.match(match[1]))
    return Loop(
        instructions=len(body),
        vector=kinds.count("p"),
        scalar=kinds.count("s"),
        spills=len(moved),
        calls=[name[:80] for name in names],
    )
