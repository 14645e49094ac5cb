"""Where a build disturbs nothing, the problem is prepared meanwhile; and what both leave to whoever comes next."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from ncu_server.compiler.builds import Build, BuildFault
from ncu_server.errors import Code, Refusal
from ncu_server.judge.candidate import EvaluateRequest
from ncu_server.judge.describe import describe
from ncu_server.judge.evaluate import evaluate
from ncu_server.judge.problems import Workshop
from ncu_server.judge.trusted import trusted, until_kept
from ncu_server.targets import TARGETS
from ncu_server.worker import verbs
from ncu_server.worker.answers import Memory
from tests.support.edits import edit
from tests.support.measuring import HONEST, QUICK, SCALE_ADD

# A problem that is not ready before some build has begun.
WAITS = """
def _begun(place, before):
    import time
    from pathlib import Path
    until = time.monotonic() + 60
    while {{path.name for path in Path(place).glob("build-*")}} <= before:
        assert time.monotonic() < until, "no build has begun"

def get_init_inputs():
    _begun({place!r}, {before!r})
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def warm(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workshop]:
    """As on a GPU: compiling does not disturb."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(TARGETS, "cpu", replace(TARGETS["cpu"], builds_disturb=False))
        made = Workshop(tmp_path_factory.mktemp("cache"))
        made.machine.device("cpu")
        yield made
        await asyncio.to_thread(made.close)


def built(workshop: Workshop) -> set[str]:
    """The folders of builds and builders."""
    return {path.name for path in workshop.machine.work.glob("build*-*")}


async def quiet(_: str, *, ahead: int | None = None) -> None:
    pass


def asked(workshop: Workshop, candidate: str, then: str) -> EvaluateRequest:
    assert "def get_init_inputs():\n" in SCALE_ADD
    waiting = WAITS.format(place=str(workshop.machine.work), before=built(workshop)) + then
    return EvaluateRequest(candidate, edit(SCALE_ADD, "def get_init_inputs():\n", waiting), "cpu", (), False, 120.0)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_problem_is_prepared_while_its_first_candidate_is_built(workshop: Workshop) -> None:
    request = asked(workshop, QUICK, "")
    result = await evaluate(workshop, request, quiet)
    assert result.status == "passed", result.log
    assert result.stages.build_s > 0
    again = await evaluate(workshop, request, quiet)
    assert (again.status, again.stages.build_s) == ("passed", 0.0)


@pytest.mark.asyncio(loop_scope="session")
async def test_a_problem_that_fails_ends_the_build_beside_it(workshop: Workshop) -> None:
    before = built(workshop)
    endless = edit(QUICK, "class ModelNew", "while True:\n    pass\n\n\nclass ModelNew")
    with pytest.raises(Refusal) as refused:
        await evaluate(workshop, asked(workshop, endless, "    raise ValueError('no such thing')\n"), quiet)
    assert (refused.value.code, "no such thing" in str(refused.value)) == (Code.BAD_PROBLEM, True)
    await workshop.machine.device("cpu").fork_server.cleared()
    assert built(workshop) <= before


@pytest.mark.asyncio(loop_scope="session")
async def test_a_broken_session_stays_whole_for_those_who_still_wait_with_it(workshop: Workshop) -> None:
    """They learn that it is lost, and begin anew; closed memory would look like a fault of the candidate."""
    device = workshop.machine.device("cpu")
    async with workshop.problems.prepared(SCALE_ADD, device) as waits:
        (await waits.baseline("eager")).close()
        async with workshop.problems.prepared(SCALE_ADD, device) as anew:
            assert anew is not waits and not anew.broken
            assert waits.arguments.fd >= 0
    assert waits.arguments.fd < 0
    async with workshop.problems.prepared(SCALE_ADD, device) as kept:
        assert kept is anew


@pytest.mark.asyncio(loop_scope="session")
async def test_who_waits_for_another_problem_to_be_prepared_hears_that_it_is_ahead(workshop: Workshop) -> None:
    """Whoever pays for minutes does not pay for those in which another's inputs never end."""
    endless, heard = edit(SCALE_ADD, "def get_inputs():", "def get_inputs():\n    while True: pass"), asyncio.Event()
    device, told = workshop.machine.device("cpu"), list[tuple[str, int | None]]()

    async def hear(message: str, *, ahead: int | None = None) -> None:
        told.append((message, ahead))
        heard.set()

    async def prepare(problem: str) -> None:
        async with workshop.problems.prepared(problem, device, fresh=True, progress=hear):
            pass

    first = asyncio.create_task(prepare(endless))
    await heard.wait()
    heard.clear()
    second = asyncio.create_task(prepare(SCALE_ADD))
    await heard.wait()
    assert told[-1] == ("queued behind 1", 1)
    first.cancel()
    await asyncio.wait({first})
    await second
    assert told[-1] == ("preparing: inputs, expected values", None)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("parameters", "kept"), [(1 << 20, True), (2 << 30, False)])
async def test_gigabytes_of_parameters_make_room_for_the_next_problem(
    workshop: Workshop, parameters: int, kept: bool
) -> None:
    device, other = workshop.machine.device("cpu"), edit(SCALE_ADD, "return [1.5]", "return [2.5]")
    async with workshop.problems.prepared(SCALE_ADD, device) as first:
        first.drawn.memory = Memory(host_bytes=0, device_bytes=parameters)  # as a model on a GPU says
    async with workshop.problems.prepared(other, device):
        assert (first.arguments.fd >= 0) is kept


@pytest.mark.asyncio(loop_scope="session")
async def test_a_cancelled_build_takes_nothing_from_another_of_the_same_source(workshop: Workshop) -> None:
    device = workshop.machine.device("cpu")
    begun = asyncio.Event()

    async def told(_: str) -> None:
        begun.set()

    def building() -> asyncio.Task[Build | BuildFault]:
        return asyncio.create_task(workshop.builds.get(device, HONEST, None, 60.0, told))

    one = building()
    await begun.wait()
    other = building()
    one.cancel()
    await asyncio.wait([one])
    built = await other
    await device.fork_server.cleared()
    assert isinstance(built, Build)
    assert Path(built.libraries[0]["path"]).exists()


@pytest.mark.asyncio(loop_scope="session")
async def test_a_library_that_no_build_made_is_none(workshop: Workshop) -> None:
    """The candidate's code runs in the build's process, and can say anything there."""
    lie = """
import sys
frame = sys._getframe()
while frame:
    if isinstance(made := getattr(frame.f_locals.get("self"), "_built", None), list):
        made.append({"kind": "tvm", "key": "k", "name": "n", "path": "/dev/zero"})
    frame = frame.f_back
"""
    assert (result := await evaluate(workshop, asked(workshop, QUICK + lie, ""), quiet)).status == "build_error"
    assert "nonsense" in result.log


@pytest.mark.asyncio(loop_scope="session")
async def test_a_call_that_is_given_up_is_no_fault_of_the_problem(workshop: Workshop) -> None:
    tries = []

    async def work() -> int:
        async with workshop.problems.prepared(SCALE_ADD, workshop.machine.device("cpu")) as prepared:
            tries.append(prepared)
            if len(tries) == 1:
                given_up = asyncio.create_task(prepared.eager.ask(verbs.Peaks()))
                await asyncio.sleep(0)
                given_up.cancel()
                await asyncio.wait({given_up})
            async with prepared.present(prepared.drawn) as drawn:
                return (await trusted(prepared.eager, verbs.MeasureCall(drawn.inputs.spec), [drawn.inputs]))["outputs"]

    assert await until_kept(work) > 0
    assert len(tries) == 2 and tries[0] is not tries[1]


@pytest.mark.long
@pytest.mark.asyncio(loop_scope="session")
async def test_a_mode_is_timed_although_a_call_beside_it_was_given_up(warm: Workshop) -> None:
    """That takes the reference's process along; that the mode's own ends too is not to hide it."""
    device, problem = warm.machine.device("cpu"), "# given up beside\n" + SCALE_ADD
    async with warm.problems.prepared(problem, device) as shared:

        async def give_up_beside(message: str, *, ahead: int | None = None) -> None:
            if message == "first call: compile" and not shared.eager.closed:
                asked = asyncio.create_task(shared.eager.ask(verbs.Features()))
                await asyncio.sleep(0)  # until it is under way
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)

        told, _, _ = await describe(warm, problem, "cpu", ("eager", "compile"), give_up_beside)
        assert shared.eager.abandoned and shared.broken
    assert [row.name for row in told.baselines] == ["eager", "compile"]
