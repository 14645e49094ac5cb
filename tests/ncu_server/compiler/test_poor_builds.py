"""A source that compiles badly: from a real nvcc's words through the build to the prompt of its one cheap repair."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.llm.model import Model
from kernel_agent.llm.openai_compatible import Endpoint
from kernel_agent.proposers.model_proposer import ModelProposer
from kernel_agent.run.journal import Journal
from kernel_agent.run.types import Evaluation, Problem, Status
from kernel_agent.search.loop import Search
from ncu_server.compiler.builds import Build
from ncu_server.compiler.news import bad_news
from ncu_server.judge.problems import Workshop
from ncu_server.profiler.fallbacks import imagined
from rag.corpus_path import CORPUS
from tests.support.edits import edit
from tests.support.kernels import SPILLS
from tests.support.scripted_openai import Say, ScriptedOpenAI, Step
from tests.support.scripted_run import DESCRIPTION, InProcessBench, small_settings

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on PATH"),
]
MODULE = '''import torch
import tvm_ffi.cpp

SOURCE = r"""
{source}
"""
kernel = tvm_ffi.cpp.load_inline("kernel_of_{name}", cuda_sources=SOURCE, functions=["run"])


class ModelNew(Model):
    def forward(self, x):
        return x
'''
RING = (CORPUS / "kernels" / "gemm" / "level_01.cu").read_text().partition("--- */\n")[2]
COMMIT = 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");'
RUN = "\nvoid run(tvm::ffi::TensorView x) {}\n"
SPILLING = MODULE.format(source=SPILLS + RUN, name="spills")
SERIAL = MODULE.format(source=edit(RING, COMMIT, f"d[0] += 1.0f;\n    {COMMIT}"), name="serial")
SOUND = MODULE.format(source=RING, name="ring")


class Compiles(InProcessBench):
    """Heeds the compiler as the judge does, with builds by the real nvcc in the builder's sandbox."""

    def __init__(self, workshop: Workshop) -> None:
        super().__init__()
        self.workshop = workshop

    async def evaluate(
        self,
        problem: Problem,
        source: str,
        on_progress: Callable[[str], None] | None = None,
        heeds_compiler: bool = False,
    ) -> Evaluation:
        if heeds_compiler and (news := bad_news((await built(self.workshop, source)).words)):
            return Evaluation(Status.POOR_BUILD, "\n".join(news))
        return await super().evaluate(problem, source)


async def built(workshop: Workshop, source: str) -> Build:
    async def progress(_: str) -> None:
        pass

    device = imagined("cuda", "sm_90")
    assert device is not None
    found = await workshop.builds.get(workshop.machine.imagined(*device), source, None, 300.0, progress)
    assert isinstance(found, Build), found
    return found


@pytest.mark.parametrize(
    ("source", "told"),
    [(SPILLING, "bytes of spill stores"), (SERIAL, "wgmma.mma_async instructions are serialized due to")],
    ids=["spills", "serialized"],
)
async def test_what_the_compiler_says_stands_in_the_one_repair_before_anything_runs(
    source: str, told: str, workshop: Workshop, tmp_path: Path
) -> None:
    def reply(body: dict[str, Any]) -> Step:
        prompt = body["messages"][-1]["content"]
        if "Reply with JSON alone" in prompt:
            return Say(json.dumps({"ideas": [{"title": "Hold it", "transformation": "hold it"}]}))
        return Say(f"```python\n{SOUND if 'nothing was run' in prompt else source}```")

    bench = Compiles(workshop)
    with Journal.create(tmp_path / "run") as journal:
        journal.begin(Problem("p", "class Model: ...\n", "cuda"), small_settings())
        journal.describe(DESCRIPTION)
        run = journal.load()
        run.settings = small_settings(num_rounds=1, branching_factor=1, implementations_per_idea=1, max_repairs=2)
        async with ScriptedOpenAI(reply) as server, Model(Endpoint("custom", "tiny", server.url), journal) as model:
            await Search(run, journal, ModelProposer(model), bench, None).play()
    asked = [body["messages"][-1]["content"] for body in server.requests]
    repairs = [prompt for prompt in asked if "nothing was run" in prompt]
    assert len(repairs) == 1 and told in repairs[0], [prompt[-1500:] for prompt in asked]
    assert [one.status for one in run.poor_builds.values()] == [Status.POOR_BUILD]
    assert bench.judged[0].strip().endswith(SOUND.strip()), "the poor build met no device before its repair"
