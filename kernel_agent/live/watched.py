"""What is watched: the runs and suites of a folder, and what was last seen of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_agent.errors import KernelAgentError, UsageError
from kernel_agent.page.facts import facts, summary
from kernel_agent.page.seen import below, see, state
from kernel_agent.run.history import stamp
from kernel_agent.run.journal import FILE
from kernel_agent.suite import store
from kernel_agent.suite.facts import facts as suite_facts
from kernel_agent.suite.store import Suite
from kernel_agent.suite.types import State

Found = dict[str, Any]


@dataclass(slots=True)
class Watched:
    """One run, one suite, or those below a folder. What has not changed is not read again."""

    root: Path
    token: str
    _seen: dict[tuple[str, Path], tuple[object, Any]] = field(default_factory=dict)

    def suites(self) -> list[Path]:
        """The directories of the suites that are shown, the last changed first."""
        return list(below(self.root, store.FILE))

    def runs(self) -> list[Path]:
        """The directories of the runs that are shown beside the suites, the last changed first."""
        suites = set(self.suites())
        return [one for one in below(self.root, FILE) if not suites & {one, *one.parents}]

    def name(self, directory: Path) -> str:
        """What a run or a suite is called in addresses: its path below the root."""
        return directory.relative_to(self.root).as_posix()

    def suite(self, name: str) -> Path:
        """The suite of a name. Raises UsageError where none of those shown has it."""
        return self._named(name, self.suites(), "suite")

    def run(self, name: str) -> Path:
        """The run of a name, alone or of a suite. Raises UsageError where none of those shown has it."""
        of_suites = (run for suite in self.suites() for run in self._runs_of(suite))
        return self._named(name, (*self.runs(), *of_suites), "run")

    def _named(self, name: str, among: list[Path] | tuple[Path, ...], what: str) -> Path:
        for directory in among:
            if self.name(directory) == name:
                return directory
        raise UsageError(f"There is no {what} {name} in {self.root}.")

    def facts(self, directory: Path) -> Found:
        """A run's facts as they stand now; `suite` names the one that it is part of."""
        suite = next((one for one in self.suites() if one in directory.parents), None)
        found: Found = self._known("facts", directory, mark(directory), lambda: facts(see(directory)))
        return found | {"suite": self.name(suite) if suite else None}

    def suite_facts(self, directory: Path) -> Found:
        """A suite's facts as they stand now; a row's `run` is what its run is called in addresses."""
        found: Found = self._known("facts", directory, self.mark(directory), lambda: suite_facts(directory))
        runs = {one.relative_to(directory).as_posix() for one in self._runs_of(directory)}
        rows = [
            row | {"run": self.name(directory / row["directory"]) if row["directory"] in runs else None}
            for row in found["rows"]
        ]
        return found | {"rows": rows}

    def rows(self) -> Found:
        """What the list says: the suites with the runs that are under way in them, and the runs beside them."""
        return {
            "suites": [self._suite_row(directory) for directory in self.suites()],
            "runs": [self._row(directory) for directory in self.runs()],
        }

    def marks(self) -> object:
        """What changes when there is something new in the list."""
        return [self.mark(one) for one in self.suites()], [mark(one) for one in self.runs()]

    def mark(self, suite: Path) -> object:
        """What changes when there is something new to show of a suite."""
        try:
            under_way = [mark(run) for run in self._under_way(suite)]
        except KernelAgentError:
            under_way = []
        return stamp(suite, store.FILE), state(suite), under_way

    def _row(self, directory: Path) -> Found:
        """What the list says of a run; of one that cannot be read, why."""
        here = {"run": self.name(directory), "state": state(directory)}
        try:
            known: Found = self._known("row", directory, mark(directory), lambda: summary(see(directory)))
        except KernelAgentError as fault:
            return here | {"fault": str(fault)}
        return here | known

    def _suite_row(self, directory: Path) -> Found:
        try:
            known = self.suite_facts(directory)
            runs = [self._row(run) for run in self._under_way(directory)]
        except KernelAgentError as fault:
            return {"suite": self.name(directory), "state": state(directory), "fault": str(fault)}
        return {name: value for name, value in known.items() if name != "rows"} | {
            "suite": self.name(directory),
            "runs": runs,
        }

    def _runs_of(self, directory: Path) -> Iterator[Path]:
        """The runs of a suite that have begun."""
        try:
            suite = self._recorded(directory)
        except KernelAgentError:
            return
        yield from (run for one in suite.problems if ((run := one.directory(directory)) / FILE).is_file())

    def _under_way(self, directory: Path) -> list[Path]:
        suite = self._recorded(directory)
        going = (one for one in suite.problems if suite.outcome(one).state is State.RUNNING)
        return [run for one in going if ((run := one.directory(directory)) / FILE).is_file()]

    def _recorded(self, directory: Path) -> Suite:
        found: Suite = self._known("suite", directory, stamp(directory, store.FILE), lambda: store.read(directory))
        return found

    def _known(self, what: str, key: Path, now: object, make: Callable[[], Any]) -> Any:
        if (what, key) not in self._seen or self._seen[what, key][0] != now:
            self._seen[what, key] = now, make()
        return self._seen[what, key][1]


def mark(directory: Path) -> object:
    """What changes when there is something new to show of a run."""
    return (*stamp(directory), state(directory))
