"""A run on CUDA without a GPU: its profiles are reports that Nsight Compute recorded on a card.

python -m tests.support.cuda_run DIRECTORY    writes one
"""

from __future__ import annotations

import asyncio
import lzma
import sys
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter

from benchmarks.diseases import DISEASES, Disease
from kernel_agent.bench import profiles
from kernel_agent.run.journal import Journal
from kernel_agent.run.tree import Diagnosis, EvaluationRecord, Ideas
from kernel_agent.run.types import Description, Device, Idea, Problem, Profile, Timing, Trial
from ncu_server.profiler.digest import digest
from ncu_server.profiler.facts import KernelFacts
from ncu_server.profiler.render import longest
from ncu_server.profiler.reports import open_report
from ncu_server.wire.profiling import KernelReport
from rag import Library, Query
from tests.support.page_runs import passed
from tests.support.paths import NSIGHT
from tests.support.scripted_run import small_settings

EAGER_US, MOVED = 900.0, 2 * 4 * 8192**2
"""Two transposes of 8192 by 8192 floats are the run's kernels; the eager time is made up, theirs were recorded."""
STEPS = ("uncoalesced", "strided_stores")
DEVICE = Device("cuda", "NVIDIA H200", "sm_90", 0, 4000.0)


def disease(name: str) -> Disease:
    return next(one for one in DISEASES if one.name == name)


async def recorded(name: str, folder: Path) -> KernelFacts:
    """The longest launch of a recorded report, as NVIDIA's reader has it."""
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / f"{name}.ncu-rep"
    report.write_bytes(lzma.decompress((NSIGHT / "recorded" / f"{name}.ncu-rep.xz").read_bytes()))
    facts, _ = await open_report(report)
    return facts.kernels[longest(facts.kernels)]


def profile_of(launch: KernelFacts, source: str) -> tuple[Profile, float]:
    """What the measuring server and its client make of a launch, and its time in microseconds."""
    found = digest(launch, source=source)
    assert found.duration_us is not None
    told = KernelReport(report_id="recorded", digest=found).model_dump(mode="json")
    report = TypeAdapter(profiles.KernelReport).validate_python(told)
    return profiles.profile(profiles.ProfileAnswer("profiled", report=report)), found.duration_us


async def write(directory: Path) -> Path:
    """The run in a new directory: each step's idea has passages of the library, and each kernel its profile."""
    with Library.open(mode="lexical") as library:
        found = library.search(Query(text="coalesced loads and stores of a transpose", limit=2))
        read = [passage.id for passage in found.passages]
    launches = {name: await recorded(name, directory.with_name("reports")) for name in STEPS}
    eager = Timing(EAGER_US, EAGER_US * 0.99, EAGER_US * 1.01, 20)
    description = Description(DEVICE, None, None, 0.0, MOVED, MOVED / 4e6, {"eager": eager})
    with Journal.create(directory) as journal:
        journal.begin(Problem("transpose", disease(STEPS[0]).problem, "cuda"), small_settings(target="cuda"))
        journal.describe(description)
        parent = journal.load().reference
        for round, (name, launch) in enumerate(launches.items(), 1):
            source = disease(name).candidate
            profile, time_us = profile_of(launch, source)
            ratio = EAGER_US / time_us
            fields = {"bottleneck": "its columns are far apart", "reasoning": "a warp's loads fall on 32 sectors each"}
            idea = Idea(str(round), round, parent.id, name, predicted=1.5, passages=tuple(read), **fields)
            trial = Trial(idea.id, 0, 0, parent.id, source)
            judged = replace(passed(ratio), timing=Timing(time_us, time_us * 0.99, time_us * 1.01, 20))
            for record in (
                Ideas(round, (idea,)),
                trial,
                EvaluationRecord(trial.source_id, judged),
                Diagnosis(trial.source_id, profile),
            ):
                journal.append(record, 10.0 * round)
            parent = trial
    return directory


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1])))
