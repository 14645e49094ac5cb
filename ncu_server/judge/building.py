"""Building a candidate for a problem: by its import, and where that does not do by its constructor and calls."""

from __future__ import annotations

from contextlib import AsyncExitStack

from ncu_server.compiler.builds import Build, BuildFault
from ncu_server.judge.problem import PreparedProblem
from ncu_server.judge.problems import Workshop
from ncu_server.machine.device import Device
from ncu_server.machine.lease import Progress
from ncu_server.targets import TARGETS


async def build_for(
    stack: AsyncExitStack,
    workshop: Workshop,
    device: Device,
    source: str,
    problem: str,
    timeout_s: float,
    progress: Progress,
) -> Build | BuildFault:
    """A candidate's build for a problem, which is prepared until `stack` ends where it is needed. Raises Refusal."""
    if not device.target.warms_up:
        built = workshop.builds.called(device, source, problem) or await workshop.builds.get(
            device, source, None, timeout_s, progress
        )
        if not lacks_libraries(built) or device.target.name not in TARGETS:  # an imagined device calls nothing
            return built
    prepared = await stack.enter_async_context(workshop.problems.prepared(problem, device, progress=progress))
    return await build_by_calls(workshop, prepared, source, timeout_s, progress)


def lacks_libraries(built: Build | BuildFault) -> bool:
    """Whether an import was all that was tried, and made no library."""
    return isinstance(built, Build) and not built.called and not built.libraries


async def build_by_calls(
    workshop: Workshop, prepared: PreparedProblem, source: str, timeout_s: float, progress: Progress
) -> Build | BuildFault:
    """The build of a candidate that compiles in its constructor or in a call. It is made in the builder's sandbox, on
    inputs that decide nothing, so that whoever judges it finds its libraries and no compiler. Raises Refusal."""
    if (warm_up := prepared.warm_up) is None:
        async with prepared.device.lease.alone(progress):
            warm_up = await prepared.rehearsal()
    return await workshop.builds.get(prepared.device, source, warm_up, timeout_s, progress)
