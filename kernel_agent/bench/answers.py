"""What the measuring server's tools answer, as values: every field that is read of an answer stands here.

`profiles` has those of the profiler, `environment` those of `check_environment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, Field, ValidationError

from kernel_agent.bench.profiles import ProfileAnswer
from kernel_agent.errors import ServerError
from kernel_agent.run.measured import Launch
from kernel_agent.run.module_checks import ModuleCheck
from kernel_agent.run.precision import ErrorUnit, Way
from kernel_agent.run.rows import reader
from kernel_agent.run.types import JSON, Baseline, Description, Device, Diagnostic, Evaluation, Status, Timing, Versus

T = TypeVar("T")
BOUND = 64.0
"""Units of error that are allowed where an answer does not say."""


@dataclass(frozen=True, slots=True)
class ShapeAnswer:
    """The candidate on the inputs of one of the problem's functions, where it has several."""

    inputs: str
    timing: Timing
    versus: tuple[Versus, ...]


@dataclass(frozen=True, slots=True)
class EvaluateAnswer:
    """The judge's whole answer on one candidate. `precision` says of its `arithmetic` in a sentence. `stages` are
    seconds by name; times are microseconds."""

    status: Status
    log: str = ""
    timing: Timing | None = None
    versus: tuple[Versus, ...] = ()
    shapes: tuple[ShapeAnswer, ...] = ()
    limit_us: float | None = None
    error: float | None = None
    allowed: float | None = None
    held: str = ""
    arithmetic: str | None = None
    precision: str = ""
    provenance: JSON = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    warnings: Annotated[tuple[str, ...], Field(validation_alias=AliasChoices("warnings", "leads"))] = ()
    """`leads` is what servers of before call them."""
    notes: tuple[str, ...] = ()
    stages: JSON = field(default_factory=dict)

    def evaluation(self, with_warnings: bool) -> Evaluation:
        """What a run keeps of it: the remarks, warnings among them where asked for, follow the log. Of values that are
        too far off it is said which arithmetic they are worthy of: too coarse a rounding is no other mistake.

        Raises ServerError where it passed without a time, or without one of eager PyTorch's.
        """
        remarks = (*self.notes, *(self.warnings if with_warnings else ()))
        off = self.arithmetic is not None and (self.error or 0.0) > (self.allowed or BOUND)
        log = "\n".join([self.log, *([self.precision] if off else []), *remarks]).strip()
        errors = tuple(said for said in self.diagnostics if said.severity == "error")
        try:
            found = Evaluation(
                self.status,
                log,
                self.timing,
                self.versus,
                self.error,
                self.provenance,
                self.stages,
                errors,
                self.allowed or BOUND,
                self.arithmetic,
                self.held,
            )
        except ValueError as fault:
            raise malformed("evaluate_kernel", fault) from None
        if found.status is Status.PASSED and found.speedup is None:
            raise ServerError("The measuring server passed a kernel without timing it against eager PyTorch.")
        return found


@dataclass(frozen=True, slots=True)
class BaselineAnswer:
    """PyTorch's own time; `kernels` is what torch.compile launches, in order, and `launches` that with times."""

    name: str
    timing: Timing
    kernels: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()
    launches_left_out: Launch | None = None

    @property
    def kept(self) -> Baseline:
        """What a run keeps of it."""
        rest = (self.launches_left_out,) if self.launches_left_out else ()
        return Baseline(self.name, self.timing, self.kernels, launches=(*self.launches, *rest))


@dataclass(frozen=True, slots=True)
class DescribeAnswer:
    """What a problem is and costs. The graph and the contract are resources, read by their addresses."""

    device: Device
    graph_uri: str | None
    graph_error: str | None
    flops: float
    bytes: float
    limit_us: float | None
    baselines: tuple[BaselineAnswer, ...] = ()
    notes: tuple[str, ...] = ()
    contract_uri: str | None = None
    limit_rate: str | None = None
    arithmetic: str | None = None
    unmeasured: tuple[str, ...] = ()
    untimed: Mapping[str, str] = field(default_factory=dict)
    precision: tuple[ErrorUnit, ...] = ()
    ways: tuple[Way, ...] = ()
    moving_us: float | None = None

    def description(self, graph: JSON | None, contract: JSON | None) -> Description:
        """What a run keeps of it. Raises ServerError where eager PyTorch was not timed."""
        if not any(row.name == "eager" for row in self.baselines):
            raise ServerError("The measuring server did not time eager PyTorch, which everything is compared with.")
        return Description(
            device=self.device,
            graph=graph,
            graph_error=self.graph_error,
            flops=self.flops,
            bytes=self.bytes,
            limit_us=self.limit_us,
            baselines={row.name: row.timing for row in self.baselines},
            notes=self.notes,
            compiled=next((row.kernels for row in self.baselines if row.kernels), ()),
            launches={row.name: row.kept.launches for row in self.baselines if row.launches},
            contract=contract,
            limit_rate=self.limit_rate,
            arithmetic=self.arithmetic,
            unmeasured=self.unmeasured,
            precision=self.precision,
            ways=self.ways,
            moving_us=self.moving_us,
        )

    def compiled(self, names: Sequence[str]) -> tuple[Baseline, ...]:
        """What a run keeps of these modes of torch.compile; what is noted stands with the first."""
        rows = {row.name: row for row in self.baselines}
        lacking = {name: Baseline(name, None, why=self.untimed.get(name, "")) for name in names}
        found = [rows[name].kept if name in rows else lacking[name] for name in names]
        return (replace(found[0], notes=self.notes), *found[1:])


@dataclass(frozen=True, slots=True)
class VerifyAnswer:
    """What was tried of a file by itself."""

    checks: tuple[ModuleCheck, ...] = ()


@dataclass(frozen=True, slots=True)
class ProfileKernelAnswer:
    """A profile of each candidate, in the order in which they were asked for."""

    profiles: tuple[ProfileAnswer, ...] = ()


def parse(kind: type[T], answer: Mapping[str, Any]) -> T:
    """An answer as a value of ours. Raises ServerError where it is none."""
    try:
        return reader(kind).validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise malformed(kind.__name__.lower(), f"{place}: {first['msg']}") from None


def malformed(what: str, why: object) -> ServerError:
    """The fault of an answer that is not what it should be."""
    return ServerError(
        f"The measuring server's answer ({what}) cannot be understood ({why}): its version may not fit this one."
    )
