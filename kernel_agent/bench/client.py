"""The MCP client of the measuring server: started as a child over stdio, or reached by its address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import SecretStr

from kernel_agent.bench import profiles
from kernel_agent.bench.answers import (
    DescribeAnswer,
    EvaluateAnswer,
    ProfileKernelAnswer,
    VerifyAnswer,
    malformed,
    parse,
)
from kernel_agent.bench.connection import Connection
from kernel_agent.bench.environment import Environment
from kernel_agent.bench.occupancy import Occupancy
from kernel_agent.bench.transport import Endpoint
from kernel_agent.errors import Unavailable, Unprofiled, UsageError
from kernel_agent.interfaces import OnNotice, OnProgress, ignore
from kernel_agent.run.module_checks import ModuleCheck
from kernel_agent.run.occupancy import DeviceTime
from kernel_agent.run.types import Baseline, Description, Device, Evaluation, Problem, Profile

VERIFY_S = 600.0
"""Seconds that the server has to try a file by itself; torch.compile and a build with torch's headers are in it."""
BASELINES_S = 1800.0
"""Seconds that the server has to time modes of torch.compile; waits for the device are in it."""
PROFILED_AT_ONCE, PROFILE_S = 8, 300.0
"""Candidates that one call may hold, and seconds that the server has for a run of its profiler."""


class Line(Protocol):
    """A way to call a server's tools, however far it is; open between `__aenter__` and `__aexit__`. See Connection."""

    @property
    def is_lost(self) -> bool:
        """Whether no server will answer any more."""

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_progress: OnProgress = ignore,
        patience_s: float | None = None,
        whole: bool = False,
    ) -> dict[str, Any]:
        """A tool's structured answer."""

    async def resource(self, uri: str | None) -> Any:
        """The JSON of a resource; None where there is none."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


class BenchClient:
    """The server at `path`, used as an async context manager; see Connection.

    `timeout_s` is what building, checking and timing one kernel may take; `token` is for a server at an address.
    `occupancy` is what its device does.
    """

    def __init__(
        self,
        path: str,
        directory: Path,
        timeout_s: float = 120.0,
        on_notice: OnNotice = ignore,
        token: SecretStr | None = None,
    ) -> None:
        self._lead(Connection(Endpoint(path, token), directory, timeout_s, on_notice), timeout_s, None)

    @classmethod
    def over(cls, line: Line, timeout_s: float = 120.0, occupancy: Occupancy | None = None) -> Self:
        """The server that a line leads to."""
        client = cls.__new__(cls)
        client._lead(line, timeout_s, occupancy)
        return client

    def _lead(self, line: Line, timeout_s: float, occupancy: Occupancy | None) -> None:
        self._server, self._timeout_s = line, timeout_s
        self.occupancy = occupancy or Occupancy()

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self.occupancy.open(True)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.occupancy.open(False)
        await self._server.__aexit__(*_)

    @property
    def is_lost(self) -> bool:
        """Whether no server will answer any more."""
        return self._server.is_lost

    async def environment(self, probe_counters: bool = False) -> Environment:
        """What the server's machine can do; `probe_counters` also profiles a tiny kernel, which takes some seconds."""
        asked = {"probe_counters": True} if probe_counters else {}
        return parse(Environment, await self._server.call("check_environment", asked))

    async def machine(self) -> Environment:
        """The targets and GPUs of the server's machine alone, which takes no second."""
        try:
            return parse(Environment, await self._server.call("check_environment", {"brief": True}))
        except UsageError:  # a server of before
            return await self.environment()

    async def available(self) -> frozenset[str]:
        """The targets that the server can judge for."""
        return frozenset((await self.machine()).cards)

    def devices(self) -> tuple[DeviceTime, ...]:
        """What its device did since it was opened."""
        return (self.occupancy.read(),)

    def like(self, device: Device) -> Self:
        """The one server: what it measured in a run's earlier session, it measured where it stood then."""
        return self

    @property
    def width(self) -> int:
        """One: a server has its device alone."""
        return 1

    async def describe(
        self, problem: Problem, on_progress: OnProgress = ignore, baselines: Iterable[str] | None = None
    ) -> Description:
        """Trace the problem, count its work and time its baselines, by default all that the target has.

        Raises ProblemError where the problem itself is at fault, Unavailable where the target lacks something.
        """
        arguments: dict[str, Any] = {"problem": problem.source, "target": problem.target}
        if baselines is not None:
            arguments["baselines"] = list(baselines)
        answer = await self._call("describe_problem", arguments, on_progress, patience_s=300)
        found = parse(DescribeAnswer, answer)
        device = found.device
        self.occupancy.seen_on(device.name, device.uuid, device.host)
        return found.description(
            await self._server.resource(found.graph_uri), await self._server.resource(found.contract_uri)
        )

    async def baselines(
        self, problem: Problem, names: Sequence[str], on_progress: OnProgress = ignore
    ) -> tuple[Baseline, ...]:
        """Time the original in these modes of torch.compile, in one sitting."""
        asked = {"problem": problem.source, "target": problem.target, "baselines": list(names)}
        answer = await self._call("describe_problem", asked | {"timeout_s": BASELINES_S}, on_progress, BASELINES_S)
        return parse(DescribeAnswer, answer).compiled(names)

    async def evaluate(
        self, problem: Problem, source: str, on_progress: OnProgress = ignore, heeds_compiler: bool = False
    ) -> Evaluation:
        """Judge a candidate: build it, check it, time it against eager PyTorch."""
        return await self._judge(problem, source, ["eager"], False, on_progress, heeds_compiler)

    async def confirm(
        self, problem: Problem, source: str, baselines: Iterable[str], on_progress: OnProgress = ignore
    ) -> Evaluation:
        """Judge it again with new secret inputs in fresh processes, against the baselines."""
        return await self._judge(problem, source, list(baselines), True, on_progress)

    async def verdict(
        self, problem: Problem, source: str, baselines: Iterable[str], rules: str, on_progress: OnProgress = ignore
    ) -> dict[str, Any]:
        """The server's whole answer on one candidate, as it came; `rules` are `default` or `strict`."""
        return await self._answer(problem, source, on_progress, baselines=list(baselines), rules=rules)

    async def verify(self, problem: Problem, source: str, on_progress: OnProgress = ignore) -> tuple[ModuleCheck, ...]:
        """Try a file by itself: whether it builds, agrees with the original, and works as a module has to."""
        asked = {"source": source, "problem": problem.source, "target": problem.target, "timeout_s": VERIFY_S}
        answer = await self._call("verify_module", asked, on_progress, VERIFY_S)
        return parse(VerifyAnswer, answer).checks

    async def profile(
        self, problem: Problem, sources: Sequence[str], on_progress: OnProgress = ignore
    ) -> list[Profile]:
        """What the profiler says of each candidate, by as few starts of it as can be.

        Raises Unprofiled where the server has none for this target, or failed in it.
        """
        found: list[Profile] = []
        for start in range(0, len(sources), PROFILED_AT_ONCE):
            found += await self._profiled(problem, list(sources[start : start + PROFILED_AT_ONCE]), on_progress)
        return found

    async def _profiled(self, problem: Problem, sources: list[str], on_progress: OnProgress) -> list[Profile]:
        asked = {"candidates": sources, "problem": problem.source, "target": problem.target, "timeout_s": PROFILE_S}
        try:
            patience_s = PROFILE_S * (len(sources) + 1)
            answer = await self._call("profile_kernel", asked, on_progress, patience_s, whole=True)
            rows = parse(ProfileKernelAnswer, answer).profiles
            if len(rows) != len(sources):
                raise malformed("profile_kernel", f"{len(rows)} profiles of {len(sources)} candidates")
            return [profiles.profile(row) for row in rows]
        except Unavailable as fault:
            if self._server.is_lost:
                raise
            raise Unprofiled(str(fault)) from None  # it lives, and measures on

    async def _judge(
        self,
        problem: Problem,
        source: str,
        baselines: list[str],
        fresh: bool,
        on_progress: OnProgress,
        heeds_compiler: bool = False,
    ) -> Evaluation:
        more = {"heeds_compiler": True} if heeds_compiler else {}
        answer = await self._answer(problem, source, on_progress, baselines=baselines, fresh=fresh, **more)
        found = parse(EvaluateAnswer, answer)
        return found.evaluation(with_warnings=not fresh)  # our own code in a delivered file is warned of

    async def _answer(
        self, problem: Problem, source: str, on_progress: OnProgress, **more: list[str] | str | bool
    ) -> dict[str, Any]:
        asked = {"candidate": source, "problem": problem.source, "target": problem.target, "timeout_s": self._timeout_s}
        return await self._call("evaluate_kernel", asked | more, on_progress)

    async def _call(
        self,
        tool: str,
        arguments: dict[str, Any],
        on_progress: OnProgress,
        patience_s: float | None = None,
        whole: bool = False,
    ) -> dict[str, Any]:
        with self.occupancy.call(on_progress) as hear:
            return await self._server.call(tool, arguments, hear, patience_s, whole)
