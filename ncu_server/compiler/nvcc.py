"""nvcc's command line and what it says: which flags may be given, what ptxas gave each kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ncu_server.errors import Code, Refusal
from ncu_server.wire.compilation import Resources

FLAGS = re.compile(
    r"-O[0-3]|--?use_fast_math|--?(fmad|ftz|prec-div|prec-sqrt)=(true|false)|--?std=c\+\+(11|14|17|20)|"
    r"--?maxrregcount=\d{1,3}|-[DU]\w+(=[\w.+-]*)?|--expt-(relaxed-constexpr|extended-lambda)|--extended-lambda|"
    r"--?extra-device-vectorization|--?restrict|-w|"
    r"(-Xptxas=|--ptxas-options=)(-dlcm=(ca|cg|cs|cv)|-dscm=(wb|cg|cs|wt)|-O[0-3]|-warn-spills|-allow-expensive-optimizations=(true|false))"
)
ALWAYS = ("-Xptxas=-v", "--keep")
ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?(.*)")
SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")


def allowed(flags: Sequence[str]) -> list[str]:
    """The flags. Raises Refusal BAD_ARGUMENT for one that could do more than change the code that is made."""
    for flag in flags:
        if not FLAGS.fullmatch(flag):
            shown = "-O3, -use_fast_math, -std=c++20, -maxrregcount=64, -DNAME=1, --fmad=false, -Xptxas=-dlcm=cg"
            raise Refusal(
                Code.BAD_ARGUMENT, f"the flag {flag[:80]!r} is not allowed", f"those of this kind are: {shown}"
            )
    return list(flags)


def command(compiler: str, arch: str, flags: Sequence[str], lineinfo: bool, source: str) -> list[str]:
    """Compiles a file to device code alone, and leaves its PTX beside it."""
    level = [] if any(flag.startswith("-O") for flag in flags) else ["-O3"]
    line = ["-lineinfo"] if lineinfo else []
    return [compiler, "-cubin", f"-arch={arch}", *level, *line, *flags, *ALWAYS, source]


def resources(log: str) -> list[Resources]:
    """What `ptxas -v` says of each kernel; the last word where it was compiled more than once."""
    return list({kernel.mangled: kernel for kernel in _resources(log)}.values())


def _resources(log: str) -> Iterator[Resources]:
    for part in re.split(r"(?=Compiling entry function)", log)[1:]:
        entry, spills, used = ENTRY.match(part), SPILLS.search(part), USED.search(part)
        if entry is None or used is None:
            continue
        shared = SHARED.search(used[3])
        yield Resources(
            name=entry[1],
            mangled=entry[1],
            registers=int(used[1]),
            barriers=int(used[2] or 0),
            shared_bytes=int(shared[1]) if shared else 0,
            stack_bytes=int(spills[1]) if spills else None,
            spill_store_bytes=int(spills[2]) if spills else None,
            spill_load_bytes=int(spills[3]) if spills else None,
        )


def ptxas_words(log: str) -> str:
    """The part of a log that ptxas said."""
    said = ("ptxas ", "    ")
    return "\n".join(row for row in log.splitlines() if row.startswith(said[0]) or SPILLS.search(row))
