"""One candidate before the judge: who is to blame for what its process does, and the comparison of what it gives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ncu_server.build.builds import Build
from ncu_server.judge import replies
from ncu_server.judge.input_set import Case
from ncu_server.judge.problem import Session
from ncu_server.judge.trusted import ours
from ncu_server.rules import comparison
from ncu_server.sandbox.forkserver import Child, ChildError, ChildFault, ChildTimeout
from ncu_server.sandbox.shared_memory import Shared
from ncu_server.wire import evaluation


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be judged; `fresh` asks for new secret inputs in new processes, strict rules for no library work."""

    candidate: str
    problem: str
    target: str
    baselines: tuple[str, ...]
    fresh: bool
    timeout_s: float
    rules: evaluation.Rules = "default"


class Objection(Exception):  # noqa: N818
    """A fault of the candidate; it leaves this module as a result."""

    def __init__(
        self,
        status: evaluation.Status,
        log: str,
        error: float | None = None,
        facts: dict[str, str | float] | None = None,
    ) -> None:
        super().__init__(log)
        self.status, self.log, self.error, self.facts = status, log, error, facts or {}


@dataclass(slots=True)
class Trial:
    """One candidate before the judge: its child beside what it is held against."""

    session: Session
    child: Child
    request: Request
    built: Build
    stages: evaluation.Stages
    notes: list[str] = field(default_factory=list)

    async def ask(self, verb: str, fds: list[int], **arguments: Any) -> Any:
        return await self.child.ask(verb, fds, self.request.timeout_s, **arguments)


def exhausted(error: ChildError) -> bool:
    """Whether a process found no room on the device: torch's exception, by its class."""
    return isinstance(error, ChildFault) and error.kind == "OutOfMemoryError"


@contextlib.contextmanager
def blamed(trial: Trial, where: str) -> Iterator[None]:
    """Inside, what the candidate's child does wrong is an objection; the same of a process of ours is not."""
    try:
        yield
    except ChildError as error:
        if error.child is not trial.child:
            if exhausted(error):
                words = f"the reference had enough memory before the candidate came, and not beside it: {error}"
                raise Objection("run_error", f"{where}: {words}") from error
            raise ours(error) from error
        if isinstance(error, ChildTimeout):
            raise Objection("timeout", f"{where}: {error}") from error
        if isinstance(error, ChildFault) and error.kind == "UnacceptableOutput":
            raise Objection("wrong", error.text) from error
        words = error.trace if isinstance(error, ChildFault) else str(error)
        raise Objection("run_error", f"{where}: {words}") from error
    except replies.Malformed as malformed:
        raise Objection("run_error", f"{where}: the candidate's process answered nonsense: {malformed}") from malformed


async def opened(trial: Trial, child: Child | None = None) -> None:
    """Load the candidate in its child (or in another one), build `ModelNew`, and where a first call compiles let it
    make that call."""
    session, request, practice = trial.session, trial.request, trial.session.practice
    child = child or trial.child
    with blamed(trial, "in the constructor"):
        await child.ask(
            "open",
            [session.arguments.fd],
            request.timeout_s,
            source=request.candidate,
            device=session.target.device,
            parameter_seed=session.parameter_seed,
            arguments=session.arguments.spec,
            libraries=trial.built.libraries,
            kernels=trial.built.kernels if practice else None,
        )
    if practice:
        with blamed(trial, "in a first call"):
            await child.ask("practise", practice.fds[1:], request.timeout_s, inputs=practice.wire()["inputs"])


async def compared(
    trial: Trial, case: Case, want: Shared, got: Shared, spec: dict[str, Any], bound: float, where: str
) -> float:
    tensors = case.tensors[: len(want.spec["tensors"])]
    if fault := comparison.structure_fault(want.spec, tensors, spec):
        raise Objection("wrong", f"{where}: {fault}")
    replies.held(spec, got.freeze())
    judge = await trial.session.judge()
    units = case.units[: len(tensors)]
    results = await judge.ask("compare", [want.fd, got.fd], expected=want.spec, got=spec, units=units, bound=bound)
    error = comparison.largest(results)
    if fault := comparison.value_fault(case.names[: len(tensors)], results, bound):
        raise Objection("wrong", f"{where}: {fault}", error)
    return error
