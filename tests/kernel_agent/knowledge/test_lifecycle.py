"""Runs that learn from one another: real processes, the scripted judge, somebody who answers in files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernel_agent.llm.cassette import read as read_cassette
from kernel_agent.run.journal import Journal
from kernel_agent.run.journal import read as read_run
from kernel_agent.settings import rows
from rag.experience.ledger import Experience, Ledger
from tests.support.experiences import experience
from tests.support.scripted_run import BENCH, MODEL, ROOT

SMALL = "--target cpu --no-seeds --ideas 2 --rounds 2 --implementations 1 --max-repairs 0 --retrieval lexical"
IDEAS = {
    1: [("Wide vector loads", 1.5), ("Stage tiles through shared memory", 0.0)],
    2: [("Persistent grid over rows", 3.0), ("Huge pages under outputs", 0.5)],
}
"""By round: ideas, each with the speed that the judge will find over eager PyTorch; 0 is wrong."""


@dataclass(frozen=True)
class Place:
    """A directory with a problem in it, a user's data and cache."""

    home: Path

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.home / "data" / "kernel_agent" / "experience.sqlite")

    def known(self) -> tuple[Experience, ...]:
        return self.ledger.read().experiences

    def agent(self, command: str) -> subprocess.CompletedProcess[str]:
        """A command of the agent, measured by the scripted judge."""
        keyless = {name: value for name, value in os.environ.items() if name not in {row.variable for row in rows()}}
        own = {"XDG_DATA_HOME": str(self.home / "data"), "XDG_CACHE_HOME": str(self.home / "cache")}
        words = [sys.executable, "-m", "kernel_agent", *shlex.split(command)]
        if words[3] in ("run", "resume"):
            words += ["--server", shlex.join(["python", str(BENCH), "--log", str(self.home / "bench.log")])]
        environment = keyless | own | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=self.home, env=environment)

    def answered(self, done: subprocess.CompletedProcess[str], directory: str) -> subprocess.CompletedProcess[str]:
        """The same run after its prompts are answered, as often as there are any."""
        while done.returncode == 4 and (prompts := [self.home / row for row in done.stdout.splitlines() if "/" in row]):
            for prompt in prompts:
                if prompt.suffix == ".md":
                    answer(prompt)
            done = self.agent(f"resume {directory}")
        return done


def answer(prompt: Path) -> None:
    text = prompt.read_text()
    reply = prompt.with_name(prompt.name.replace("prompt", "reply"))
    if "Reply with JSON alone" in text:
        number = 2 if IDEAS[1][0][0] in text.partition("## Experience")[0] else 1
        found = [
            {"title": title, "transformation": f"the way of {title.lower()}", "predicted_gain": 1.4}
            for title, _ in IDEAS[number]
        ]
        reply.write_text(json.dumps(found))
    else:
        speed = next(speed for ideas in IDEAS.values() for title, speed in ideas if f" the idea\n{title}\n" in text)
        order = f"# speed: {speed}" if speed else "# verdict: wrong"
        reply.write_text(f"```python\nclass ModelNew(Model):\n    pass  # {reply.name}\n{order}\n```\n")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """`first` was run by templates, then `second` by somebody with files, who was told of it; it was recorded too."""
    place = Place(tmp_path_factory.mktemp("story"))
    (place.home / "relu.py").write_text(MODEL)
    done = place.agent("run relu.py --run-directory first --target cpu --ideas 3 --rounds 1 --retrieval lexical")
    assert done.returncode == 0, done.stderr
    shutil.copytree(place.home / "data", place.home / "data-after-first")
    waits = place.agent(f"run relu.py --run-directory second --provider manual --no-wait --record tape.jsonl {SMALL}")
    shutil.copytree(place.home / "second", place.home / "second-that-waits")
    done = place.answered(waits, "second")
    assert done.returncode == 0, done.stderr
    (place.home / "said").write_text(waits.stdout)
    return place


@pytest.fixture
def there(story: Place, tmp_path: Path) -> Place:
    """The story's place, to go on from without harm to other tests."""
    shutil.copytree(story.home, tmp_path / "there")
    return Place(tmp_path / "there")


def recalled(run: Path) -> tuple[Experience, ...]:
    found = read_run(run).recalled
    assert found is not None
    return found.experiences


def of_run(known: tuple[Experience, ...], name: str) -> dict[str, Experience]:
    return {one.title: one for one in known if one.run.startswith(f"{name}-")}


def test_a_run_leaves_what_became_of_each_of_its_implementations(story: Place) -> None:
    first, second = of_run(story.known(), "first"), of_run(story.known(), "second")
    trials = read_run(story.home / "first").trials.values()
    assert len(first) == len({(trial.idea, trial.attempt) for trial in trials if trial.idea}) == 6, "sweeps aside"
    assert {title: one.verdict for title, one in second.items()} == {
        "Wide vector loads": "faster",
        "Stage tiles through shared memory": "wrong",
        "Persistent grid over rows": "faster",
        "Huge pages under outputs": "slower",
    }
    best = second["Persistent grid over rows"]
    assert best.confirmed and best.compiled and best.baseline == "Wide vector loads"
    assert best.predicted == pytest.approx(1.4 / 1.2), "promised over what is to beat, kept over the parent"
    assert best.gain and best.gain.median == pytest.approx(2.0)
    assert second["Stage tiles through shared memory"].why == "scripted wrong"


def test_a_later_run_is_told_of_it_in_a_place_of_its_own_and_never_of_itself(story: Place) -> None:
    said = (story.home / "said").read_text()
    assert "earlier results fit this problem, ranked by words alone (lexical retrieval was asked for)" in said
    prompts = sorted((story.home / "second" / "manual").glob("*.prompt.md"))
    asked = [text for prompt in prompts if "Reply with JSON alone" in (text := prompt.read_text())]
    assert len(asked) > 1
    for text in asked:
        told = text.partition("## Experience")[2].partition("## What is asked")[0]
        assert "<<<data" in told and "on scripted, pointwise, dram-bw: '" in told
        assert not any(title in told for ideas in IDEAS.values() for title, _ in ideas)
    assert all("## Experience" not in prompt.read_text() for prompt in prompts if prompt.read_text() not in asked)
    assert recalled(story.home / "first") == (), "templates read nothing"


def test_a_finished_run_resumed_leaves_nothing_twice(there: Place) -> None:
    before = there.known()
    assert there.agent("resume second").returncode == 0
    assert there.known() == before


@pytest.mark.long
def test_a_run_that_stopped_leaves_what_was_judged_and_more_when_it_goes_on(there: Place, story: Place) -> None:
    shutil.rmtree(there.home / "second")
    shutil.rmtree(there.home / "data")
    shutil.move(there.home / "data-after-first", there.home / "data")
    shutil.move(there.home / "second-that-waits", there.home / "second")
    answer(there.home / "second" / "manual" / "001.prompt.md")
    for prompt in [Path(row) for row in there.agent("resume second").stdout.splitlines() if row.endswith(".prompt.md")]:
        answer(there.home / prompt)
    assert there.agent("resume second").returncode == 4
    assert of_run(there.known(), "second").keys() == {title for title, _ in IDEAS[1]}
    assert there.answered(there.agent("resume second"), "second").returncode == 0
    assert there.known() == story.known()


@pytest.mark.long
def test_a_resumed_run_asks_the_same_whatever_others_have_measured_since(there: Place) -> None:
    waits = there.home / "second-that-waits"
    before = (waits / "manual" / "001.prompt.md").read_text()
    assert "## Experience" in before
    there.ledger.clear()
    there.ledger.add([experience(target="cpu", arch="x86_64", families=("pointwise",), title="Something new")])
    assert there.agent("resume second-that-waits").returncode == 4
    assert [path.name for path in (waits / "manual").iterdir()] == ["001.prompt.md"]
    answer(waits / "manual" / "001.prompt.md")
    done = there.answered(there.agent("resume second-that-waits"), "second-that-waits")
    assert done.returncode == 0, done.stderr
    assert not any("Something new" in path.read_text() for path in (waits / "manual").glob("*.prompt.md"))


def keys(directory: Path) -> set[str]:
    with Journal.open(directory) as journal:
        return {key for key, _, _ in journal.calls()}


def test_a_replayed_run_leaves_experience_alone_and_asks_what_was_recorded(there: Place) -> None:
    tape = read_cassette(there.home / "tape.jsonl")
    assert tape.experiences == recalled(there.home / "second") != ()
    there.ledger.path.write_bytes(b"nothing that could be read")
    done = there.agent("run relu.py --run-directory again --cassette tape.jsonl")
    assert (done.returncode, done.stderr) == (0, "") and "experience" not in done.stdout
    assert there.ledger.path.read_bytes() == b"nothing that could be read"
    assert keys(there.home / "again") == {call.key for call in tape.calls}, "by the words of each question"
    third = there.agent("run relu.py --run-directory third --provider replay --cassette again")
    assert third.returncode == 0 and keys(there.home / "third") == keys(there.home / "again")


def test_a_cassette_from_before_experience_is_played_as_it_was(there: Place) -> None:
    head, *calls = (there.home / "tape.jsonl").read_text().splitlines()
    older = json.loads(head)
    del older["experiences"]
    (there.home / "older.jsonl").write_text("\n".join([json.dumps(older), *calls]) + "\n")
    done = there.agent("run relu.py --run-directory again --cassette older.jsonl")
    assert (done.returncode, done.stderr) == (0, "") and "experience" not in done.stdout
    assert recalled(there.home / "again") == ()


@pytest.mark.long
def test_switched_off_it_is_neither_read_nor_written(there: Place) -> None:
    there.ledger.path.write_bytes(b"nothing that could be read")
    done = there.agent(f"run relu.py --run-directory quiet --provider manual --no-wait --no-experience {SMALL}")
    assert done.returncode == 4 and "experience" not in done.stdout + done.stderr
    assert "## Experience" not in (there.home / "quiet" / "manual" / "001.prompt.md").read_text()
    assert there.answered(done, "quiet").returncode == 0
    assert there.ledger.path.read_bytes() == b"nothing that could be read"


@pytest.mark.long
def test_a_broken_ledger_stops_no_run_and_is_not_touched(there: Place) -> None:
    there.ledger.path.write_bytes(b"nothing that could be read")
    done = there.answered(
        there.agent(f"run relu.py --run-directory on --provider manual --no-wait {SMALL} --rounds 1"), "on"
    )
    assert done.returncode == 0, done.stderr
    assert "what was measured is not remembered for later runs: the experience in" in done.stdout
    assert there.ledger.path.read_bytes() == b"nothing that could be read"


def test_records_of_a_later_version_are_counted_and_passed_over(there: Place) -> None:
    with sqlite3.connect(there.ledger.path) as base:
        base.execute("INSERT INTO experiences VALUES ('later', 'theirs', 2, '{}')")
    base.close()
    done = there.agent(f"run relu.py --run-directory later --provider manual --no-wait {SMALL}")
    assert "1 records are of a later version and 0 cannot be read" in done.stdout and done.returncode == 4
