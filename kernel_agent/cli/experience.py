"""Experience in the hands of its owner: list it, carry it elsewhere, take it in, forget it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kernel_agent.errors import Unavailable, UsageError
from kernel_agent.knowledge.render import grouped, line
from rag import LibraryError, text_files
from rag.experience.ledger import Experience, Held, Ledger, as_line, counted, default_ledger, read_line

MATCHES: Mapping[str, Callable[[Experience, str], bool]] = {
    "run": lambda one, name: one.run == name,
    "problem": lambda one, name: one.problem == name,
    "target": lambda one, name: one.target == name,
    "arch": lambda one, name: one.arch == name,
    "family": lambda one, name: name in one.families,
    "bottleneck": lambda one, name: one.bottleneck == name,
    "verdict": lambda one, name: one.verdict == name.replace(" ", "_"),
}
"""Whether an experience is of what a flag of this name asks for."""


def listed(chosen: Mapping[str, str]) -> Iterator[str]:
    """A line for each idea that was tried, and then how many records there are, of which runs."""
    with _understood():
        held = Ledger(default_ledger()).read()
        found = _picked(held, chosen)
        for group in grouped(found):
            yield line(group)
        runs = sorted({one.run for one in found})
        yield f"{_of(found)} in {default_ledger()}{_unread(held)}"
        if runs:
            yield f"runs: {', '.join(runs)}"


def exported(chosen: Mapping[str, str], to: Path) -> Iterator[str]:
    """Writes the records, a line of JSON each, to a file or, for `-`, as the answer itself."""
    with _understood():
        held = Ledger(default_ledger()).read()
    found = _picked(held, chosen)
    if str(to) == "-":
        yield from map(as_line, found)
        return
    try:
        text_files.write_whole(to, "".join(f"{as_line(one)}\n" for one in found))
    except OSError as error:
        raise UsageError(f"{to} cannot be written ({error.strerror}).") from None
    yield f"{_of(found)} written to {to}{_unread(held)}"


def imported(text: str, name: str) -> Iterator[str]:
    """Takes in the records of an exported file; of one that cannot be read nothing at all."""
    found: list[Experience] = []
    for number, row in enumerate(text.split("\n"), 1):
        if row.strip():
            try:
                found.append(read_line(row))
            except ValueError as fault:
                raise UsageError(f"Line {number} of {name} is no experience: {fault}; nothing was taken in.") from None
    if not found:
        raise UsageError(f"There is no experience in {name}: `experience export` writes such a file.")
    with _understood():
        new = Ledger(default_ledger()).add(found)
    known = f", {len(found) - new} were known" if new < len(found) else ""
    yield f"{new} of {_of(found)} taken in{known}"


def forgotten(chosen: Mapping[str, str], everything: bool) -> Iterator[str]:
    """Removes the records from the ledger and their texts from all collections, and says what they were.

    The collections come first: where they cannot be reached nothing is forgotten, and it can be done again.
    """
    from rag.experience.ranking import forget

    if everything == bool(chosen):
        raise UsageError("Say what to forget: --all, or some of --run, --problem, --target, --arch, --family, ... .")
    with _understood():
        ledger = Ledger(default_ledger())
        held = ledger.read()
        found = _picked(held, chosen)
        forget([one.id for one in found])
        if everything:
            ledger.clear()
        else:
            ledger.forget(one.id for one in found)
    yield f"forgot {_of(found)}{_unread(held) if everything else ''}"
    for run in sorted({one.run for one in found}):
        yield f"    {_of([one for one in found if one.run == run])} of {run}"


def _picked(held: Held, chosen: Mapping[str, str]) -> list[Experience]:
    return [one for one in held.experiences if all(MATCHES[name](one, value) for name, value in chosen.items())]


def _of(found: list[Experience]) -> str:
    count = f"{len(found)} experience{'' if len(found) == 1 else 's'}"
    return f"{count} ({counted(found)})" if found else count


def _unread(held: Held) -> str:
    parts = [f"{held.later} of a later version"] if held.later else []
    parts += [f"{held.damaged} that cannot be read"] if held.damaged else []
    return f", beside {' and '.join(parts)}" if parts else ""


@contextmanager
def _understood() -> Iterator[None]:
    try:
        yield
    except LibraryError as error:
        text = str(error)
        raise Unavailable(f"{text[:1].upper()}{text[1:]}.") from None
