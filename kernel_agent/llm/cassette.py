"""A cassette: the model's replies of one run in one file, from which the run can be played again with no key.

The first line says what the run was about, each further one is a reply. The prompts are not kept: they hold what was
measured, and another machine measures otherwise. So a reply is known by its question's words, else by its place. Nor is
the problem's text, which may be somebody's: its hash tells whether it is the one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernel_agent.errors import UsageError
from kernel_agent.llm.call_site import CallSite, load
from kernel_agent.llm.model import NotRecorded, Question, Reply
from kernel_agent.run.journal import Journal
from kernel_agent.run.rows import reader
from kernel_agent.run.types import JSON, Problem
from rag import text_files
from rag.experience.ledger import Experience

FORMAT = 3
"""In 1 the problem's text stood in the first line, until 3 places were words."""

OWN = (
    "provider",
    "base_url",
    "mcp_server_path",
    "runs_dir",
    "record",
    "cassette",
    "wait",
    "max_concurrent_calls",
    "experience",
)
"""Settings that belong to whoever plays, and not to what is played."""
BEFORE = {"seeds": False, "compile_times": "first"}
"""How a run went before there were these settings, which its cassette then does not name."""


@dataclass(frozen=True, slots=True)
class Call:
    """One reply: the hash of its question's words, its place in the run, who gave it and what it cost."""

    key: str
    place: CallSite | None
    reply: str
    usage: JSON


@dataclass(frozen=True, slots=True)
class Subject:
    """The problem that a run was about: its name, its target, the SHA-256 of its text."""

    name: str
    target: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Cassette:
    """What a run was about, the replies it got, and the experience that its briefs told of."""

    subject: Subject
    settings: dict[str, Any]
    calls: tuple[Call, ...] = ()
    experiences: tuple[Experience, ...] = ()

    def fitting(self, problem: Problem) -> Problem:
        """The problem, where the cassette is about it; raises UsageError where it is about another."""
        if fingerprint(problem.source) != self.subject.sha256:
            raise UsageError(f"The cassette was recorded for another source, that of {self.subject.name}.")
        if problem.target != self.subject.target:
            raise UsageError(
                f"The cassette was recorded for {self.subject.target}: give --target {self.subject.target}."
            )
        return problem


def fingerprint(source: str) -> str:
    """The SHA-256 of a source, in hexadecimal."""
    return hashlib.sha256(source.encode()).hexdigest()


class Replay:
    """Nobody answers: only what is recorded exists."""

    remedy = "play another recording"

    def __init__(self, recorded: Iterable[Call] = ()) -> None:
        recorded = tuple(recorded)
        self._by_key = {call.key: call for call in recorded}
        self._by_place = {call.place: call for call in recorded if call.place}

    async def answer(self, question: Question) -> Reply:
        call = self._by_key.get(question.key)
        if call is None and question.place is not None:
            call = self._by_place.get(question.place)
        if call is None:
            where = f" ({question.place})" if question.place else ""
            raise NotRecorded(
                f"Call {question.key}{where} is not among the recorded ones: replay with that run's settings and "
                "code, or name a provider that can answer."
            )
        return Reply(call.reply, str(call.usage.get("model", "the recorded model")))

    async def close(self) -> None:
        pass


def read(path: Path) -> Cassette:
    """A cassette's file, or what the journal of a run's directory holds. Raises UsageError where it is neither."""
    if path.is_dir():
        with Journal.open(path) as journal:
            return of(journal)
    try:
        first, *rest = text_files.read(path).split("\n")
        head = json.loads(first)
        if head.get("cassette") not in range(1, FORMAT + 1):
            raise UsageError(f"{path} is a cassette of format {head.get('cassette')}, this version plays {FORMAT}.")
        about = head["problem"]
        if head["cassette"] == 1:  # it held the text itself
            about = about | {"sha256": fingerprint(about.pop("source"))}
        subject = reader(Subject).validate_python(about)
        held = (json.loads(row) for row in rest if row.strip())
        rows = reader(tuple[Call, ...]).validate_python([{**row, "place": load(row["place"])} for row in held])
        told = reader(tuple[Experience, ...]).validate_python(head.get("experiences", ()))
        return Cassette(subject, BEFORE | dict(head["settings"]), rows, told)
    except OSError as error:
        raise UsageError(f"The cassette {path} cannot be read ({error.strerror}).") from None
    except text_files.NotText as fault:
        raise UsageError(f"The cassette {path} {fault}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError):
        raise UsageError(
            f"{path} is not a cassette: record one with `python -m kernel_agent run FILE --record`."
        ) from None


def of(journal: Journal) -> Cassette:
    """What a journal holds so far."""
    calls = (Call(key, load(about.get("place")), reply, about) for key, reply, about in journal.calls())
    settings = journal.settings.keyless() | {"target": journal.problem.target}
    played = {name: value for name, value in settings.items() if name not in OWN and value is not None}
    recalled = journal.load().recalled if journal.described else None
    subject = Subject(journal.problem.name, journal.problem.target, fingerprint(journal.problem.source))
    return Cassette(subject, played, tuple(calls), recalled.experiences if recalled else ())


def write(journal: Journal, to: Path) -> Path:
    """Write the run's cassette to the file `to`, in a folder (no suffix) under the run's own name; returns its path."""
    cassette = of(journal)
    folder = to.is_dir() or not to.suffix
    path = to / f"{journal.directory.resolve().name}.jsonl" if folder else to
    head = {"cassette": FORMAT, "problem": asdict(cassette.subject), "settings": cassette.settings}
    if cassette.experiences:
        head["experiences"] = [asdict(one) for one in cassette.experiences]
    rows = [json.dumps(row) for row in (head, *(asdict(call) for call in cassette.calls))]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        text_files.write_whole(path, "\n".join(rows) + "\n")
    except OSError as error:
        raise UsageError(f"The cassette {path} cannot be written ({error.strerror}).") from None
    return path
