"""`evaluate` as a real process, against the real server and a scripted one; and a verdict in a person's words."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.bench.answers import EvaluateAnswer, parse
from kernel_agent.cli.evaluate import lines
from kernel_agent.cli.main import main
from kernel_agent.run.types import Problem
from tests.support.edits import edit
from tests.support.measuring import HONEST, ROOT, SCALE_ADD

MODULE = edit(edit(SCALE_ADD.split("def get_inputs")[0], "class Model(", "class ScaleAdd("), ", scale)", ", scale=1.5)")
PARTLY = edit(
    edit(HONEST, "return out", "return out + x.sin() - x.sin()"), "__init__(self, scale)", "__init__(self, scale=1.5)"
)


@pytest.fixture
def there(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a problem and kernels in it, which commands run in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    files = {"problem.py": SCALE_ADD, "module.py": MODULE, "honest.py": HONEST, "partly.py": PARTLY}
    files |= {"typo.py": "def f(:\n", "empty.py": "x = 1\n"}
    files |= {f"{verdict}.py": f"# verdict: {verdict}\n" for verdict in ("wrong", "build_error", "suspect")}
    files |= {"fast.py": "# speed: 2\n", "refused.py": "# refuse: NO_COMPILER\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    return tmp_path


def scripted(there: Path, more: str = "") -> str:
    return f"python {ROOT / 'tests' / 'support' / 'scripted_bench.py'} --log {shlex.quote(str(there / 'log'))} {more}"


def evaluate(arguments: str, *more: str, stdin: str = "") -> tuple[int, str, str]:
    command = [sys.executable, "-m", "kernel_agent", "evaluate", *arguments.split(), *more]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def evaluate_here(capsys: pytest.CaptureFixture[str], arguments: str, *more: str) -> tuple[int, str, str]:
    """The same in this process, which starts in no time."""
    code = main(["evaluate", *arguments.split(), *more])
    return code, *capsys.readouterr()


def test_an_honest_kernel_from_stdin_passes_and_each_number_is_named(there: Path) -> None:
    code, out, err = evaluate("- --problem problem.py --target cpu --baselines eager", stdin=HONEST)
    assert (code, err) == (0, "")
    rows = dict(row.split(maxsplit=1) for row in reversed(out.splitlines()))
    assert rows["passed"].startswith("problem on cpu (")
    assert "against eager PyTorch (" in rows["speed-up"] and "x [" in rows["speed-up"]
    for part in (" ms [", " with inputs resident", " ms warm, ", " blocks, limit "):
        assert part in rows["time"]
    assert rows["time"].endswith((" reached)", " (passed)"))
    assert "of which 64 are allowed" in rows["error"]
    assert rows["authorship"].startswith("custom: 100% in kernels of its own")
    assert "build " in rows["took"] and "time " in rows["took"]
    assert "memory" in rows["walls"]


@pytest.mark.long
def test_strict_rules_reject_what_the_default_passes_and_json_is_the_answer(there: Path) -> None:
    asked = (
        "partly.py --problem module.py --shapes 256x256,256x256 --target cpu --baselines eager --json --rules strict"
    )
    code, out, err = evaluate(asked)
    assert (code, err) == (6, "")
    answer = json.loads(out)
    assert answer["status"] == "rejected"
    assert "strict" in answer["log"]
    assert {"leads", "notes", "stages", "provenance"} <= answer.keys()


@pytest.mark.long
def test_every_set_of_shapes_has_a_row_of_its_own(there: Path) -> None:
    kernel = edit(HONEST, "__init__(self, scale)", "__init__(self, scale=1.5)")
    asked = "- --problem module.py --shapes 64x256,64x256 --shapes 999x256,999x256 --target cpu --baselines eager"
    code, out, err = evaluate(asked, stdin=kernel)
    assert (code, err) == (0, ""), out
    assert [row.split()[1] for row in out.splitlines() if row.startswith("shape ")] == ["get_inputs:", "get_inputs_2:"]


def test_a_kernel_that_is_no_python_is_a_verdict_too(there: Path) -> None:
    code, out, err = evaluate("typo.py --problem problem.py --target cpu")
    assert (code, err) == (6, "")
    assert out.startswith("build error  problem on cpu")
    assert "line 1" in out


@pytest.mark.parametrize(
    ("candidate", "code", "first"),
    [
        ("fast.py", 0, "passed       problem on cpu\n"),
        ("wrong.py", 6, "wrong        problem on cpu\n             scripted wrong\n             second line\n"),
        ("build_error.py", 6, "build error  problem on cpu\n             scripted build_error\n"),
        ("suspect.py", 6, "suspect      problem on cpu\n"),
    ],
)
def test_a_verdict_is_the_first_word_and_the_exit_code(
    there: Path, candidate: str, code: int, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = evaluate_here(capsys, f"{candidate} --problem problem.py", "--server", scripted(there))
    assert (found, err) == (code, "")
    assert out.startswith(first)


BAD = [
    ("missing.py --problem problem.py", 2, "There is no file missing.py."),
    ("honest.py --problem missing.py", 2, "There is no file missing.py."),
    ("binary.py --problem problem.py", 2, "binary.py is not text in UTF-16 (truncated data): save it as UTF-8."),
    ("honest.py --problem typo.py", 2, "typo does not parse"),
    ("honest.py --problem empty.py", 2, "empty holds no `Model`"),
    ("honest.py --problem module.py", 2, "module defines no `get_inputs`: add it, or give --input-shapes 64x1024"),
    ("honest.py --problem module.py --shapes 4x4", 2, "takes x, y, but --input-shapes gives 1"),
    ("honest.py --problem module.py --shapes 4x4,4x4 --shapes 8x8", 2, "takes x, y, but --input-shapes gives 1"),
    ("honest.py", 2, "required: --problem"),
    ("honest.py --problem problem.py --rules lax", 2, "invalid choice: 'lax'"),
    ("honest.py --problem problem.py --target cpu --baselines jax", 2, "unknown baseline 'jax'"),
    ("honest.py --problem problem.py --target tpu", 2, "unknown target 'tpu'"),
    ("honest.py --problem problem.py --server no-such-command", 4, "there is no command no-such-command"),
]


@pytest.mark.parametrize(("arguments", "code", "sentence"), BAD)
def test_a_fault_of_ours_is_one_sentence_and_no_verdict(
    there: Path, arguments: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = evaluate_here(capsys, arguments)
    assert (found, out) == (code, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert sentence in err


@pytest.mark.parametrize(
    ("candidate", "more", "sentence"),
    [
        ("fast.py", "--behave 'not start'", "its last words are `scripted: refuses to start`"),
        ("fast.py", "--die-at 1", "The measuring server died again"),
        ("refused.py", "", "so it was ordered."),
    ],
)
def test_a_server_that_fails_is_no_verdict(
    there: Path, candidate: str, more: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = f"{candidate} --problem problem.py --json"
    code, out, err = evaluate_here(capsys, asked, "--server", scripted(there, more))
    assert (code, out) == (4, "")
    assert sentence in err


def test_a_terminal_is_told_the_stage_beside_a_verdict_that_goes_elsewhere(there: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kernel_agent", "evaluate", "fast.py", "--problem", "problem.py", "--json"]
    with subprocess.Popen(
        [*command, "--server", scripted(there, "--delay 0.5")], stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        answer = json.loads(process.stdout.read())
    assert answer["status"] == "passed"
    assert b"timing" in os.read(ours, 1 << 16)
    os.close(ours)


ANSWER: dict[str, Any] = {
    "status": "passed",
    "log": "",
    "leads": ["it reads the clock"],
    "error": 0.5,
    "precision": "The kernel is as exact as float32.",
    "timing": {"median_us": 50.0, "low_us": 49.0, "high_us": 51.0, "samples": 20},
    "versus": [
        {
            "baseline": name,
            "timing": {"median_us": us, "low_us": us, "high_us": us, "samples": 20},
            "speedup": {"low": us / 50 - 0.01, "median": us / 50, "high": us / 50 + 0.01},
            "verdict": "faster",
        }
        for name, us in (("eager", 100.0), ("compile", 75.0))
    ],
    "provenance": {
        "device": "EPYC",
        "threads": 2.0,
        "torch": "2.13",
        "protocol": "blocks",
        "label": "hybrid",
        "own_share": 0.75,
        "library_share": 0.25,
        "library_top": "aten::mm",
        "walls": "files; not: network",
    },
    "notes": ["degenerate problem"],
    "stages": {"build_s": 1.5, "check_s": 0.0, "time_s": 2.0},
    "more": "that a later server says",
}


def said(**change: object) -> list[str]:
    return list(lines(parse(EvaluateAnswer, ANSWER | change), Problem("p", "", "cpu")))


def test_a_verdict_in_a_person_s_words() -> None:
    assert said() == [
        "passed       p on cpu (EPYC, threads: 2)",
        "speed-up     2.00x [1.99, 2.01] against eager PyTorch (0.1 ms): faster",
        "speed-up     1.50x [1.49, 1.51] against torch.compile (0.075 ms): faster",
        "time         0.05 ms [0.049, 0.051], 20 blocks",
        "error        0.5 rounding units, of which 64 are allowed",
        "precision    The kernel is as exact as float32.",
        "authorship   hybrid: 75% in kernels of its own, 25% in library code, the most in aten::mm",
        "walls        files; not: network",
        "note         degenerate problem",
        "warning      it reads the clock",
        "took         build 1.5 s, time 2.0 s",
        "measured     blocks; torch 2.13",
    ]


def test_a_verdict_says_how_much_of_the_limit_is_reached_or_that_it_is_passed() -> None:
    assert said(limit_us=40.0)[3] == "time         0.05 ms [0.049, 0.051], 20 blocks, limit 0.04 ms (80% reached)"
    assert said(limit_us=60.0)[3] == "time         0.05 ms [0.049, 0.051], 20 blocks, limit 0.06 ms (passed)"


def test_a_log_orders_a_terminal_nothing() -> None:
    log = "\x1b[2Jgone\x07\nsecond\r\x9b"
    rows = said(status="run_error", timing=None, versus=[], log=log, provenance={}, error=None)
    assert [row.strip() for row in rows[1:3]] == ["gone", "second"] and all(row.isprintable() for row in rows)


def test_of_a_long_log_the_beginning_and_the_end_are_shown() -> None:
    log = "\n".join(f"row {number}" for number in range(100))
    rows = said(status="build_error", timing=None, versus=[], log=log, provenance={}, error=None)
    assert [row.strip() for row in rows[1:3]] == ["row 0", "row 1"]
    assert rows[11].strip() == "... 80 lines left out; --json has them all ..."
    assert rows[21].strip() == "row 99"
