"""What earlier runs measured: a record for each implementation of an idea, kept apart from all documentation.

$XDG_DATA_HOME/kernel_agent/experience.sqlite (~/.local/share) holds the records. A write is one transaction of SQLite,
so that a kill leaves all of it or nothing, and two writers wait for one another. It is knowledge and no cache: a file
that is broken is never removed by us. Vectors are made from it, and can be made again.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from rag import folders
from rag.documents.page import BOTTLENECKS, FAMILIES
from rag.errors import LibraryError

FORMAT = 1
"""Of a record. Records of a later one are kept, and neither read nor changed."""

WAIT_S = 30.0
"""Longest wait for another process that writes."""

EAGER = "eager PyTorch"
"""The baseline of an idea that departed from the module itself."""

ERRORS = (sqlite3.Error, OSError)
_TABLES = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS experiences (id TEXT PRIMARY KEY, run TEXT NOT NULL, format INTEGER NOT NULL,
                                        body TEXT NOT NULL);
PRAGMA user_version = {FORMAT};
COMMIT;
"""


def _among(names: frozenset[str]) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name!r} is none of {', '.join(sorted(names))}")
        return name

    return check


Ratio = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Short = Annotated[str, Field(max_length=120)]
Name = Annotated[str, Field(min_length=1, max_length=120)]
LongText = Annotated[str, Field(max_length=1200)]
Verdict = Literal["faster", "slower", "inconclusive"]
Failure = Literal["rejected", "build_error", "run_error", "timeout", "wrong", "suspect"]


@dataclass(frozen=True, slots=True)
class Gain:
    """A measured factor with its 95 % interval; over 1 is faster."""

    low: Ratio
    median: Ratio
    high: Ratio


@dataclass(frozen=True, slots=True)
class Experience:
    """What became of one implementation of an idea, as it was judged last.

    Device class is `target` and `arch`; `bottleneck` is that of what the idea departed from. `predicted` and `gain` are
    factors over `baseline`, `speedup` over eager PyTorch, `compiled` over the best mode of torch.compile. `gain` is
    there exactly where the verdict is faster, slower or inconclusive; `confirmed` says that it was judged twice.
    """

    id: Name
    run: Name
    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$")]
    problem: Short
    target: Annotated[str, Field(pattern=r"^[a-z]{2,12}$")]
    arch: Name
    device: Name
    families: Annotated[
        tuple[Annotated[str, AfterValidator(_among(FAMILIES))], ...], Field(min_length=1, max_length=len(FAMILIES))
    ]
    operators: Annotated[tuple[Name, ...], Field(max_length=60)]
    bottleneck: Annotated[str, AfterValidator(_among(BOTTLENECKS))]
    title: Annotated[str, Field(min_length=1, max_length=200)]
    transformation: LongText
    verdict: Verdict | Failure
    baseline: Annotated[str, Field(min_length=1, max_length=200)]
    why: LongText
    predicted: Ratio | None = None
    gain: Gain | None = None
    speedup: Gain | None = None
    compiled: Gain | None = None
    confirmed: bool = False
    torch: Short | None = None
    toolkit: Short | None = None
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        if (self.gain is not None) != (self.verdict in ("faster", "slower", "inconclusive")):
            raise ValueError(f"a gain does not go with the verdict {self.verdict}, or is missing")


@cache
def _reader() -> TypeAdapter[Experience]:
    return TypeAdapter(Experience)


def read_line(text: str) -> Experience:
    """The experience in a line of JSON. Raises ValueError with what is wrong with it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    if isinstance(later := found.get("format"), int) and later > FORMAT:
        raise ValueError(f"it has format {later}, this version reads format {FORMAT}")
    try:
        return _reader().validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where, what = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{where}: {what}" if where else what) from None


def as_line(experience: Experience) -> str:
    """The experience as a line of JSON."""
    return json.dumps(asdict(experience))


@dataclass(frozen=True, slots=True)
class Held:
    """What a ledger holds, in order of id; how many are of a later version, and how many cannot be read."""

    experiences: tuple[Experience, ...] = ()
    later: int = 0
    damaged: int = 0


def default_ledger() -> Path:
    """`$XDG_DATA_HOME/kernel_agent/experience.sqlite`, or the same under `~/.local/share`. Raises LibraryError."""
    return folders.data() / "kernel_agent" / "experience.sqlite"


class Ledger:
    """The file of experience; where there is none nothing is held, and the first write makes it.

    Every method raises LibraryError where the file is broken, locked for long, of a later version or not writable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Held:
        """All that is there."""
        try:
            if not self.path.exists():
                return Held()
        except OSError as error:
            raise self._fault(error) from None
        with self._opened() as base:
            base.text_factory = bytes
            rows = base.execute("SELECT format, body FROM experiences ORDER BY id").fetchall()
        found, later, damaged = [], 0, 0
        for format, body in rows:
            if format > FORMAT:
                later += 1
                continue
            try:
                found.append(read_line(body.decode()))
            except ValueError:
                damaged += 1
        return Held(tuple(found), later, damaged)

    def replace(self, run: str, experiences: Iterable[Experience]) -> None:
        """Let these be all that is known of a run: written again, or after more was judged, nothing is there twice."""
        with self._writing() as base:
            base.execute("DELETE FROM experiences WHERE run = ? AND format <= ?", (run, FORMAT))
            _insert(base, experiences)

    def add(self, experiences: Sequence[Experience]) -> int:
        """Take in what is not there yet, by its id, all or none of it; how many that were."""
        with self._writing() as base:
            return _insert(base, experiences)

    def forget(self, ids: Iterable[str]) -> int:
        """Remove records by id; how many were there."""
        with self._writing() as base:
            return sum(base.execute("DELETE FROM experiences WHERE id = ?", (name,)).rowcount for name in ids)

    def clear(self) -> int:
        """Remove every record, those too that cannot be read; how many there were."""
        with self._writing() as base:
            count = base.execute("DELETE FROM experiences").rowcount
        with self._opened() as base:
            base.execute("VACUUM")
        return count

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._fault(error) from None
        with self._opened() as base:
            base.execute("BEGIN IMMEDIATE")
            yield base  # closed without its end, a transaction never was
            base.execute("COMMIT")

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None)) as base:
                (format,) = base.execute("PRAGMA user_version").fetchone()
                if format > FORMAT:
                    raise LibraryError(
                        f"the experience in {self.path} is of a later version: bring this one up to date"
                    )
                if base.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    raise sqlite3.DatabaseError("SQLite's quick check failed")
                base.execute("PRAGMA secure_delete = ON")
                if format == 0:
                    base.executescript(_TABLES)
                yield base
        except ERRORS as error:
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> LibraryError:
        if isinstance(error, OSError | sqlite3.OperationalError):
            return LibraryError(f"the experience in {self.path} cannot be used ({error}): mend that and do it again")
        return LibraryError(f"the experience in {self.path} is broken ({error}): move that file away to begin anew")


def _insert(base: sqlite3.Connection, experiences: Iterable[Experience]) -> int:
    rows = ((one.id, one.run, one.format, as_line(one)) for one in experiences)
    return sum(base.execute("INSERT OR IGNORE INTO experiences VALUES (?, ?, ?, ?)", row).rowcount for row in rows)


def counted(experiences: Iterable[Experience]) -> str:
    """How many of which verdict, in words."""
    verdicts = Counter(one.verdict.replace("_", " ") for one in experiences)
    return ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
