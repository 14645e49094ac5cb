"""The ledger of experience: what it takes, and that it survives kills, other writers, damage and later versions."""

import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rag import LibraryError
from rag.experience.ledger import Gain, Held, Ledger, as_line, counted, default_ledger, read_line
from tests.support.edits import edit
from tests.support.experiences import ROW, experience

Python = Callable[[str], list[str]]
WRITES = """
import sys
from pathlib import Path
from rag.experience.ledger import Ledger
from tests.support.experiences import experience
ledger, name, runs, each = Ledger(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
for number in range(runs):
    run = f"{name}-{number}"
    ledger.replace(run, [experience(f"{run}-{one}", run=run) for one in range(each)])
    print(run, flush=True)
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "data" / "experience.sqlite")


def held(ledger: Ledger) -> set[str]:
    return {one.id for one in ledger.read().experiences}


def test_an_experience_goes_through_a_line_of_json_unchanged() -> None:
    for one in (ROW, experience(verdict="build_error", predicted=None, torch=None)):
        assert read_line(as_line(one)) == one and "\n" not in as_line(one)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[1]", "it is not a JSON object"),
        ("{}", "id: Field required"),
        (edit(as_line(ROW), '"format": 1', '"format": 2'), "it has format 2, this version reads format 1"),
        (edit(as_line(ROW), '"reduction"', '"reductions"'), "families.0: 'reductions' is none of attention, "),
        (edit(as_line(ROW), '"dram-bw"', '"dram"'), "bottleneck: 'dram' is none of "),
        (edit(as_line(ROW), '"faster"', '"wrong"'), "a gain does not go with the verdict wrong"),
        (edit(as_line(ROW), '"faster"', '"great"'), "verdict"),
        (edit(as_line(ROW), "1.27", "NaN", times=2), "it is not JSON|gain.median"),
        (edit(as_line(ROW), "1.27", "-1", times=2), "gain.median"),
        (edit(as_line(ROW), "2026-11-20", "yesterday"), "date"),
        (edit(as_line(ROW), "softmax-1", "s" * 1000), "run"),
        (edit(as_line(ROW), "each thread", "x" * 100_000), "transformation"),
    ],
)
def test_what_is_no_experience_is_said_in_one_sentence(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=rf"^(?:{words})[^\n]*$"):
        read_line(line)


def test_reading_makes_nothing_and_the_first_write_makes_the_file(ledger: Ledger) -> None:
    assert ledger.read() == Held()
    assert not ledger.path.parent.exists()
    ledger.replace("softmax-1", [ROW])
    assert ledger.read() == Held((ROW,))


def test_the_ledger_is_where_the_user_s_data_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_ledger() == tmp_path / "kernel_agent" / "experience.sqlite"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert default_ledger().parts[-4:] == (".local", "share", "kernel_agent", "experience.sqlite")


def test_a_run_that_is_written_again_replaces_its_own_records_and_no_others(ledger: Ledger) -> None:
    ledger.replace("other", [experience("theirs", run="other")])
    ledger.replace("softmax-1", [experience("first", verdict="wrong"), experience("second")])
    again = [experience("second", title="Judged again"), experience("third")]
    for _ in range(2):
        ledger.replace("softmax-1", again)
        assert ledger.read().experiences == (again[0], experience("theirs", run="other"), again[1])


def test_taking_in_again_adds_nothing_and_forgetting_says_how_many(ledger: Ledger) -> None:
    some = [experience(name) for name in "abc"]
    assert (ledger.add(some), ledger.add([*some, experience("d")])) == (3, 1)
    assert (ledger.forget(["a", "b", "nobody"]), held(ledger)) == (2, {"c", "d"})
    assert (ledger.clear(), held(ledger)) == (2, set())


def test_forgotten_words_are_no_longer_in_the_file(ledger: Ledger) -> None:
    ledger.add([experience("a", title="A secret recipe"), *(experience(f"b{n}") for n in range(50))])
    assert b"secret recipe" in ledger.path.read_bytes()
    ledger.forget(["a"])
    assert b"secret recipe" not in ledger.path.read_bytes()


def put(ledger: Ledger, id: str, format: int, body: str | bytes) -> None:
    with sqlite3.connect(ledger.path) as base:
        base.execute("INSERT INTO experiences VALUES (?, ?, ?, CAST(? AS TEXT))", (id, "softmax-1", format, body))
    base.close()


def test_a_record_of_a_later_version_is_kept_unread_and_unchanged(ledger: Ledger) -> None:
    ledger.replace("softmax-1", [ROW])
    put(ledger, "later", 2, '{"format": 2, "tune": "else"}')
    ledger.replace("softmax-1", [experience("new"), experience("later")])
    assert ledger.read() == Held((experience("new"),), later=1)
    with sqlite3.connect(ledger.path) as base:
        assert base.execute("SELECT body FROM experiences WHERE format = 2").fetchall() == [
            ('{"format": 2, "tune": "else"}',)
        ]
    base.close()
    assert ledger.clear() == 2


@pytest.mark.parametrize("body", ["", "{}", "\x00", b"\xff\xfe", as_line(ROW)[:-20]])
def test_a_damaged_record_costs_itself_alone(ledger: Ledger, body: str | bytes) -> None:
    ledger.add([ROW])
    put(ledger, "damaged", 1, body)
    assert ledger.read() == Held((ROW,), damaged=1)
    assert ledger.add([experience("more")]) == 1


def test_a_ledger_of_a_later_version_is_left_alone(ledger: Ledger) -> None:
    ledger.add([ROW])
    with sqlite3.connect(ledger.path) as base:
        base.execute("PRAGMA user_version = 2")
    base.close()
    for use in (ledger.read, ledger.clear, lambda: ledger.add([ROW])):
        with pytest.raises(LibraryError, match="is of a later version"):
            use()


def garbled(data: bytes) -> bytes:
    return data[:40960] + b"\xff" * 4096 + data[45056:]


@pytest.mark.parametrize(
    "damage", [lambda data: b"no database at all\n" * 100, lambda data: data[: len(data) // 2], garbled]
)
def test_a_broken_ledger_is_one_sentence_and_is_not_touched(ledger: Ledger, damage: Callable[[bytes], bytes]) -> None:
    ledger.add([experience(f"id{number}") for number in range(200)])
    broken = damage(ledger.path.read_bytes())
    ledger.path.write_bytes(broken)
    for use in (ledger.read, lambda: ledger.replace("softmax-1", [ROW]), ledger.clear):
        with pytest.raises(LibraryError, match=r"experience\.sqlite is broken \([^\n]*\): move that file away"):
            use()
    assert ledger.path.read_bytes() == broken


def test_a_place_that_is_no_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "experience.sqlite"):
        with pytest.raises(LibraryError, match=r"^the experience in [^\n]* cannot be used"):
            Ledger(path).add([ROW])


def test_two_processes_that_write_at_once_lose_nothing(ledger: Ledger, python: Python) -> None:
    writers = [subprocess.Popen([*python(WRITES), str(ledger.path), name, "25", "3"]) for name in ("one", "two")]
    assert [writer.wait() for writer in writers] == [0, 0]
    wanted = {f"{name}-{run}-{one}" for name in ("one", "two") for run in range(25) for one in range(3)}
    assert held(ledger) == wanted


HALFWAY = """
import sys
from pathlib import Path
from rag.experience.ledger import Ledger
from tests.support.experiences import experience
def halfway():
    for number in range(4000):
        yield experience(f"id{number}", transformation="x" * 1200)
    print("halfway", flush=True)
    sys.stdin.read()
Ledger(Path(sys.argv[1])).replace("softmax-1", halfway())
"""


def test_a_writer_that_is_killed_halfway_leaves_what_was_there_before(ledger: Ledger, python: Python) -> None:
    before = [experience(name) for name in "abc"]
    ledger.add(before)
    command = [*python(HALFWAY), str(ledger.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout and writer.stdout.readline() == "halfway\n"
        journal = ledger.path.with_name(f"{ledger.path.name}-journal")
        assert journal.stat().st_size > 0, "half of it is in the file already"
        writer.kill()
    assert ledger.read() == Held(tuple(before))
    assert ledger.add([*before, ROW]) == 1, "and the next writer is not kept out"


@pytest.mark.parametrize("lines", [1, 4])
def test_a_writer_that_is_killed_at_any_moment_leaves_whole_runs(ledger: Ledger, python: Python, lines: int) -> None:
    command = [*python(WRITES), str(ledger.path), "run", "1000", "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        told = [writer.stdout.readline().strip() for _ in range(lines)]
        writer.kill()
    counts = Counter(one.run for one in ledger.read().experiences)
    assert set(counts.values()) == {300} and set(told) <= set(counts)


def test_verdicts_are_counted_in_words() -> None:
    some = [experience(verdict="build_error"), ROW, replace(ROW, gain=Gain(1, 1, 1), verdict="inconclusive"), ROW]
    assert counted(some) == "2 faster, 1 build error, 1 inconclusive"
