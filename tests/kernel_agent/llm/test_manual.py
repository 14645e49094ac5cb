"""Somebody answers in files, and runs are played again from cassettes: real processes, the scripted judge."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.llm.cassette import fingerprint, read
from kernel_agent.settings import rows
from tests.support.edits import edit
from tests.support.scripted_run import BENCH, MODEL, ROOT

SMALL = "--target cpu --no-seeds --ideas 2 --rounds 2 --implementations 1 --retrieval lexical"


def agent(command: str, *, log: str = "bench.log") -> subprocess.CompletedProcess[str]:
    """A command of the agent in the current directory, measured by the scripted judge."""
    server = shlex.join(["python", str(BENCH), "--log", str(Path(log).absolute())])
    words = [sys.executable, "-m", "kernel_agent", *command.split(), "--server", server]
    return subprocess.run(words, capture_output=True, text=True, timeout=120)


def started(folder: str = "kept", more: str = "") -> subprocess.CompletedProcess[str]:
    return agent(f"run relu.py --run-directory {folder} --provider manual --no-wait {SMALL} {more}")


def waiting(done: subprocess.CompletedProcess[str]) -> list[Path]:
    """The prompts that a run ended with."""
    assert done.returncode == 4, done.stderr
    return [Path(row) for row in done.stdout.splitlines() if row.endswith(".prompt.md")]


WAYS = (
    "Wide vector loads",
    "Stage tiles through shared memory",
    "Persistent grid over rows",
    "Huge pages under outputs",
    "Prefetch distant cachelines",
    "Unrolled accumulators hide latency",
    "Polynomial replaces library exponent",
    "Split reduction across warps",
)
"""Ideas that no rule takes for one another."""


def answer(prompt: Path, speed: float) -> None:
    """What a model would say: new ideas, or a kernel that the scripted judge finds this fast (0: wrong)."""
    reply = prompt.with_name(prompt.name.replace("prompt", "reply"))
    if "Reply with JSON alone" in prompt.read_text():
        ways = WAYS[:4] if reply.name == "001.reply.md" else WAYS[4:]
        ideas = [{"title": way, "transformation": way.lower()} for way in ways]
        reply.write_text(json.dumps(ideas))
    else:
        order = f"# speed: {speed}" if speed else "# verdict: wrong"
        reply.write_text(f"```python\nclass ModelNew(Model):\n    pass  # {reply.name}\n{order}\n```\n")


def judged(log: str = "bench.log") -> list[str]:
    entries = [json.loads(row) for row in Path(log).read_text().splitlines()] if Path(log).exists() else []
    return [entry["source"] for entry in entries if not entry.get("fresh", True)]


def test_without_waiting_all_that_can_goes_on_and_waiting_prompts_are_listed(there: Path) -> None:
    (ideas,) = waiting(first := started())
    assert ideas == Path("kept/manual/001.prompt.md") and "Propose up to 2 ideas" in ideas.read_text()
    told, stopped = first.stderr.splitlines()
    assert told == "waiting for 1 replies: answer each prompt in the .reply.md beside it"
    assert stopped.endswith(" resume kept")
    assert waiting(agent("resume kept")) == [ideas], "asking again makes no second file"
    answer(ideas, 0)
    both = waiting(agent("resume kept"))
    assert [prompt.name for prompt in both] == ["002.prompt.md", "003.prompt.md"]
    before = len(judged())
    answer(both[1], 0)
    repair, write = sorted(waiting(agent("resume kept")), reverse=True)
    assert (write, repair.name) == (both[0], "004.prompt.md"), "the one that came is judged and its repair asked for"
    assert "the judge found: wrong" in repair.read_text()
    assert len(judged()) == before + 1
    for speed, prompt in enumerate((repair, write), 2):
        answer(prompt, float(speed))
    (second,) = waiting(agent("resume kept --rounds 2"))
    assert "Propose" in second.read_text()
    done = agent("resume kept --rounds 1")
    assert done.returncode == 0 and "best kernel: kept/best_kernel.py" in done.stdout
    sources = judged()
    assert len(sources) == len(set(sources)), "no stop made the judge work twice"


@pytest.mark.long
def test_a_run_copied_elsewhere_finds_its_replies_though_the_prompts_differ(there: Path) -> None:
    (ideas,) = waiting(started())
    answer(ideas, 0)
    for prompt in waiting(agent("resume kept")):
        answer(prompt, 3.0)
    shutil.copytree("kept", "elsewhere/kept")
    for prompt in Path("elsewhere/kept/manual").glob("*.prompt.md"):
        text = prompt.read_text()
        prompt.write_text(re.sub(r'"key": "\w+"', '"key": "of other words"', text, count=1))
    (later,) = waiting(agent("resume elsewhere/kept", log="other.log"))
    assert later.name == "004.prompt.md" and "Propose" in later.read_text()
    assert any("003.reply.md" in source for source in judged("other.log"))
    assert not any("003.reply.md" in source for source in judged())


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """The directory of a run that waited for each reply and wrote tape.jsonl; what it said is in `out`."""
    there = tmp_path_factory.mktemp("recorded")
    (there / "relu.py").write_text(MODEL)
    server = shlex.join(["python", str(BENCH), "--log", str(there / "bench.log")])
    command = f"run relu.py --run-directory kept --provider manual --record tape.jsonl {SMALL}".split()
    keyless = {name: value for name, value in os.environ.items() if name not in {row.variable for row in rows()}}
    environment = keyless | {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "kernel_agent", *command, "--server", server]
    said = []
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=there, env=environment) as process:
        assert process.stdout
        for row in process.stdout:
            said.append(row)
            if found := re.search(r"waiting for (\S+)\.reply\.md", row):
                asked = [row for row in said if "waiting for" in row]
                if len(asked) != 2:  # the second stays open until the third has come
                    answer(there / f"{found[1]}.prompt.md", 1.5 + len(asked))
                if len(asked) == 3:
                    answer(there / "kept" / "manual" / "002.prompt.md", 9.0)
    assert process.returncode == 0
    (there / "out").write_text("".join(said))
    return there


@pytest.mark.long
def test_several_prompts_wait_at_once_in_a_run_that_waits(recorded: Path) -> None:
    order = re.findall(r"answer (\d+)\.prompt\.md there", (recorded / "out").read_text())
    assert order == sorted(order) and len(order) > 4


@pytest.mark.long
def test_a_recorded_run_is_played_again_without_a_key_or_the_first_directory(there: Path, recorded: Path) -> None:
    done = agent(f"run relu.py --run-directory again --cassette {recorded / 'tape.jsonl'}", log="again.log")
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(set(judged("again.log"))) == sorted(set(judged(str(recorded / "bench.log"))))
    best = re.search(r"\d+\.\d\dx \[.*against eager PyTorch", (recorded / "out").read_text())
    assert best and best[0] in done.stdout
    assert not Path("again/manual").exists()
    from_run = agent("run relu.py --run-directory third --provider replay --cassette again", log="third.log")
    assert from_run.returncode == 0 and sorted(judged("third.log")) == sorted(judged("again.log"))


def test_a_recording_is_played_on_a_judge_that_finds_otherwise(there: Path, recorded: Path) -> None:
    head, *calls = edit((recorded / "tape.jsonl").read_text(), "# speed: 9.0", "# verdict: wrong").splitlines()
    changed = [json.dumps({**json.loads(row), "key": "of other words"}) for row in calls]
    Path("tape.jsonl").write_text("\n".join([head, *changed]) + "\n")
    done = agent("run relu.py --run-directory again --cassette tape.jsonl", log="again.log")
    assert (done.returncode, done.stderr) == (0, "")
    assert any("# verdict: wrong" in source for source in judged("again.log"))


@pytest.mark.long
def test_a_run_that_stops_is_recorded_as_far_as_it_came(there: Path) -> None:
    (ideas,) = waiting(started("kept", "--record tape.jsonl"))
    assert read(Path("tape.jsonl")).calls == ()
    answer(ideas, 0)
    waiting(agent("resume kept"))
    (call,) = read(Path("tape.jsonl")).calls
    assert (str(call.place), call.usage["role"]) == ("ideas of round 1, no. 1", "ideas")
    done = agent("run relu.py --run-directory again --cassette tape.jsonl")
    assert done.returncode == 4 and "round 1, attempt 0, no. 1) is not among the recorded ones" in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("", "is not a cassette"),
        ("{", "is not a cassette"),
        ('{"cassette": 1}', "is not a cassette"),
        ('{"cassette": 99}', "format 99, this version plays 3"),
        ('{"cassette": 1, "problem": {"name": "a", "source": "b", "target": "cpu"}, "settings": {}}\n[]', "not a cas"),
    ],
)
def test_what_is_not_a_cassette_is_said_in_one_sentence(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "tape.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=words) as fault:
        read(path)
    assert "\n" not in str(fault.value)


def test_a_cassette_of_another_problem_is_refused(there: Path, recorded: Path) -> None:
    tape = recorded / "tape.jsonl"
    Path("other.py").write_text(edit(MODEL, "relu", "tanh"))
    for command, words in (
        (f"run other.py --run-directory again --cassette {tape}", "was recorded for another source"),
        (f"run relu.py --run-directory again --cassette {tape} --target cuda", "give --target cpu"),
    ):
        done = agent(command)
        assert done.returncode == 2 and words in done.stderr
        assert not Path("again").exists()


def test_an_old_cassette_knows_its_problem_s_text_and_a_new_one_holds_none(there: Path, recorded: Path) -> None:
    tape = (recorded / "tape.jsonl").read_text()
    source = (recorded / "relu.py").read_text()
    assert source.splitlines()[-1] not in tape.splitlines()[0]
    head, *calls = tape.splitlines()
    about = json.loads(head)
    del about["problem"]["sha256"]
    old = {**about, "cassette": 1, "problem": {**about["problem"], "source": source}}
    Path("old.jsonl").write_text("\n".join([json.dumps(old), *calls]) + "\n")
    assert read(Path("old.jsonl")) == read(recorded / "tape.jsonl")


def test_a_cassette_from_before_seeds_plays_without_a_new_one_as_it_says(tmp_path: Path) -> None:
    head = {"cassette": 2, "problem": {"name": "a", "sha256": "b", "target": "cpu"}}
    for settings, seeds in (({}, False), ({"seeds": True}, True), ({"seeds": False}, False)):
        (tmp_path / "tape.jsonl").write_text(json.dumps(head | {"settings": settings}) + "\n")
        assert read(tmp_path / "tape.jsonl").settings["seeds"] is seeds


CASSETTES = sorted((ROOT / "tests" / "cassettes").glob("*.jsonl"))


def recorded_runs(elsewhere: pytest.MarkDecorator) -> list[object]:
    """The cassettes; those of a GPU bear the mark."""
    marks = {path: [] if read(path).subject.target == "cpu" else [elsewhere] for path in CASSETTES}
    return [pytest.param(path, marks=marks[path], id=path.stem) for path in CASSETTES]


def problem_of(cassette: Path) -> str:
    """The text of a cassette's problem: ours, or one of KernelBench, of which KERNELBENCH names a checkout."""
    places = [ROOT / "examples", ROOT / "tests" / "cassettes"]
    places += [Path(os.environ["KERNELBENCH"]) / "KernelBench"] if "KERNELBENCH" in os.environ else []
    texts = (path.read_text() for place in places for path in place.rglob("*.py"))
    wanted = read(cassette).subject.sha256
    found = next((text for text in texts if fingerprint(text) == wanted), None)
    if found is None:
        pytest.skip("needs the problem's text: let KERNELBENCH name a checkout of KernelBench")
    return found


def played(cassette: Path, more: list[str]) -> subprocess.CompletedProcess[str]:
    """The run of a cassette in the current directory, its problem copied there."""
    name = f"{read(cassette).subject.name}.py"
    Path(name).write_text(problem_of(cassette))
    command = ["run", name, "--run-directory", "again", "--cassette", str(cassette), *more]
    return subprocess.run([sys.executable, "-m", "kernel_agent", *command], capture_output=True, text=True)


@pytest.mark.parametrize("cassette", recorded_runs(pytest.mark.long))
def test_what_a_mind_once_answered_is_played_whole(there: Path, cassette: Path) -> None:
    done = played(cassette, ["--server", shlex.join(["python", str(BENCH), "--log", str(Path("log").absolute())])])
    assert (done.returncode, done.stderr) == (0, "")
    codes = [call.reply for call in read(cassette).calls if call.usage["role"] == "code"]
    codes = [reply.partition("```python\n")[2].partition("\n```")[0] for reply in codes]
    found = [code for code in codes if any(code in source for source in judged("log"))]
    assert len(found) >= 2, "the scripted judge's graph lets a template take one idea's place"


@pytest.mark.long
@pytest.mark.parametrize("cassette", recorded_runs(pytest.mark.gpu))
def test_what_a_mind_once_wrote_passes_the_real_judge(there: Path, cassette: Path) -> None:
    done = played(cassette, [])
    assert (done.returncode, done.stderr) == (0, "")
    mine = [row for row in done.stdout.splitlines() if row.startswith("r1 ")]
    assert mine and all(" passed " in row for row in mine), done.stdout
