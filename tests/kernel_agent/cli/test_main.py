"""The command line as real processes: runs against scripted servers, bad input, Ctrl-C, the doctor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import select
import shlex
import signal
import sqlite3
import subprocess
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.cli.main import main
from kernel_agent.run.journal import Journal
from kernel_agent.settings import is_key, rows
from tests.support.scripted_openai import Refuse, Say, ScriptedOpenAI, Step
from tests.support.scripted_run import BENCH, DESCRIPTION, MODEL, PROBLEM, ROOT, small_settings


def bench(there: Path, delay: float = 0.0) -> str:
    return shlex.join(["python", str(BENCH), "--log", str(there / "bench.log"), "--delay", str(delay)])


def named_command(err: bytes | str) -> list[str]:
    """The arguments of the command that the last line tells a person to type."""
    text = err.decode() if isinstance(err, bytes) else err
    return shlex.split(text.splitlines()[-1].partition("python -m kernel_agent ")[2])


async def start(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kernel_agent", *arguments, stdout=PIPE, stderr=PIPE, stdin=asyncio.subprocess.DEVNULL
    )


async def run(*arguments: str) -> tuple[int, str, str]:
    process = await start(*arguments)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def script(speeds: tuple[float, ...] = (1.5, 9.0, 0.5)) -> Any:
    """A model that always has new ideas and writes kernels that the scripted bench finds this fast."""
    number = count()

    def choose(body: dict[str, Any]) -> Step:
        n = next(number)
        if "Reply with JSON alone" in body["messages"][1]["content"]:
            return Say(json.dumps([{"title": f"idea {n}.{m}", "transformation": "t"} for m in range(4)]))
        return Say(f"```python\nclass ModelNew(Model):\n    pass  # {n}\n# speed: {speeds[n % len(speeds)]}\n```")

    return choose


def asked(there: Path, url: str, delay: float = 0.0) -> list[str]:
    settings = f"--target cpu --provider custom --model tiny --base-url {url} --ideas 2 --rounds 2 --retrieval lexical"
    return ["run", "relu.py", "--run-directory", "kept", *settings.split(), "--server", bench(there, delay)]


async def test_a_run_tells_each_trial_and_ends_with_the_account_which_show_repeats(there: Path) -> None:
    async with ScriptedOpenAI(script()) as model:
        code, out, err = await run(*asked(there, model.url))
    assert (code, err) == (0, "")
    lines, account = out.split("\n\n", 1)
    assert re.search(r"^r2 [0-9a-f]{4} passed 0\.0111 ms 9\.00x  idea", lines, re.MULTILINE)
    for part in (
        "9.00x [8.91, 9.09] against eager PyTorch, 7.20x [7.13, 7.27] against torch.compile",
        "best kernel: kept/best_kernel.py",
        "from best_kernel import ModelNew",
        "measured on scripted",
        "retrieval: lexical",
    ):
        assert part in account, account
    assert "class ModelNew(Model)" in (there / "kept" / "best_kernel.py").read_text()
    assert await run("show", "kept") == (0, "\n" + account, "")
    await check_rewritten(there / "kept")


async def check_rewritten(directory: Path) -> None:
    """A run of before, which tried no file and delivered a bare kernel, gets its files anew."""
    delivered, page = directory / "best_kernel.py", directory / "VERIFICATION.md"
    first = delivered.read_text()
    assert "By itself, in an empty folder" in first and "| builds | yes |" in page.read_text()
    with closing(sqlite3.connect(directory / "journal.sqlite")) as rows, rows:
        rows.execute("DELETE FROM records WHERE kind = 'delivery'")
    delivered.write_text("class ModelNew: ...\n")
    code, _, err = await run("show", directory.name, "--rewrite", "--bind", "torch")
    assert (code, err) == (0, "")
    text = delivered.read_text()
    assert "This file was not tried by itself" in text and "_ka_load_inline" in text and "class ModelNew(Model)" in text
    assert await run("show", directory.name, "--bind", "torch") == (
        2,
        "",
        "error: --bind of `show` goes with --rewrite.\n",
    )


async def test_a_run_stopped_by_its_provider_says_how_to_go_on_and_repays_nothing(there: Path) -> None:
    asking, choose = [], script()

    def fail_late(body: dict[str, Any]) -> Step:
        asking.append(body)
        return choose(body) if len(asking) < 6 else Refuse(401)

    async with ScriptedOpenAI(fail_late) as model:  # one question, four kernels, then the second round's question
        code, _, err = await run(*asked(there, model.url), "--no-seeds")
    assert code == 4
    assert err.splitlines() == [
        "error: custom (tiny) refused with 401: check the key.",
        "What is recorded is kept; go on with: python -m kernel_agent resume kept",
    ]
    code, out, _ = await run("show", "kept")
    assert code == 0
    assert "The run is not finished: python -m kernel_agent resume kept" in out
    async with ScriptedOpenAI(choose) as model:
        code, out, err = await run("resume", "kept", "--base-url", model.url)
        paid = [said["messages"] for said in model.requests]
    assert (code, err) == (0, "")
    assert re.search(r"in kept; [1-9]\d* evaluations kept$", out, re.MULTILINE)
    assert not [said for said in paid if said in [body["messages"] for body in asking[:5]]]


async def test_a_spent_budget_ends_with_its_own_code_and_the_best_so_far(there: Path) -> None:
    limits = "--budget-dollars 0.00107 --prices tiny=0/1 --max-tokens 1000 --no-seeds --max-concurrent-calls 1"
    async with ScriptedOpenAI(script()) as model:
        code, out, err = await run(*asked(there, model.url), *limits.split())
        assert 3 <= len(model.requests) <= 8
    assert code == 5
    assert err.startswith("The budget is spent: $0.0000") or err.startswith("The budget is spent: $0.0001")
    assert err.endswith("then resume the run. What is above is the best so far.\n")
    assert "against eager PyTorch" in out and "best kernel: kept/best_kernel.py" in out


BAD: list[tuple[str, int, str]] = [
    ("", 2, "Give a command: `python -m kernel_agent run FILE` finds"),
    (
        "fly",
        2,
        "There is no command fly: there are run, resume, show, report, watch,",
    ),
    ("runn relu.py", 2, "Did you mean run?"),
    ("relu.py", 2, "relu.py is no command: give `python -m kernel_agent run relu.py`."),
    ("leftover", 2, "leftover is no command: give `python -m kernel_agent show leftover`."),
    ("run", 2, "Give the file with your PyTorch code, such as `python -m kernel_agent run examples/softmax.py`."),
    ("run cells.ipynb", 2, "cells.ipynb is a notebook: save the cell with the module as a .py file"),
    ("run damaged", 2, "To go on with the run in it: python -m kernel_agent resume damaged"),
    ("run relu.py --target cpu --run-directory others", 2, "holds files that no run has written (notes.txt): choose"),
    (
        "run relu.py --target cpu --run-directory damaged",
        2,
        "holds a run already; resume it, or take another",
    ),
    ("show relu.py", 2, "There is no folder relu.py; each run"),
    ("show .", 2, "It holds 2 runs; give one of them, such as leftover"),
    ("run relu.py --provider opnai", 2, "Did you mean openai?"),
    ("run missing.py", 2, "There is no file missing.py."),
    ("run .", 2, "is a folder, and this takes one file: name the file in it. It holds binary.py, bom.py, empty.py"),
    ("run binary.py", 2, "is not text in UTF-16"),
    ("run syntax.py", 2, "does not parse"),
    ("run page.md", 2, "page.md is no Python file: save its block of Python as a .py file"),
    ("run kernel.cu", 2, "kernel.cu is no Python file: give the .py file with the module, such as examples/softmax.py"),
    ("run relu.py --run-dir x", 2, "did you mean --run-directory?; see"),
    ("run relu.py --budget 3", 2, "did you mean --budget-minutes, --budget-dollars, --budget-tokens?; see"),
    ("run relu.py --device cuda", 2, "did you mean --target?; see"),
    ("run relu.py --verbose", 2, "arguments: --verbose; see"),
    ("run relu.py --api-key 1", 2, "keys are taken from the environment or .env alone: OPENAI_API_KEY"),
    ("run empty.py", 2, "holds no `Model`"),
    ("run shapeless.py", 2, "add it, or give --input-shapes 64x1024, one for each input of `Model.forward` (x)"),
    ("run shapeless.py --input-shapes 4x4 4x4", 2, "takes x, but --input-shapes gives 2"),
    ("run relu.py --input-shapes 4x4", 2, "leave --input-shapes out"),
    ("run shapeless.py --input-shapes 4x-4", 2, "sizes joined by x, such as 64x1024, not 4x-4"),
    ("run minus.py", 2, "nested too deeply"),
    ("run bom.py --provider openai --target cpu", 4, "set OPENAI_API_KEY"),
    ("run relu.py --run-directory leftover --server no-such-command", 4, "there is no command no-such-command"),
    ("resume leftover", 2, "Nothing was recorded in leftover: start again"),
    ("show leftover", 2, "Nothing was recorded in leftover: start again"),
    ("resume damaged", 2, "is damaged"),
    ("show damaged", 2, "is damaged"),
    ("run relu.py --rund", 2, "see `python -m kernel_agent run --help`"),
    ("run relu.py --rounds 0", 2, "`num_rounds` cannot be used"),
    ("run relu.py --provider clippy", 2, "`provider` cannot be used"),
    ("run relu.py --provider openai --target cpu", 4, "set OPENAI_API_KEY"),
    ("run relu.py --runs-dir /proc/here", 2, "cannot be written"),
    ("run relu.py --target cpu --server no-such-command", 4, "there is no command no-such-command"),
    ("run shapeless.py --input-shapes 4by4", 2, "sizes joined by x, such as 64x1024, not 4by4"),
    ("run relu.py --num-round 3", 2, "arguments: --num-round 3"),
    ("show nowhere", 2, "There is no folder nowhere; each run"),
    ("resume nowhere", 2, "There is no folder nowhere; each run"),
]


async def test_an_uncovered_module_is_delivered_as_it_is_with_the_reason_by_region(there: Path) -> None:
    problem = MODEL + "# uncovered\n"
    (there / "sorts.py").write_text(problem)
    code, out, err = await run("run", "sorts.py", "--target", "cpu", "--server", bench(there), "--run-directory", "new")
    assert code == 0, err
    for part in (
        "The original is delivered: the templates have no kernel for any part of this module.",
        "    sort: no template covers aten.sort.default.",
        "OPENAI_API_KEY",
        "--provider manual",
        "`python -m kernel_agent evaluate`",
    ):
        assert part in out + err
    assert (there / "new" / "best_kernel.py").read_text() == problem
    results = json.loads((there / "new" / "results.json").read_text())
    assert (results["status"], results["evaluations"], results["regions"]["kernels"]) == ("no_improvement", 0, 0)
    kept = {"part": "sort", "reason": "no template covers aten.sort.default."}
    assert results["regions"]["kept"] == [kept]
    assert (there / "bench.log.described").read_text() == "['eager']\n", "torch.compile was timed for nothing"
    code, again, err = await run("resume", "new", "--server", bench(there))
    assert code == 0 and "sort: no template covers" in again, err


@pytest.mark.parametrize(("command", "code", "sentence"), BAD)
def test_bad_input_gets_one_clear_sentence(
    there: Path, command: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (there / "binary.py").write_bytes(b"\xff\xfe\x00")
    (there / "page.md").write_text("# A page\n\n```python\nimport torch\n```\n")
    (there / "kernel.cu").write_text("__global__ void f() {}\n")
    (there / "syntax.py").write_text("def f(:\n")
    (there / "empty.py").write_text("x = 1\n")
    (there / "cells.ipynb").write_text("{}")
    (there / "others").mkdir()
    (there / "others" / "notes.txt").touch()
    (there / "shapeless.py").write_text(MODEL.split("def get_inputs")[0])
    (there / "minus.py").write_text("x = " + "-" * 20_000 + "1\n")
    (there / "bom.py").write_text(MODEL, "utf-8-sig")
    Journal.create(there / "leftover").close()
    with Journal.create(there / "damaged") as journal:
        journal.begin(PROBLEM, small_settings())
        journal._put("description", "{")
    before = set(there.iterdir())
    assert main(command.split()) == code
    assert set(there.iterdir()) == before, "what fails at once leaves nothing behind"
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert sentence in err


MISSING = """
import runpy, sys
for name in {missing!r}: sys.modules[name] = None
sys.argv = {argv!r}
runpy.run_path({program!r}, run_name="__main__")
"""


@pytest.mark.long
@pytest.mark.parametrize("missing", ["mcp", "rich", "pydantic", "pydantic_settings"])
@pytest.mark.parametrize("command", ["kernel_agent run relu.py", "kernel_agent doctor", "test_agent.py relu.py"])
def test_a_missing_package_is_named_with_what_to_do(there: Path, missing: str, command: str) -> None:
    program, *argv = command.split()
    path = ROOT / program / "__main__.py" if program == "kernel_agent" else ROOT / program
    script = MISSING.format(missing=[missing], argv=[program, *argv], program=str(path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    if (missing, argv) == ("rich", ["doctor"]):
        return  # which draws nothing
    sentence = f"error: The package {missing} is missing in this Python; activate .venv or pip install"
    assert (done.returncode, done.stderr) == (4, f"{sentence} -r requirements.txt.\n")
    assert not (there / "runs").exists()


def test_a_path_is_never_broken_and_broken_results_do_not_hide_the_account(
    there: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    place = there / ("long" * 50)
    with Journal.create(place) as journal:
        journal.begin(PROBLEM, small_settings())
        journal.describe(DESCRIPTION)
    assert main(["show", str(place)]) == 0
    assert f"python -m kernel_agent resume {place}\n" in capsys.readouterr().out
    (place / "best_kernel.py").touch()
    for broken in ("{", "[]", "\x00"):
        (place / "results.json").write_text(broken)
        assert main(["show", str(place)]) == 0
        assert f"    import sys; sys.path.insert(0, {str(place)!r})\n" in capsys.readouterr().out


async def test_a_refusal_of_the_real_server_is_a_sentence_too(there: Path) -> None:
    code, _, err = await run("run", "relu.py", "--target", "tpu", "--retrieval", "lexical")
    assert code == 2
    assert re.fullmatch("error: .*tpu.*\n", err)


async def test_shapes_stand_in_for_get_inputs(there: Path) -> None:
    (there / "shapeless.py").write_text(MODEL.split("def get_inputs")[0])
    async with ScriptedOpenAI(script()) as model:
        arguments = asked(there, model.url)
        arguments[1] = "shapeless.py"
        code, _, err = await run(*arguments, "--input-shapes", "64x64", "--rounds", "1")
    assert (code, err) == (0, "")


async def first(stream: asyncio.StreamReader, part: bytes) -> AsyncIterator[bytes]:
    """The stream's first line that holds this part, or nothing where it ends before."""
    async for row in stream:
        if part in row:
            yield row
            return


@contextlib.asynccontextmanager
async def judging(there: Path) -> AsyncIterator[tuple[Process, list[int]]]:
    """A run whose kernels are being judged, which takes for ever, and watches on its children's ends."""
    async with ScriptedOpenAI(script()) as model:
        process = await start(*asked(there, model.url, delay=3600), "--no-seeds")
        assert process.stdout is not None
        assert [row async for row in first(process.stdout, b"round 1")], (await process.communicate())[1]
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        watches = [os.pidfd_open(int(child)) for child in children]
        try:
            yield process, watches
        finally:
            for watch in watches:
                os.close(watch)


def ended(watches: list[int], within_s: float) -> bool:
    """Whether all the watched processes end in time; a pidfd is readable once its process has."""
    deadline = time.monotonic() + within_s
    return all(select.select([watch], [], [], max(0.0, deadline - time.monotonic()))[0] for watch in watches)


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(n, marks=pytest.mark.long) for n in (signal.SIGTERM, signal.SIGHUP))]
)
async def test_a_stop_ends_the_children_and_says_how_to_go_on(there: Path, number: signal.Signals) -> None:
    async with judging(there) as (process, watches):
        assert watches
        process.send_signal(number)
        _, err = await asyncio.wait_for(process.communicate(), 5)
        assert process.returncode == 130
        assert ended(watches, 0)
    assert named_command(err) == ["resume", "kept"]
    code, out, _ = await run("show", "kept")
    assert code == 0
    assert "not finished" in out


async def test_a_second_ctrl_c_ends_the_process_at_once(there: Path) -> None:
    async with judging(there) as (process, watches):
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        assert [row async for row in first(process.stderr, b"again to stop at once")]
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), 1)
        assert process.returncode == 130
        assert err.decode() == "stopped; go on with: python -m kernel_agent resume kept\n"
        assert ended(watches, 5)


def test_a_run_not_cancelled_in_time_says_how_to_go_on_before_it_ends(there: Path) -> None:
    with Journal.create(there / "kept") as journal:
        journal.begin(PROBLEM, small_settings())
    script = """
import asyncio, os, pathlib, signal; from kernel_agent.cli import watched as w
async def deaf():
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        try: await asyncio.sleep(3600)
        except asyncio.CancelledError: pass
w.GRACE_S = 0.1
watched = w.Watched(); watched.directory = pathlib.Path("kept")
w.until_done(deaf(), watched)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 130
    assert named_command(done.stderr) == ["resume", "kept"]


async def test_a_server_lost_while_a_resumed_run_is_described_says_how_to_go_on(there: Path) -> None:
    with Journal.create(there / "kept") as journal:
        journal.begin(PROBLEM, small_settings())
    code, _, err = await run("resume", "kept", "--server", f"{bench(there)} --behave 'die describing'")
    assert code == 4
    assert re.match("error: The measuring server died again", err)
    assert named_command(err) == ["resume", "kept"]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_run_stopped_while_it_is_described_says_how_to_go_on(there: Path, number: signal.Signals) -> None:
    server = f"{bench(there)} --behave ponder"
    process = await start("run", "relu.py", "--target", "cpu", "--run-directory", "kept", "--server", server)
    assert process.stdout is not None
    assert [row async for row in first(process.stdout, b"tracing")]
    process.send_signal(number)
    _, err = await asyncio.wait_for(process.communicate(), 10)
    assert process.returncode == 130
    assert named_command(err) == ["resume", "kept"]
    code, _, err = await run("resume", "kept", "--server", bench(there), "--rounds", "1", "--retrieval", "lexical")
    assert (code, err) == (0, "")


async def test_a_run_stopped_while_its_server_starts_leaves_nothing(there: Path) -> None:
    process = await start("run", "relu.py", "--target", "cpu", "--server", f"{bench(there)} --behave hang")
    async with asyncio.timeout(30):
        while not list(there.glob("runs/*/server.log")):
            await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), 10)
    assert (process.returncode, err.decode().splitlines()[-1]) == (130, "stopped")
    assert not (there / "runs").exists()


async def test_a_terminal_gets_the_live_table(there: Path) -> None:
    async with ScriptedOpenAI(script()) as model:
        ours, theirs = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "kernel_agent",
            *asked(there, model.url, 0.2),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        shown = asyncio.create_task(asyncio.to_thread(lambda: b"".join(_read(ours))))
        assert await process.wait() == 0
        text = (await shown).decode()
    assert "round 1 of 2" in text
    assert "best so far" in text
    assert "\x1b[?25h" in text, "the cursor is shown again"
    assert "best kernel: kept/best_kernel.py" in text


def _read(end: int) -> Iterator[bytes]:
    """What the terminal's other side writes; Linux answers EIO once it is closed."""
    with contextlib.suppress(OSError), os.fdopen(end, "rb", buffering=0) as file:
        while part := file.read(65536):
            yield part


async def test_the_doctor_says_line_by_line_what_this_machine_can_do(there: Path) -> None:
    code, out, err = await run("doctor", "--server", bench(there), "--retrieval", "lexical")
    assert (code, err) == (0, "")
    for row in (
        r"^ok      python +3\.",
        r"^-       version of torch +torch 99.0 is newer than all\n +to do: if something fails, use one of these$",
        r"^ok      target cpu +scripted",
        r"^-       target cuda +no device\n +to do: plug one in$",
        r"^-       model +no key is set: templates propose\n +to do: set one of OPENAI_API_KEY",
        r"^-       folder: queue +/q cannot be used: only the user ann may write there\n +to do: ask$",
        r"^ok      folder: builds +/b \(since /a b has ' ' in its path\)$",
        rf"^ok      folder: runs +{re.escape(str(there))}/runs$",
        r"^ok      retrieval +lexical",
    ):
        assert re.search(row, out, re.MULTILINE), row


async def test_the_doctor_tells_a_script_a_line_of_json_for_each_check(there: Path) -> None:
    code, out, err = await run("doctor", "--server", bench(there), "--retrieval", "lexical", "--json")
    found = {row["name"]: row for row in map(json.loads, out.splitlines())}
    assert (code, err, found["target cpu"]["ok"]) == (0, "", True)
    assert (found["target cuda"]["ok"], found["target cuda"]["fix"]) == (None, "plug one in")


@pytest.mark.parametrize("runs", ["file", "file/runs"])
async def test_the_doctor_finds_folders_that_cannot_be_written_before_a_run_does(
    there: Path, monkeypatch: pytest.MonkeyPatch, runs: str
) -> None:
    (there / "file").write_text("")
    (there / ".env").write_bytes(f"# für alle\nKERNEL_AGENT_RUNS_DIR={runs}\n".encode("utf-16"))
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "TMPDIR"):
        monkeypatch.setenv(variable, str(there / ("" if variable == "TMPDIR" else "file")))
    _, out, err = await run("doctor", "--server", bench(there), "--retrieval", "lexical")
    assert err == ""
    for row in (
        rf"^ok      \.env +{there}/\.env sets KERNEL_AGENT_RUNS_DIR$",
        rf"^MISSING folder: runs +{there}/{runs} cannot be written\n +to do: .*--runs-dir",
        rf"^ok      folder: temporary +{there}$",
        rf"^-       folder: index +{there}/kernel_agent-\d+ \(since {there}/file cannot be written\)\n +to do: set XDG",
        rf"^(-|MISSING) +experience +.*{there}/file/kernel_agent/experience\.sqlite cannot be .*\n +to do:",
        r"^ok      retrieval +lexical",
    ):
        assert re.search(row, out, re.MULTILINE), (row, out)


async def test_the_doctor_fails_where_nothing_can_be_measured(there: Path) -> None:
    code, out, _ = await run("doctor", "--server", "no-such-command", "--retrieval", "lexical")
    assert code == 4
    assert re.search(r"^MISSING server +.*no command no-such-command", out, re.MULTILINE)


async def test_help_has_every_setting_and_its_sentence_but_no_flag_for_a_key(there: Path) -> None:
    code, out, _ = await run("run", "--help")
    assert code == 0
    plain = " ".join(out.split())
    for row in rows():
        flag = f"--{row.name.replace('_', '-')}"
        assert (flag in plain) != is_key(row.name)
        assert is_key(row.name) or " ".join(row.sentence.split()) in plain
