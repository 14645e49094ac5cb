"""The front door: `KernelAgent` wires settings, journal, server, library and proposer to the search, no more."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.delivery import BEST, deliver, write
from kernel_agent.delivery.best_kernel import Kernel
from kernel_agent.errors import THEIRS, BudgetSpent, KernelAgentError, UsageError
from kernel_agent.problem.from_python import source_of
from kernel_agent.problem.from_source import InitInputs, Shapes, load_problem
from kernel_agent.prompts.advice import rules
from kernel_agent.proposers.seeded import Seeded
from kernel_agent.run.devices import DeviceLog
from kernel_agent.run.events import Charged, Notice, Observer, RunOpened, RunStarted, silent
from kernel_agent.run.journal import Journal
from kernel_agent.run.occupancy import DeviceTime
from kernel_agent.run.results import results
from kernel_agent.run.spending import budget_of, spent
from kernel_agent.run.types import Description, Problem
from kernel_agent.settings import Settings, load_settings, provider_of, resumed_settings
from kernel_agent.targets import USUAL
from kernel_agent.text import line
from rag import LibraryError

if TYPE_CHECKING:
    from kernel_agent.interfaces import Pool, Proposer, Stage
    from kernel_agent.knowledge.library import IndexedKnowledge
    from kernel_agent.llm.model import Model
    from kernel_agent.proposers.templates.proposer import Templates
    from kernel_agent.run.budget import Budget, Charge
    from kernel_agent.run.regions import Regions
    from kernel_agent.run.tree import Run


@dataclass(frozen=True, slots=True)
class RunParts:
    """What one run has open: its model (None where templates propose), who measures, and its own budget; `before` is
    what the pool's devices had done when it came."""

    model: Model | None
    pool: Pool
    budget: Budget
    before: tuple[DeviceTime, ...] = ()


class KernelAgent:
    """Turns PyTorch code into a kernel that is checked, measured and, where one is found, faster.

    An argument left None takes its value from the environment or `.env`, else the default of the setting of its name
    (branching_factor 8, num_rounds 3, selection_percentage 0.25, implementations_per_idea 2); any other setting may
    be given by name too. `observe` is called with every event. `pool` is the setting of that name, or one that is open
    already, as `library` may be; else each run opens what its settings say. Raises UsageError for a setting that cannot
    be used.
    """

    def __init__(
        self,
        openai_api_key: str | None = None,
        mcp_server_path: str | None = None,
        branching_factor: int | None = None,
        num_rounds: int | None = None,
        selection_percentage: float | None = None,
        implementations_per_idea: int | None = None,
        model_name: str | None = None,
        target: str | None = None,
        *,
        observe: Observer = silent,
        pool: Pool | str | None = None,
        library: IndexedKnowledge | None = None,
        **settings: Any,
    ) -> None:
        named = {
            "openai_api_key": openai_api_key,
            "mcp_server_path": mcp_server_path,
            "branching_factor": branching_factor,
            "num_rounds": num_rounds,
            "selection_percentage": selection_percentage,
            "implementations_per_idea": implementations_per_idea,
            "model_name": model_name,
            "target": target,
            "pool": pool if isinstance(pool, str) else None,
        }
        self._given = {name: value for name, value in (named | settings).items() if value is not None}
        self.settings = load_settings(**self._given)
        rules(self.settings.prompt_rules)
        self._observe = observe
        self._pool = None if isinstance(pool, str) else pool
        self._library = library

    async def generate_kernel(
        self,
        code: Any,
        input_shapes: Shapes | Sequence[Shapes] | None = None,
        *,
        inputs: Any = None,
        name: str | None = None,
        init_inputs: InitInputs | None = None,
        helpers: Sequence[Path | str] = (),
        run_directory: Path | str | None = None,
    ) -> tuple[str, dict[str, Any]]:
        """The best kernel's source and the results (see `results`); `results["kernel"]` is the kernel to call.

        `code` is PyTorch source (text, or a path to it) in KernelBench's form, or one torch.nn.Module in any of these
        forms: source, a class, an instance, a function whose source can be read. Beside the latter stand `input_shapes`
        or example `inputs` (and `init_inputs`, the constructor's arguments); a dict of either goes by keyword. Files
        that the source imports are its `helpers`. All is kept in `run_directory`, by default a new one in `runs_dir`.
        Where nothing beats the original, it comes back, with status no_improvement.
        Raises the exceptions of kernel_agent.errors; a run that was stopped goes on with `resume`.
        """
        settings, fits = self._played()
        settings = settings.model_copy(update={"provider": provider_of(settings)})  # whatever keys there are later
        problem_source = source_of(code, name, inputs, init_inputs, helpers)
        problem = fits(
            load_problem(
                problem_source.code,
                problem_source.name,
                settings.target or "",
                input_shapes,
                problem_source.init_inputs,
            )
        )
        new = _new_directory(settings.runs_dir, problem.name) if run_directory is None else _path(run_directory)
        with Journal.create(new) as journal:
            async with self._opened(journal, settings) as parts:
                if not problem.target:
                    problem = replace(problem, target=await found_target(parts.pool))
                journal.begin(problem, settings)
                self._observe(RunOpened(journal.directory))
                with _recorded(journal, settings):
                    return await self._run(journal, settings, parts)

    def _played(self) -> tuple[Settings, Callable[[Problem], Problem]]:
        """The settings of a new run, those of the cassette where it plays one, and a check of its problem."""
        if provider_of(self.settings) != "replay" or self.settings.cassette is None:
            return self.settings, lambda problem: problem
        from kernel_agent.llm import cassette

        found = cassette.read(self.settings.cassette)
        return load_settings(**(found.settings | self._given)), found.fitting

    async def resume(self, run_directory: Path | str) -> tuple[str, dict[str, Any]]:
        """Carry on a run that was stopped.

        Of its settings, those given to this agent's constructor are replaced, from now on; another provider leaves
        the address and the models of the one before behind. Raises UsageError where that would be its target.
        """
        with Journal.open(_path(run_directory)) as journal:
            self._observe(RunOpened(journal.directory))
            target = self._given.get("target", journal.problem.target)
            if target != journal.problem.target:
                raise UsageError(
                    f"The run in {journal.directory} is for {journal.problem.target} and stays so: "
                    f"start a new run for {target}."
                )
            settings, left = resumed_settings(journal.settings, self._given)
            if left:
                self._notice(f"of the provider before this one, {', '.join(left)} is left behind")
            async with self._opened(journal, settings) as parts:
                journal.settings = settings
                with _recorded(journal, settings):
                    return await self._run(journal, settings, parts)

    @asynccontextmanager
    async def _opened(self, journal: Journal, settings: Settings) -> AsyncIterator[RunParts]:
        from kernel_agent.bench.pool import open_pool
        from kernel_agent.interfaces import devices_of

        budget = budget_of(journal, settings)
        keep = budget.keep

        def charged(charge: Charge) -> None:
            keep(charge)
            self._observe(Charged(charge))

        budget.keep = charged
        async with AsyncExitStack() as stack:
            model = None
            if (provider := provider_of(settings)) != "templates":
                from kernel_agent.llm.open_model import open_model

                opened = open_model(provider, settings, journal, journal.directory, self._notice, budget)
                model = await stack.enter_async_context(opened)
            pool = self._pool
            if pool is None:
                pool = await stack.enter_async_context(open_pool(settings, journal.directory, self._notice))
            yield RunParts(model, pool, budget, devices_of(pool))

    async def _run(self, journal: Journal, settings: Settings, parts: RunParts) -> tuple[str, dict[str, Any]]:
        from kernel_agent.interfaces import devices_of
        from kernel_agent.knowledge.lifecycle import remembered

        run = journal.load() if journal.described else None
        if run is None:
            self._notice("tracing the problem and timing it")
        description = run.description if run else await _described(journal.problem, parts, ["eager"])
        seeds, regions = _cut(description, parts.model, settings)
        if run is None:
            journal.describe(replace(description, regions=regions))
            run = journal.load()
        run.settings = settings
        run.description = replace(run.description, regions=regions or run.description.regions)
        proposer = _proposer(seeds, parts.model, settings)
        async with self._opened_library(settings) as library:
            provider = provider_of(settings)
            mode = library.mode
            started = RunStarted(
                run.problem,
                run.description,
                journal.directory,
                provider,
                mode,
                settings.num_rounds,
                len(run.evaluations),
                settings.num_rounds * settings.branching_factor * settings.implementations_per_idea,
                parts.budget.limits,
            )
            self._observe(started)
            log = DeviceLog(run, journal, partial(devices_of, parts.pool), self._observe, parts.before)
            async with remembered(run, journal, settings, provider, library.library, self._notice):
                try:
                    stopped = await self._searched(run, journal, proposer, parts, library, log.record)
                finally:
                    log.record()
                found = results(run, journal.directory) | {
                    "retrieval": library.mode,
                    "stopped": stopped,
                    "spent": spent(run, journal),
                }
                kernel = deliver(run, journal.directory, settings.bind)
                write(journal.directory / "results.json", json.dumps(found, indent=2) + "\n")
                if settings.report:
                    self._report(journal.directory, library)
        return kernel, found | {"kernel": Kernel(journal.directory / BEST)}

    async def _searched(
        self,
        run: Run,
        journal: Journal,
        proposer: Proposer | None,
        parts: RunParts,
        library: IndexedKnowledge,
        on_round: Callable[[], None],
    ) -> str | None:
        """Play the search; why it ended before its last round. Without a proposer nothing is timed or tried."""
        from kernel_agent.search.loop import Search

        if proposer is None:
            assert run.description.regions is not None, "templates alone have nothing to propose"
            return run.description.regions.reason
        seeded = isinstance(proposer, Seeded)
        bench = parts.pool.like(run.description.device)
        search = Search(run, journal, proposer, bench, library, self._observe, parts.budget, seeded, on_round)
        await search.play()
        return search.stopped

    @asynccontextmanager
    async def _opened_library(self, settings: Settings) -> AsyncIterator[IndexedKnowledge]:
        if self._library is not None:
            yield self._library
            return
        from kernel_agent.knowledge.library import open_library

        async with open_library(settings.retrieval, self._notice) as library:
            yield library

    def _report(self, directory: Path, library: IndexedKnowledge) -> None:
        """Write the run's page. The run is over and whole without it: whatever fails here is a notice."""
        try:
            from kernel_agent.page.report import written

            written(directory, library.library.passages, ended=True)
        except (KernelAgentError, LibraryError, *THEIRS) as fault:
            self._notice(f"report.html is not written: {line(str(fault)) or type(fault).__name__}")

    def _notice(self, message: str) -> None:
        self._observe(Notice(message))


async def found_target(pool: Pool) -> str:
    """The target of a run that names none, by what the servers see; see USUAL."""
    available = await pool.available()
    return next((name for name in USUAL if name in available), USUAL[-1])


def _cut(description: Description, model: Model | None, settings: Settings) -> tuple[Templates | None, Regions | None]:
    """The templates of the problem where they are asked, and how they cut it; None where they have no kernel."""
    if model is not None and not settings.seeds:
        return None, None
    from kernel_agent.proposers.templates.proposer import cut

    return cut(description)


def _proposer(templates: Templates | None, model: Model | None, settings: Settings) -> Proposer | None:
    """Templates where there is no model; with one, templates only seed its search. None where there is neither."""
    if model is None:
        return templates
    from kernel_agent.proposers.model_proposer import ModelProposer

    thinker = ModelProposer(model, settings.helper_model is not None, settings.escalation_model is not None)
    return Seeded(templates, thinker) if templates else thinker


async def _described(problem: Problem, parts: RunParts, baselines: Sequence[str] | None = None) -> Description:
    """Raises BudgetSpent with what the server was at where the minutes are over first."""
    at = "starting"
    with parts.budget.clock.work() as waits:

        def on_progress(stage: Stage) -> None:
            nonlocal at
            at = stage.message
            waits(stage.ahead is not None)

        try:
            return await parts.budget.within(parts.pool.describe(problem, on_progress, baselines))
        except BudgetSpent:
            raise BudgetSpent(
                f"The budget is spent: the {parts.budget.limits.minutes:g} minutes are over, and the problem is still "
                f"being described ({at}). Raise --budget-minutes, or give FILE smaller sizes: a kernel found on those "
                "is judged on the full ones by `python -m kernel_agent evaluate`."
            ) from None


@contextmanager
def _recorded(journal: Journal, settings: Settings) -> Iterator[None]:
    """Writes the run's cassette, where one is wanted, however the run ends; at once too, so that a bad path shows."""
    if settings.record is None:
        yield
        return
    from kernel_agent.llm import cassette

    cassette.write(journal, settings.record)
    try:
        yield
    finally:
        cassette.write(journal, settings.record)


def _path(given: Path | str) -> Path:
    try:
        return Path(given)
    except TypeError:
        raise UsageError(f"A run's directory is a path, not {given!r}.") from None


def _new_directory(runs: Path, name: str) -> Path:
    plain = re.sub(r"\W+", "-", name).strip("-")[:80] or "kernel"
    stem = f"{plain}-{datetime.now():%Y%m%d-%H%M%S}"
    places = (runs / (stem if number == 1 else f"{stem}-{number}") for number in range(1, 1000))
    try:
        return next(place for place in places if not place.exists())
    except OSError as error:
        raise UsageError(f"The directory {runs} cannot be read ({error.strerror}).") from None
