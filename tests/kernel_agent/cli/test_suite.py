"""`suite run` and `suite resume` as real processes: against scripted servers, with bad input, killed, on a terminal."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from kernel_agent.cli.suite_screen import SuiteScreen, clock, counts
from kernel_agent.run.budget import Limits
from kernel_agent.run.journal import read as run_in
from kernel_agent.run.types import Interval
from kernel_agent.suite.board import Board, Lane
from kernel_agent.suite.store import Store, read
from kernel_agent.suite.types import State
from tests.support.drawn_pages import unpacked
from tests.support.edits import edit
from tests.support.paths import ROOT
from tests.support.scripted_run import BENCH, MODEL
from tests.support.scripted_suite import plan, problems

SMALL = ("--provider", "templates", "--target", "cpu", "--ideas", "2", "--rounds", "1", "--implementations", "1")
QUICK = (*SMALL, "--retrieval", "lexical", "--sweep-evaluations", "0", "--no-experience")


def server(there: Path, *more: str) -> tuple[str, str]:
    return "--server", shlex.join(["python", str(BENCH), "--log", str(there / "bench.log"), *more])


def suite(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernel_agent", "suite", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two problems, one that the server finds at fault, and a file that is none."""
    place = tmp_path / "deck"
    place.mkdir()
    (place / "1_relu.py").write_text(MODEL)
    (place / "2_relu.py").write_text(f"{MODEL}# another\n")
    (place / "3_raises.py").write_text(f"{MODEL}# refuse: BAD_PROBLEM\n")
    (place / "4_none.py").write_text("print('no problem')\n")
    return place


def test_a_folder_is_played_and_what_fails_stops_nothing(tmp_path: Path, folder: Path) -> None:
    done = suite("run", folder, "--run-directory", tmp_path / "s", *server(tmp_path), *QUICK)
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "s")
    assert [str(found.outcome(one).state) for one in found.problems] == ["done", "done", "failed", "failed"]
    assert found.outcomes["3_raises"].fault == found.outcomes["4_none"].fault == "ProblemError"
    assert "2 of 4 problems were played, 2 failed" in done.stdout
    assert re.search(r"2_relu is played: .* [12] of 4 played, [12] failed, ", done.stdout)
    assert "4_none failed: 4_none holds no `Model`" in done.stdout
    assert f"the page: {tmp_path / 's' / 'report.html'}" in done.stdout
    [page] = unpacked((tmp_path / "s" / "report.html").read_text(), "facts")["suites"]
    assert (page["state"], page["rows"][0]["page"]) == ("finished", "problems/1_relu/report.html")
    for name in ("1_relu", "2_relu"):
        shown = subprocess.run(
            [sys.executable, "-m", "kernel_agent", "show", str(tmp_path / "s" / "problems" / name)],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        assert shown.returncode == 0 and "best kernel:" in shown.stdout
    again = suite("run", folder, "--run-directory", tmp_path / "s", *server(tmp_path), *QUICK)
    assert again.returncode == 0 and "begins" not in again.stdout
    (folder / "1_relu.py").write_text(f"{MODEL}# changed\n")
    other = suite("run", folder, "--run-directory", tmp_path / "s", *server(tmp_path), *QUICK)
    assert other.returncode == 2 and "has other problems than" in other.stderr


def test_a_suite_stopped_by_a_signal_says_how_to_go_on(tmp_path: Path, folder: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "kernel_agent",
        "suite",
        "run",
        str(folder),
        "--run-directory",
        str(tmp_path / "s"),
    ]
    command += [*server(tmp_path, "--behave", "ponder"), *QUICK]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stderr
        assert any("1_relu begins" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        words = process.stderr.read()
    assert process.returncode == 130
    assert f"go on with: python -m kernel_agent suite resume {tmp_path / 's'}" in words
    assert read(tmp_path / "s").outcomes["1_relu"].state is State.RUNNING
    resumed = suite("resume", tmp_path / "s", *server(tmp_path))
    assert resumed.returncode == 0, resumed.stderr
    assert run_in(tmp_path / "s" / "problems" / "1_relu").evaluations


def test_a_server_that_does_not_start_ends_the_suite_in_one_sentence(tmp_path: Path, folder: Path) -> None:
    done = suite("run", folder, "--run-directory", tmp_path / "s", *server(tmp_path, "--behave", "not start"), *QUICK)
    assert done.returncode == 4
    assert re.search(r"error: The measuring server .* does not start", done.stderr) and "Traceback" not in done.stderr
    assert "suite resume" in done.stderr


@pytest.mark.parametrize(
    ("pool", "sentence"),
    [
        ("http://127.0.0.1:9/mcp", "The measuring server `http://127.0.0.1:9/mcp` does not answer"),
        ("http://127.0.0.1:9/mcp,http://127.0.0.1:7/mcp", "None of the 2 measuring servers of the pool answers"),
        pytest.param(
            *("ray", "The pool `ray` needs Ray, which is not installed here"),
            marks=pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed"),
        ),
    ],
)
def test_a_pool_that_is_not_there_loses_nothing(tmp_path: Path, folder: Path, pool: str, sentence: str) -> None:
    command = ("run", folder, "--run-directory", tmp_path / "s", *QUICK)
    done = suite(*command, "--pool", pool)
    assert done.returncode == 4 and f"error: {sentence}" in done.stderr and "Traceback" not in done.stderr
    assert len([row for row in done.stderr.splitlines() if row.startswith("error: ")]) == 1
    again = suite(*command, "--pool", "local", *server(tmp_path))
    assert again.returncode == 0 and read(tmp_path / "s").outcomes["1_relu"].state is State.DONE


@pytest.mark.parametrize(
    ("refusal", "code", "sentence"),
    [
        ("NO_ROOM", 4, "All 2 problems failed; 1_relu: so it was ordered."),
        ("BAD_PROBLEM", 2, "All 2 problems failed; 1_relu: so it was ordered."),
    ],
)
def test_a_suite_of_which_every_problem_failed_says_so(tmp_path: Path, refusal: str, code: int, sentence: str) -> None:
    (tmp_path / "deck").mkdir()
    for number in (1, 2):
        (tmp_path / "deck" / f"{number}_relu.py").write_text(f"{MODEL}# refuse: {refusal} {number}\n")
    done = suite("run", tmp_path / "deck", "--run-directory", tmp_path / "s", *server(tmp_path), *QUICK)
    assert (done.returncode, done.stderr.count("error: ")) == (code, 1) and f"error: {sentence}" in done.stderr
    assert ("suite resume" in done.stderr) == (code == 4)


FULL = """
import resource, sys
from kernel_agent.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_disk_ends_a_suite_in_one_sentence_and_loses_nothing(tmp_path: Path, folder: Path) -> None:
    command = ["suite", "run", str(folder), "--run-directory", str(tmp_path / "s"), *server(tmp_path), *QUICK]
    command += ["--ideas", "8", "--rounds", "3", "--problems-at-once", "1"]
    done = subprocess.run([sys.executable, "-c", FULL, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 4 and "Traceback" not in done.stderr
    assert re.search(r"^error: The journal in .*1_relu cannot be written .* what it holds is safe", done.stderr, re.M)
    kept = run_in(tmp_path / "s" / "problems" / "1_relu").evaluations
    assert kept and "2_relu begins" not in done.stdout
    again = suite(*command[1:])
    assert again.returncode == 0 and read(tmp_path / "s").outcomes["2_relu"].state is State.DONE
    assert kept.items() <= run_in(tmp_path / "s" / "problems" / "1_relu").evaluations.items()


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount something read-only")
def test_a_read_only_suite_is_shown_and_not_played(tmp_path: Path, folder: Path) -> None:
    place = tmp_path / "s"
    with Store.create(place, plan(), problems("a")):
        pass
    mount = f"mount --bind {place} {place} && mount -o remount,bind,ro {place} && exec "
    for words, code, sentence in (
        (f"table {place}", 0, ""),
        (f"resume {place}", 2, "cannot be written (Read-only file system)"),
        (f"run {folder} --run-directory {place}/new", 2, "cannot be written (Read-only file system)"),
    ):
        command = f"{mount} {sys.executable} -m kernel_agent suite {words}"
        done = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, cwd=ROOT)
        if done.returncode == 1 and "unshare" in done.stderr:
            pytest.skip("unshare is not allowed here")
        assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
        assert len(done.stderr.strip().splitlines()) == (1 if code else 0)


def test_a_suite_whose_minutes_are_over_says_how_many_wait(tmp_path: Path, folder: Path) -> None:
    done = suite(
        "run", folder, "--run-directory", tmp_path / "s", "--minutes", "0.01", "--problems-at-once", "1",
        *server(tmp_path, "--behave", "ponder"), *QUICK,
    )  # fmt: skip
    assert done.returncode == 5
    assert re.search(r"The budget is spent: 3 problems wait; raise the limits and go on with", done.stderr)
    raised = suite("resume", tmp_path / "s", "--minutes", "60", *server(tmp_path))
    assert raised.returncode == 0, raised.stderr
    assert read(tmp_path / "s").plan.limits == Limits(minutes=60.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "{empty}"], "holds no problem: name a folder"),
        (["run", "{empty}/none"], "There is no file or folder"),
        (["run", "examples", "--ids", "77"], "examples holds no problem with the ids 77"),
        (["run", "examples", "--ids", "x"], "--ids are numbers and ranges such as 1-20,40, not x"),
        (["run", "examples", "--level", "1"], "examples has no level 1"),
        (["run", "{twice}"], "Two problems of the suite are called a"),
        (["run", "{inside}"], "The run of a/b would lie inside that of a"),
        (["run", "README.md"], "Nothing of README.md can be played here"),
        (["run", "examples", "--minutes", "0"], "a limit is a number above 0, not 0"),
        (["run", "examples", "--problems-at-once", "none"], "a whole number above 0 is needed, not none"),
        (["run", "examples", "--record", "one.jsonl"], "--record of a suite is a folder"),
        (["run", "examples", "--minutes-per-problem", "x"], "The setting `budget_minutes` cannot be used"),
        (["resume", "{empty}"], "There is no suite in"),
        (["resume", "{taken}"], "is in use by another process"),
        (["run", "examples", "--run-directory", "{taken}"], "has other problems than examples now holds"),
        (["run", "examples", "--run-directory", "{twice}"], "holds files that no suite has written (a, a.py): choose"),
        (["run", "examples", "--run-directory", "{broken}"], "is damaged, or keeps no suite"),
        (["resume", "{broken}"], "is damaged, or keeps no suite"),
        (["play"], "invalid choice: 'play'"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    for name in ("empty", "twice/a", "inside/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "twice" / "a.py").write_text(MODEL)
    (tmp_path / "twice" / "a" / "reference.py").write_text(MODEL)
    (tmp_path / "inside" / "a.py").write_text(MODEL)
    (tmp_path / "inside" / "a" / "b.py").write_text(MODEL)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "suite.sqlite").write_text("this is no database")
    places = {name: str(tmp_path / name) for name in ("empty", "twice", "inside", "taken", "broken")}
    held = Store.create(tmp_path / "taken", plan(), problems("a"))
    if "run" in arguments:
        held.close()
    with held:
        done = suite(*(word.format(**places) for word in arguments))
    assert done.returncode == 2 and sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr


def test_on_a_terminal_a_live_table_says_what_runs(tmp_path: Path, folder: Path) -> None:
    main, their = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "kernel_agent",
        "suite",
        "run",
        str(folder),
        "--run-directory",
        str(tmp_path / "s"),
    ]
    command += [*server(tmp_path, "--delay", "0.05"), *QUICK]
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    with subprocess.Popen(command, cwd=ROOT, stdout=their, stderr=their, stdin=subprocess.DEVNULL, env=env) as process:
        os.close(their)
        seen = b""
        try:
            while part := os.read(main, 65536):
                seen += part
        except OSError:  # the other end has gone
            pass
    os.close(main)
    assert process.returncode == 0
    assert all(word in seen for word in (b"best so far", b"under way", b"2_relu is played"))


def test_the_table_says_where_each_problem_is_and_what_is_left() -> None:
    board = Board(total=4, at_once=2, granted_minutes=5.0)
    lane = Lane("level1/19_ReLU", 0.0, 5.0, "round 2 of 3", "NVIDIA H200", Interval(1.9, 2.0, 2.1), 0.5, 7)
    board.begin(lane)
    board.took_s.append(60.0)
    screen = SuiteScreen(Console(width=160, force_terminal=False))

    class Played:
        def __init__(self) -> None:
            self.board = board

        def used(self) -> tuple[str, ...]:
            return ("3.0 of 60 minutes",)

    screen.show(Played())  # type: ignore[arg-type]
    with screen.console.capture() as shown:
        screen.console.print(screen.picture())
    text = shown.get()
    for words in (
        "level1/19_ReLU",
        "NVIDIA H200",
        "round 2 of 3",
        "2.00x [1.90, 2.10]",
        "50%",
        "used: 3.0 of 60 minutes",
    ):
        assert words in text
    assert "0 of 4 played, 1 under way, 3 waiting, about " in counts(board)
    assert [clock(one) for one in (7, 187, 7260)] == ["7 s", "3 min 7 s", "2 h 1 min"]


@pytest.mark.long
def test_an_example_and_bad_problems_are_played_for_real(tmp_path: Path) -> None:
    place = tmp_path / "deck"
    place.mkdir()
    (place / "softmax.py").write_text((ROOT / "examples" / "softmax.py").read_text())
    (place / "raises.py").write_text(f"raise ValueError('no')\n{MODEL}")
    hang = "def get_inputs():\n    while True:\n        pass"
    (place / "hangs.py").write_text(MODEL.replace("def get_inputs():\n    return [torch.randn(64, 64)]", hang))
    done = suite(
        "run", place, "--run-directory", tmp_path / "s", "--minutes-per-problem", "3", "--problems-at-once", "2",
        *SMALL, "--retrieval", "lexical", "--no-experience", "--sweep-evaluations", "0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = read(tmp_path / "s")
    states = {one.id: str(found.outcome(one).state) for one in found.problems}
    assert states == {"hangs": "failed", "raises": "failed", "softmax": "done"}
    assert found.outcomes["raises"].fault == "ProblemError" and "ValueError" in (found.outcomes["raises"].reason or "")


SMALL_ONES = (
    "torch.relu(x)", "torch.sigmoid(x) * x", "torch.softmax(x, 1)", "torch.sum(x, 1)", "torch.mean(x * x, 0)",
    "torch.log_softmax(x, 1)", "torch.nn.functional.layer_norm(x, (64,))", "torch.amax(x, 1)",
    "torch.nn.functional.gelu(x) + x", "torch.tanh(x) / 3",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_examples_and_small_problems_killed_twice_end_with_each_judged_once(tmp_path: Path) -> None:
    place, directory = tmp_path / "deck", tmp_path / "s"
    place.mkdir()
    for one in sorted((ROOT / "examples").glob("*.py")):
        (place / one.name).write_text(one.read_text())
    for number, body in enumerate(SMALL_ONES, 1):
        (place / f"{number}_small.py").write_text(edit(MODEL, "torch.relu(x)", body))
    command = [sys.executable, "-m", "kernel_agent", "suite", "run", str(place), "--run-directory", str(directory)]
    command += ["--minutes-per-problem", "2", *QUICK]
    for played in (2, 4):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for number, _ in enumerate((line for line in process.stdout if " is played: " in line), 1):
                if number == played:
                    process.kill()
        assert process.returncode == -signal.SIGKILL
    found = read(directory)
    ended = [one for one in found.problems if found.outcome(one).state is State.DONE]
    before = {one.id: run_in(one.directory(directory)).evaluations for one in ended}
    assert len(before) >= 4
    done = suite("resume", directory)
    assert done.returncode == 0, done.stderr
    found = read(directory)
    assert {str(found.outcome(one).state) for one in found.problems} == {"done"}
    for problem in found.problems:
        run = run_in(problem.directory(directory))
        assert run.evaluations and before.get(problem.id, run.evaluations) == run.evaluations


def test_a_model_that_waits_for_a_person_sets_its_problems_aside(tmp_path: Path, folder: Path) -> None:
    given = ("--provider", "manual", "--no-wait", "--target", "cpu", "--no-seeds", "--retrieval", "lexical")
    done = suite("run", folder, "--ids", "1", "--run-directory", tmp_path / "s", *server(tmp_path), *given)
    assert done.returncode == 4
    assert "1 problem waits for replies: answer them and go on with" in done.stderr
    assert read(tmp_path / "s").outcomes["1_relu"].state is State.WAITING
