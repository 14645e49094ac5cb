"""What `disassemble` does: show the code of one kernel of a build, as the card runs it (SASS) or as PTX."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ncu_server.compiler import demangle, sass
from ncu_server.compiler.compile import LONGEST_NAME, RESULT, folder_of, walled
from ncu_server.errors import Code, Refusal
from ncu_server.machine import toolkit
from ncu_server.machine.machine import Machine
from ncu_server.machine.scratch import workplace
from ncu_server.machine.store import Store
from ncu_server.wire.compilation import CompileResult, Listing

Level = Literal["sass", "ptx"]
TIMEOUT_S = 120.0
MOST_LINES, MOST_CHARACTERS, MOST_OTHERS = 200, 5500, 12


async def disassemble(
    machine: Machine, store: Store, build_id: str, kernel: str | None, level: Level, first: int, count: int
) -> Listing:
    """Lines `first` to `first + count - 1`, counted from 1, of a kernel: by a part of its name, or the longest.

    Raises Refusal UNKNOWN_BUILD, BAD_ARGUMENT where no kernel or several are meant, NO_PROFILER without nvdisasm.
    """
    folder = folder_of(store, build_id)
    code = await kernels(machine, folder, level)
    spoken = dict(zip(code, await demangle.demangled(list(code)), strict=True))
    mangled = _chosen(spoken, kernel, {name: len(lines) for name, lines in code.items()})
    lines = code[mangled]
    if not 1 <= first <= max(1, len(lines)):
        raise Refusal(Code.BAD_ARGUMENT, f"the kernel has no line {first}: it has lines 1 to {len(lines)}")
    shown = _fitting(lines[first - 1 : first - 1 + min(count, MOST_LINES)])
    following = first + len(shown)
    others = [_short(name) for m, name in spoken.items() if m != mangled]
    result = CompileResult.model_validate_json((folder / RESULT).read_bytes())
    return Listing(
        build_id=build_id,
        kernel=_short(spoken[mangled]),
        mangled=mangled[:LONGEST_NAME],
        arch=result.arch,
        level=level,
        text="\n".join(shown),
        first_line=first,
        lines=len(lines),
        next_line=following if following <= len(lines) else None,
        mix=sass.mix_of_sass(lines) if level == "sass" else sass.mix_of_ptx(lines),
        others=others[:MOST_OTHERS],
        uri=f"ncu://build/{build_id}/{level}",
        notes=[f"{len(others) - MOST_OTHERS} further kernels"] if len(others) > MOST_OTHERS else [],
    )


async def kernels(machine: Machine, folder: Path, level: Level) -> dict[str, list[str]]:
    """The lines of each kernel of a build, by mangled name. Raises Refusal BAD_ARGUMENT where there is none."""
    text = await whole(machine, folder, level)
    code = sass.kernels_in_sass(text) if level == "sass" else sass.kernels_in_ptx(text)
    if not code:
        raise Refusal(Code.BAD_ARGUMENT, f"there is no kernel in this build's {level}")
    return code


async def whole(machine: Machine, folder: Path, level: Level) -> str:
    """All the code of a build. Raises Refusal NO_PROFILER without nvdisasm."""
    if level == "ptx":
        return "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("*.ptx")))
    program = toolkit.find("nvdisasm")
    said = []
    async with workplace(machine.work) as place:
        supervisor = walled(place, [str(folder), str(Path(program).parent)])
        for cubin in sorted(folder.glob("*.cubin")):
            try:
                ended = await supervisor.run([program, "-g", "-c", str(cubin)], TIMEOUT_S)
            except TimeoutError:
                sentence = f"nvdisasm took longer than {TIMEOUT_S:.0f} s"
                raise Refusal(Code.TOOK_TOO_LONG, sentence, "compile fewer kernels at once") from None
            if ended.code:
                raise Refusal(Code.INTERNAL, f"{program} ended with exit code {ended.code}", "is it newer than nvcc?")
            said.append(ended.output.decode(errors="replace"))
    return "\n".join(said)


def _chosen(spoken: dict[str, str], wanted: str | None, lengths: dict[str, int]) -> str:
    if wanted is None:
        return max(lengths, key=lambda mangled: lengths[mangled])
    exact = [mangled for mangled, name in spoken.items() if wanted in (mangled, name)]
    fits = exact or [mangled for mangled, name in spoken.items() if wanted in mangled or wanted in name]
    if len(fits) != 1:
        there = ", ".join(_short(spoken[mangled]) for mangled in (fits or list(spoken))[:MOST_OTHERS])
        what = "several kernels are" if fits else "no kernel is"
        raise Refusal(Code.BAD_ARGUMENT, f"{what} named {wanted[:80]!r}", f"there are: {there}")
    return fits[0]


def _fitting(lines: list[str]) -> list[str]:
    """As many of them as there is room for, at least one."""
    room = MOST_CHARACTERS
    shown: list[str] = []
    for line in lines:
        room -= len(line) + 2
        if room < 0 and shown:
            break
        shown.append(line if len(line) <= MOST_CHARACTERS else f"{line[:MOST_CHARACTERS]}...")
    return shown


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
