"""A run for people: a live table on a terminal, one line a trial elsewhere, and the final account."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kernel_agent import text
from kernel_agent.delivery import BEST
from kernel_agent.page.words import baselines, measured, ms, times
from kernel_agent.run import tree
from kernel_agent.run.events import (
    BaselineTimed,
    Charged,
    Confirmed,
    Confirming,
    Event,
    IdeaRecorded,
    NothingWritten,
    Notice,
    Profiled,
    Profiling,
    Progress,
    RoundStarted,
    RunStarted,
    Stopped,
    TrialJudged,
    TrialStarted,
)
from kernel_agent.run.regions import HELP
from kernel_agent.run.tree import Run
from kernel_agent.run.types import Evaluation, Idea, Profile, Status, Trial, baseline_title
from kernel_agent.targets import target_of

SHOWN, FINDINGS = 10, 3
"""Rows of the final table; the journal holds them all."""


WORDS = 400
"""Characters of a line that a profiler says; source text of a kernel is in it."""


def short(trial: Trial) -> str:
    """A trial's name on the screen."""
    return trial.id[:4] if trial.idea else "original"


def verdict_text(evaluation: Evaluation) -> str:
    """An evaluation in a few words: the time and speed-up, or the status and the first line of the log that matters."""
    if evaluation.timing is None:
        rows = [*map(str, evaluation.diagnostics), *evaluation.log.strip().splitlines()]
        first = text.line(next(iter(rows), ""), 100)
        return f"{evaluation.status}{': ' if first else ''}{first}"
    return f"{ms(evaluation.timing.median_us)} {evaluation.speedup or 0:.2f}x"


def line(event: Event) -> str | None:
    """The line that a log gets for an event, or None where it is not worth one."""
    match event:
        case Notice(message) | Stopped(message):
            return message
        case RunStarted():
            kept = f"; {event.kept} evaluations kept" if event.kept else ""
            return f"{_title(event)}; {baselines(event.description)}; in {event.directory}{kept}"
        case BaselineTimed(baseline):
            time = ms(baseline.timing.median_us) if baseline.timing else baseline.why or "is not timed"
            return f"{baseline_title(baseline.name)} {time}"
        case RoundStarted(round, parents):
            return f"round {round} from {', '.join(map(short, parents))}"
        case TrialJudged(idea, trial, evaluation) if not event.kept:
            again = " (same source as before)" if event.shared else ""
            return f"r{idea.round} {short(trial)} {_judged(idea, trial, evaluation)}{again}"
        case NothingWritten(idea, _, step, reason):
            return f"r{idea.round} no code{' for a repair' if step else ''}  {idea.title}: {reason}"
        case Profiled(trial, profile):
            return f"profiled {short(trial)}: {text.line(limits(profile, next(iter(profile.findings), profile.why)))}"
        case Confirming(trial):
            return f"confirming {short(trial)} with new inputs in fresh processes"
        case Confirmed(trial, evaluation, accepted):
            return f"{'confirmed' if accepted else 'not confirmed'} {short(trial)} {verdict_text(evaluation)}"
    return None


def _title(event: RunStarted) -> str:
    device = event.description.device
    threads = f", {device.threads} threads" if not target_of(device.target).on_gpu else ""
    return (
        f"{event.problem.name} on {device.target} ({device.name}{threads}); "
        f"proposer {event.proposer}; {event.retrieval_mode} retrieval"
    )


def _judged(idea: Idea, trial: Trial, evaluation: Evaluation) -> str:
    title = tree.own_title(idea, trial)
    if evaluation.timing is None:
        return f"{evaluation.status}  {title}{verdict_text(evaluation).removeprefix(evaluation.status)}"
    return f"{evaluation.status} {verdict_text(evaluation)}  {title}"


@dataclass(slots=True)
class Lines:
    """An observer that writes one line for each event worth one."""

    write: Callable[[str], None]

    def __call__(self, event: Event) -> None:
        if (row := line(event)) is not None:
            self.write(row)


@dataclass(slots=True)
class Screen:
    """An observer for a terminal: the round's ideas and what each attempt is doing, below the lines so far."""

    console: Console
    _live: Live = field(init=False)
    _run: RunStarted | None = None
    _stage: str = "starting"
    _ideas: dict[str, Idea] = field(default_factory=dict)
    _parents: dict[str, str] = field(default_factory=dict)
    _attempts: dict[str, dict[int, Text]] = field(default_factory=dict)
    _best: tuple[Trial, Idea, Evaluation] | None = None
    _began: float = field(default_factory=time.monotonic)
    _judged: int = 0
    _usd: float = 0.0
    _tokens: int = 0

    def __post_init__(self) -> None:
        self._live = Live(console=self.console, get_renderable=self.picture, transient=True, refresh_per_second=4)

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        match event:
            case RunStarted():
                self._run = event
            case RoundStarted(round, parents):
                rounds = self._run.rounds if self._run else round
                self._stage = f"round {round} of {rounds}: thinking"
                self._ideas, self._attempts = {}, {}
                self._parents = {trial.id: short(trial) for trial in parents}
            case IdeaRecorded(idea):
                self._stage = self._stage.removesuffix(": thinking")
                self._ideas[idea.id] = idea
            case TrialStarted(idea, attempt, step):
                self._attempt(idea.id, attempt, Text("repairing" if step else "writing", "yellow"))
            case Progress(trial, message) if trial.idea in self._ideas and "confirming" not in self._stage:
                self._attempt(trial.idea, trial.attempt, Text(message, "yellow"))
            case Charged(charge):
                self._usd += charge.dollars or 0.0
                self._tokens += charge.prompt_tokens + charge.reply_tokens
            case TrialJudged(idea, trial, evaluation):
                self._judged += not event.kept and not trial.step
                self._attempt(idea.id, trial.attempt, mark(evaluation))
                self._keep_best(idea, trial, evaluation)
            case NothingWritten(idea, attempt):
                self._attempt(idea.id, attempt, Text("no code", "red"))
            case Profiling(trials):
                self._stage = f"{self._stage.partition(':')[0]}: profiling {len(trials)}"
            case Confirming(trial):
                self._stage = f"confirming {short(trial)} with new inputs"
        row = line(event)
        if row and not isinstance(event, RoundStarted | Confirming):
            one_row = isinstance(event, TrialJudged)
            self.console.print(Text(row, _style(event)), no_wrap=one_row, overflow="ellipsis" if one_row else "fold")

    def _attempt(self, idea: str, attempt: int, shown: Text) -> None:
        self._attempts.setdefault(idea, {})[attempt] = shown

    def _keep_best(self, idea: Idea, trial: Trial, evaluation: Evaluation) -> None:
        if (evaluation.speedup or 0) > (self._best[2].speedup or 0 if self._best else 0):
            self._best = trial, idea, evaluation

    def _numbers(self) -> Iterator[str]:
        """The time so far and what is left by the share that is judged, the stages in flight, and the budget."""
        passed = time.monotonic() - self._began
        expected = max(0, self._run.expected - self._run.kept) if self._run else 0
        left = passed * (expected - self._judged) / self._judged if 0 < self._judged < expected else None
        yield _clock(passed) + (f", about {_clock(left)} left" if left is not None else "")
        busy = Counter(
            mark.plain.split()[0].rstrip(",")
            for row in self._attempts.values()
            for mark in row.values()
            if mark.style == "yellow"
        )
        if busy:
            yield ", ".join(f"{count} {stage}" for stage, count in busy.most_common(4))
        limits = self._run.limits if self._run else None
        if self._tokens:
            of = f" of ${limits.dollars:g}" if limits and limits.dollars else ""
            most = f" of {limits.tokens:,}" if limits and limits.tokens else ""
            yield f"${self._usd:.2f}{of}, {self._tokens:,}{most} tokens"
        if limits and limits.minutes:
            yield f"at most {limits.minutes:g} minutes"

    def picture(self) -> RenderableType:
        """The table as it stands; the display draws it four times a second."""
        head = Text.assemble((self._stage, "bold"), ("   " + "   ".join(self._numbers()), "dim"))
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ("idea", "from", "attempts"):
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=3 if name == "idea" else None)
        for idea in list(self._ideas.values()):
            attempts = self._attempts.get(idea.id, {})
            marks = Text("  ").join(attempts[number] for number in sorted(attempts)) if attempts else Text("-", "dim")
            table.add_row(idea.title, self._parents.get(idea.parent, idea.parent[:4]), marks)
        rows: list[RenderableType] = [Text(), head, *([table] if self._ideas else [])]
        if self._best:
            trial, idea, evaluation = self._best
            speed, title = times(evaluation.against("eager")), tree.own_title(idea, trial)
            rows.append(Text.assemble(("best so far ", "bold"), (speed, "bold green"), f"  {short(trial)}  {title}"))
        return Group(*rows)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"


def mark(evaluation: Evaluation) -> Text:
    """A verdict as one coloured word: the speed-up, or why there is none."""
    if evaluation.status is Status.PASSED:
        speedup = evaluation.speedup or 0
        return Text(f"{speedup:.2f}x", "green" if speedup > 1 else "default")
    return Text(evaluation.status.replace("_", " "), "red")


def _style(event: Event) -> str:
    match event:
        case NothingWritten():
            return "red"
        case TrialJudged(_, _, evaluation) if evaluation.status is not Status.PASSED:
            return "red"
        case TrialJudged(_, _, evaluation) if (evaluation.speedup or 0) <= 1:
            return "default"
        case TrialJudged() | Confirmed(accepted=True):
            return "green"
        case Notice():
            return "dim"
    return "default"


def account(run: Run, directory: Path, retrieval: str | None) -> Iterator[RenderableType]:
    """The final account: the ten best, what failed, how it was measured; the best kernel and what to do next last."""
    yield Text()
    yield ranking(run)
    trials = [trial for trial in run.trials.values() if trial.idea]
    judged = [trial for trial in trials if run.evaluation(trial)]
    failed = sum(run.speedup(trial) is None for trial in judged)
    waiting = f", {len(trials) - len(judged)} not judged" if len(judged) < len(trials) else ""
    hidden = max(0, len(tree.ranking(run)) - SHOWN)
    more = f", {hidden} slower kernels not shown" if hidden else ""
    unwritten = f", {len(run.unwritten)} times no code came" if run.unwritten else ""
    yield Text(f"{len(trials)} trials, {failed} did not pass{waiting}{unwritten}{more}", "dim")
    if steps := tree.progress(run):
        yield Text("best so far, round by round: " + ", ".join(f"{best:.2f}x" for best in steps), "dim")
    for row in _failures(run):
        yield Text(row, "dim")
    yield Text()
    for row in diagnosed(run):
        yield Text(row)
    for row in measured(run, retrieval):
        yield Text(row, "dim")
    yield Text()
    for row in _verdict(run, directory):
        yield Text(row, no_wrap=True)  # commands and paths, to be copied whole


def _failures(run: Run) -> Iterator[str]:
    """How many did not pass, by how, each with its first reason."""
    failed: dict[Status, list[tuple[Trial, Evaluation]]] = {}
    for trial in run.trials.values():
        evaluation = run.evaluation(trial)
        if evaluation is not None and evaluation.status is not Status.PASSED:
            failed.setdefault(evaluation.status, []).append((trial, evaluation))
    for status, all_ in sorted(failed.items(), key=lambda row: -len(row[1])):
        trial, evaluation = all_[0]
        why = verdict_text(evaluation).removeprefix(status).removeprefix(": ")
        yield f"{len(all_)} {status.replace('_', ' ')}{f', such as {short(trial)}: {why}' if why else ''}"


def ranking(run: Run) -> Table:
    """Rank, idea, speed-up with its interval, error, lineage, by first judgements; `confirmed` is the second's word."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("rank", "trial", "idea", "speed-up", "confirmed", "error", "lineage"):
        table.add_column(name, justify="right" if name in ("rank", "error") else "left", no_wrap=name == "speed-up")
    winner = tree.winner(run)
    for rank, trial in enumerate(tree.ranking(run)[:SHOWN], 1):
        second = run.confirmations.get(trial.source_id)
        sure = tree.stands(run, trial)
        evaluation = run.evaluation(trial)
        assert evaluation is not None, "only what was judged is ranked"
        table.add_row(
            str(rank),
            short(trial),
            tree.title(run, trial) if trial.idea else "PyTorch, eager",
            times(evaluation.against("eager")) if trial.idea else "1.00x",
            _confirmed(second, sure) + (", best" if trial == winner else "") if second else "",
            "" if evaluation.error is None else f"{evaluation.error:.3g}",
            " > ".join(map(short, tree.lineage(run, trial))),
            style="bold green" if trial.idea and trial == winner else "" if trial.idea else "dim",
        )
    return table


def _confirmed(second: Evaluation, sure: bool) -> str:
    said = times(second.against("eager")) if second.status is Status.PASSED else second.status.replace("_", " ")
    return said if sure else f"no: {said}"


def _verdict(run: Run, directory: Path) -> Iterator[str]:
    kernel, winner = directory / BEST, tree.winner(run)
    if not kernel.exists():
        yield f"The run is not finished: python -m kernel_agent resume {shlex.quote(str(directory))}"
        return
    if winner.idea:
        evaluation = run.confirmations[winner.source_id]
        compiled = evaluation.compiled
        against = "torch.compile was not measured"
        if compiled:
            against = f"{times(compiled.speedup)} against {baseline_title(compiled.baseline)}"
        yield f"{times(evaluation.against('eager'))} against eager PyTorch, {against}"
    else:
        yield from _nothing_stood(run)
    name = "ModelNew" if winner.idea else "Model"
    yield "use it:"
    yield f"    import sys; sys.path.insert(0, {str(directory.resolve())!r})"
    yield f"    from {kernel.stem} import {name}"
    yield f"    model = {name}(...)  # constructed and called as the original is"
    if winner.idea:
        yield "it is for inference: it gives no gradients"
    page, here = directory / "report.html", shlex.quote(str(directory))
    yield f"look at it: {page}" if page.exists() else f"look at it: python -m kernel_agent report {here}"
    yield f"best kernel: {kernel}"


def _nothing_stood(run: Run) -> Iterator[str]:
    """Why the original is delivered; where templates had nothing to try, what of it stays PyTorch's and why."""
    regions = run.description.regions
    if regions and not regions.covers and not run.evaluations:
        yield f"The original is delivered: {regions.reason}"
        yield from (f"    {row}" for row in regions.told())
        yield HELP
        return
    again = [(trial, run.confirmations.get(trial.source_id)) for trial in tree.contenders(run)]
    failed = [(trial, word) for trial, word in again if word and word.status is not Status.PASSED]
    alone = [trial for trial, word in again if word and tree.accepted(run, word) and not tree.stands(run, trial)]
    if not failed and not alone:
        yield "Nothing was faster than the original beyond the noise, so the original is delivered."
        if regions and regions.kept:
            yield "What stays PyTorch's call:"
            yield from (f"    {row}" for row in regions.told())
        return
    yield "Kernels were faster at first, but none held as the file to deliver, so the original is delivered:"
    for trial, word in failed:
        yield f"    {short(trial)} in its second judgement: {verdict_text(word)}"
    for trial in alone:
        yield f"    {short(trial)} by itself: {text.line(run.deliveries[trial.source_id].why_not)}"


def limits(profile: Profile, why: str) -> str:
    """What limits a kernel, with a reason; where that is not known what its profile has to say."""
    if profile.bound == "unknown":
        return next(iter(profile.metrics), profile.why)
    return f"{f'bound by {profile.bound}' if profile.bound.isalpha() else profile.bound}: {why}"


def diagnosed(run: Run) -> Iterator[str]:
    """What the profiler says of the winner, else of the fastest that it has seen."""
    seen = [t for t in (tree.winner(run), *tree.ranking(run)) if t.source_id in run.profiles]
    if not seen:
        return
    profile = run.profiles[seen[0].source_id]
    yield text.line(f"{short(seen[0])}: {limits(profile, profile.why)}", WORDS)
    for words in (*profile.findings[:FINDINGS], *profile.hot_lines[:FINDINGS]):
        yield f"    {text.line(words, WORDS)}"
    if profile.report:
        yield f"    whole report: read_report {profile.report}, of the measuring server"
    yield ""
