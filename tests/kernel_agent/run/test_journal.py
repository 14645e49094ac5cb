"""The journal: what goes in comes out, whole, and one process at a time may write."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from kernel_agent.errors import KernelAgentError, ServerError, UsageError
from kernel_agent.run.database import LOG
from kernel_agent.run.journal import FILE, MANUAL, Journal, read
from kernel_agent.run.journal import begun as has_begun
from kernel_agent.run.tree import Confirmation, Diagnosis, EvaluationRecord, Ideas, Run, Unwritten
from kernel_agent.run.types import Evaluation, Idea, Profile, Status, Trial, digest
from tests.support.scripted_run import DESCRIPTION, PROBLEM, ROOT, evaluation_of, small_settings


def begun(directory: Path) -> Journal:
    journal = Journal.create(directory)
    journal.begin(PROBLEM, small_settings())
    journal.describe(DESCRIPTION)
    return journal


def fill_all(journal: Journal) -> Run:
    run = journal.load()
    idea = Idea("i1", 1, run.reference.id, "title", "why", {"block": [1, 2.5, None, "ä"]}, ("p1",))
    other = Idea("i2", 1, run.reference.id, "other", "why")
    trial = Trial("i1", 0, 0, run.reference.id, "# speed: 2")
    later = Trial("i2", 0, 0, run.reference.id, "# verdict: wrong")
    judged = [EvaluationRecord(t.source_id, evaluation_of(t.source, "eager")) for t in (trial, later)]
    confirmed = Confirmation(trial.source_id, evaluation_of(trial.source, "eager", "compile"))
    deeper = Ideas(2, (Idea("i3", 2, trial.id, "deeper", ""),))
    for record in (Ideas(1, (idea, other)), trial, later, *judged, deeper, confirmed):
        journal.append(record)
        run.record(record)
    return run


def test_a_run_is_read_back_equal(tmp_path: Path) -> None:
    with begun(tmp_path) as journal:
        run = fill_all(journal)
        assert journal.load() == run
    with Journal.open(tmp_path) as journal:
        assert journal.load() == run == read(tmp_path)
        assert journal.problem == PROBLEM and journal.described


ODD = "half \ud800, end \0, line\u2028, \x1b[2J, \ufffe, 😀, \\ud800"


def test_a_journal_is_read_back_whatever_words_stand_in_it(tmp_path: Path) -> None:
    root = digest(None, 0, 0)
    idea = Idea("i", 1, root, ODD, ODD)
    trial = Trial("i", 0, 0, root, ODD, (("A", ODD), ("B", 10**400), ("C", float("inf")), ("D", True)))
    profile = Profile("counters", "memory", ODD, (ODD,), hot_lines=(ODD,))
    failed = Evaluation(Status.WRONG, ODD, provenance={ODD: [ODD, float("inf")]})
    with Journal.create(tmp_path / "run") as journal:
        journal.begin(PROBLEM, small_settings())
        journal.describe(DESCRIPTION)
        for record in (Ideas(1, (idea,)), trial, Unwritten("i", 1, 0, ODD)):
            journal.append(record)
        journal.append(EvaluationRecord(trial.source_id, failed))
        journal.append(Diagnosis(trial.source_id, profile))
        run = journal.load()
    (read,) = (one for one in run.trials.values() if one.idea)
    assert read.tuned[1:] == trial.tuned[1:] and read.source == ODD.replace("\ud800", "?", 1)
    assert run.ideas["i"].title == run.profiles[trial.source_id].why == run.evaluations[trial.source_id].log


def test_reading_leaves_the_collector_as_it_was_whatever_it_finds(tmp_path: Path) -> None:
    with begun(tmp_path) as journal:
        fill_all(journal)
        journal._rows.execute("INSERT INTO records (kind, key, body) VALUES ('trial', 'k', 'no JSON')")
    for collecting in (True, False):
        (gc.enable if collecting else gc.disable)()
        try:
            with pytest.raises(UsageError, match="is damaged"):
                read(tmp_path)
            assert gc.isenabled() is collecting
        finally:
            gc.enable()


def test_a_record_is_written_once(tmp_path: Path) -> None:
    with begun(tmp_path) as journal:
        trial = next(iter(fill_all(journal).trials.values()))
        journal.append(trial)
        with pytest.raises(sqlite3.IntegrityError):
            journal.append(trial)


def test_a_directory_in_use_is_refused_while_its_holder_lives_and_only_then(tmp_path: Path) -> None:
    begun(tmp_path).close()
    holder = f"""
import sys; from pathlib import Path; from kernel_agent.run.journal import Journal
journal = Journal.open(Path({str(tmp_path)!r})); print("held", flush=True); sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="in use by another process"):
            Journal.open(tmp_path)
        assert read(tmp_path).problem == PROBLEM
        process.kill()
    Journal.open(tmp_path).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match=r"cannot be written \(Permission denied\)"):
        Journal.create(tmp_path / "run")


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        Journal.create(tmp_path / "run")


def test_a_run_is_not_begun_over_another(tmp_path: Path) -> None:
    begun(tmp_path).close()
    with pytest.raises(UsageError, match="holds a run already"):
        Journal.create(tmp_path)


def killed_while_beginning(directory: Path) -> None:
    """What is left where the process dies between the log's first page and the commit: 4096 bytes without a table."""
    script = f"""
import os, sqlite3
rows = sqlite3.connect({str(directory / FILE)!r}, isolation_level=None)
rows.execute("PRAGMA journal_mode=WAL"); rows.execute("BEGIN"); rows.execute("CREATE TABLE meta (name)"); os._exit(9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    assert (directory / FILE).stat().st_size == 4096


@pytest.mark.parametrize("leave", [lambda place: Journal.create(place).close(), killed_while_beginning])
def test_a_run_killed_before_it_began_gives_its_directory_back(tmp_path: Path, leave: Callable[[Path], None]) -> None:
    leave(tmp_path)
    for look in (Journal.open, read):
        with pytest.raises(UsageError, match=r"Nothing was recorded in .*: start again with"):
            look(tmp_path)
    assert not has_begun(tmp_path)
    begun(tmp_path).close()
    assert has_begun(tmp_path)


def fails(journal: Journal, *steps: Callable[[Journal], object], by: type[BaseException] = ServerError) -> None:
    with pytest.raises(by), journal:
        for step in steps:
            step(journal)
        raise by


def begin(journal: Journal) -> None:
    journal.begin(PROBLEM, small_settings())
    journal.describe(DESCRIPTION)
    (journal.directory / LOG).write_text("last words")


@pytest.mark.parametrize(
    ("steps", "by"), [((), ServerError), ((begin,), ServerError), ((begin,), OSError), ((), KeyboardInterrupt)]
)
def test_what_fails_before_anything_is_recorded_leaves_nothing_that_it_made(
    tmp_path: Path, steps: tuple[Callable[[Journal], object], ...], by: type[BaseException]
) -> None:
    fails(Journal.create(tmp_path / "runs" / "one"), *steps, by=by)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "here").mkdir()
    fails(Journal.create(tmp_path / "here"), *steps, by=by)
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize("by", [KeyboardInterrupt, asyncio.CancelledError])
def test_what_is_stopped_once_it_has_begun_can_be_resumed(tmp_path: Path, by: type[BaseException]) -> None:
    fails(Journal.create(tmp_path), begin, by=by)
    Journal.open(tmp_path).close()


@pytest.mark.parametrize(
    "step",
    [
        lambda journal: journal.append(Ideas(1, (Idea("i1", 1, journal.load().reference.id, "t", ""),))),
        lambda journal: journal.record_call("k", "{}", "reply", {}),
        lambda journal: (journal.directory / MANUAL).mkdir(),
    ],
    ids=["an idea", "a paid reply", "a prompt that waits"],
)
def test_what_fails_with_something_worth_resuming_keeps_it(tmp_path: Path, step: Callable[[Journal], object]) -> None:
    fails(Journal.create(tmp_path), begin, step)
    fails(Journal.open(tmp_path))
    with Journal.open(tmp_path) as journal:
        assert journal.load().problem == PROBLEM


DAMAGE = [
    "DROP TABLE meta",
    "DROP TABLE records",
    "DROP TABLE calls",
    "DELETE FROM meta WHERE name = 'problem'",
    "UPDATE meta SET value = '[]' WHERE name = 'settings'",
    "UPDATE meta SET value = '{' WHERE name = 'description'",
    "UPDATE records SET kind = 'poem' WHERE number = 2",
    "UPDATE records SET body = '{}' WHERE number = 3",
    "UPDATE records SET body = x'ff00' WHERE number = 3",
    "DELETE FROM records WHERE number = 1",
    "ALTER TABLE records RENAME body TO soul",
    "UPDATE meta SET value = replace(value, 'eager', 'lazy') WHERE name = 'description'",
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_journal_is_one_sentence(tmp_path: Path, damage: str) -> None:
    with begun(tmp_path) as journal:
        fill_all(journal)
    with closing(sqlite3.connect(tmp_path / FILE)) as rows, rows:
        rows.execute(damage)

    def resume() -> None:
        with Journal.open(tmp_path) as journal:
            assert journal.problem and journal.settings and journal.described
            journal.load()

    for look in (lambda: read(tmp_path), resume):
        with pytest.raises(KernelAgentError, match=r"damaged, or keeps no run .*: start a new run\.$") as caught:
            look()
        assert "\n" not in str(caught.value)
    assert has_begun(tmp_path)


def test_settings_given_later_are_kept_and_a_journal_s_own_keys_never(tmp_path: Path) -> None:
    with begun(tmp_path) as journal:
        journal.settings = small_settings(num_rounds=7, openai_api_key="sk-secret")
    with Journal.open(tmp_path) as journal:
        assert journal.settings == small_settings(num_rounds=7)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount something read-only")
@pytest.mark.parametrize("killed", [False, True])
def test_a_run_is_shown_where_nothing_can_be_written_with_its_log_full_or_not(tmp_path: Path, killed: bool) -> None:
    with begun(tmp_path) as journal:
        fill_all(journal)
        run = read(tmp_path)
        if killed:
            shutil.copytree(tmp_path, tmp_path / "copy")
    place = tmp_path / "copy" if killed else tmp_path
    assert (place / f"{FILE}-wal").exists() == killed
    look = (
        f"import pathlib, kernel_agent.run.journal as j; print(len(j.read(pathlib.Path({str(place)!r})).evaluations))"
    )
    mount = f"mount --bind {place} {place} && mount -o remount,bind,ro {place} && exec {sys.executable} -c {look!r}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, text=True, cwd=ROOT)
    if done.returncode == 1 and "unshare" in done.stderr:
        pytest.skip("unshare is not allowed here")
    assert done.stdout == f"{len(run.evaluations)}\n", done.stderr


FULL = """
import pathlib, sys
from kernel_agent.errors import Unavailable
from kernel_agent.run.journal import Journal
from tests.kernel_agent.run.test_journal import begun, fill_all
place = pathlib.Path(sys.argv[1])
with begun(place / "run") as journal:
    fill_all(journal)
with (place / "fill").open("wb", buffering=0) as fill:
    try:
        while True:
            fill.write(bytes(512))
    except OSError:
        pass
try:
    with Journal.open(place / "run") as journal:
        journal.settings = journal.settings
except Unavailable as fault:
    print(fault)
(place / "fill").unlink()
with Journal.open(place / "run") as journal:
    print(len(journal.load().evaluations))
"""


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount a small disk")
def test_a_full_disk_is_not_taken_for_a_damaged_journal(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=512k none {tmp_path} && exec {sys.executable} -c {shlex.quote(FULL)} {tmp_path}"
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, text=True, cwd=ROOT)
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip("unshare is not allowed here")
    said, kept = done.stdout.splitlines()
    assert re.fullmatch(r"The journal in .* cannot be .*; what it holds is safe: .* resume .*\.", said), done.stderr
    assert kept == "2"


def test_a_directory_with_files_of_others_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.py", "notes.txt"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"holds files that no run has written \(a\.py, b\.py, c\.py\): choose"):
        Journal.create(tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_ready_replies_and_what_an_early_kill_left_are_no_files_of_others(tmp_path: Path) -> None:
    (tmp_path / MANUAL).mkdir()
    for name in ("lock", LOG, FILE, f"{FILE}-journal"):
        (tmp_path / name).touch()
    Journal.create(tmp_path).close()


def test_a_directory_without_a_run_and_a_broken_journal_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no run"):
        Journal.open(tmp_path)
    (tmp_path / FILE).write_text("this is no database, but it is long enough to be looked at" * 20)
    with pytest.raises(UsageError, match="keeps no run"):
        read(tmp_path)
    with pytest.raises(UsageError, match="keeps no run"):
        Journal.open(tmp_path)


def test_a_journal_of_another_format_is_refused(tmp_path: Path) -> None:
    begun(tmp_path).close()
    rows = sqlite3.connect(tmp_path / FILE)
    with rows:
        rows.execute("UPDATE meta SET value = '99' WHERE name = 'format'")
    rows.close()
    with pytest.raises(UsageError, match="format 99"):
        Journal.open(tmp_path)


def test_a_run_without_a_description_cannot_be_shown_but_resumed(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path)
    journal.begin(PROBLEM, small_settings())
    journal.close()
    with pytest.raises(UsageError, match="before its problem was described"):
        read(tmp_path)
    with Journal.open(tmp_path) as journal:
        assert not journal.described


def test_a_call_is_kept_by_its_key_and_a_second_reply_replaces_the_first(tmp_path: Path) -> None:
    with begun(tmp_path) as journal:
        assert journal.call("k") is None
        journal.record_call("k", json.dumps({"q": 1}), "reply", {"tokens": 3})
        journal.record_call("k", json.dumps({"q": 1}), "better", {"tokens": 3})
        assert journal.call("k") == "better"


def test_no_key_reaches_the_disk(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path)
    journal.begin(PROBLEM, small_settings(openai_api_key="sk-secret"))
    journal.close()
    assert not any(b"sk-secret" in path.read_bytes() for path in tmp_path.iterdir())
