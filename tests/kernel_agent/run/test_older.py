"""A run that an earlier version recorded: it opens, goes on, and asks what it would have asked.

`tests/support/recorded/ideas_in_prose.sql.gz` was written by the version whose ideas were prose, whose calls were
placed in words, and whose second parents were mates: a scripted model, templates as seeds, repairs, a diagnosis.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.llm import call_site, cassette
from kernel_agent.llm.model import Model, Question, Reply
from kernel_agent.proposers.model_proposer import ModelProposer
from kernel_agent.proposers.seeded import Seeded
from kernel_agent.proposers.templates.proposer import Templates
from kernel_agent.run import older, tree
from kernel_agent.run.journal import FILE, Journal, read
from kernel_agent.search.loop import Search
from tests.support.paths import ROOT
from tests.support.scripted_run import DESCRIPTION, InProcessBench

RECORDED = ROOT / "tests" / "support" / "recorded" / "ideas_in_prose.sql.gz"
BLOCK = re.compile(r"<<<data (\w+) [^\n]*\n(.*?)\n>>>data \1", re.DOTALL)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    with closing(sqlite3.connect(directory / FILE)) as rows:
        rows.executescript(gzip.decompress(RECORDED.read_bytes()).decode())
    return directory


class Recording:
    """Answers by the place of a question as the earlier version wrote it, and keeps what was asked there."""

    remedy = ""

    def __init__(self, calls: Mapping[str, str]) -> None:
        self.calls, self.asked = calls, dict[str, list[Any]]()

    async def answer(self, question: Question) -> Reply:
        self.asked[str(question.place)] = [list(turn) for turn in question.talk]
        return Reply(self.calls[str(question.place)], "old")

    async def close(self) -> None:
        pass


def calls_of(directory: Path) -> dict[str, tuple[str, list[Any]]]:
    """The reply and the conversation of each call, by the words of its place."""
    with closing(sqlite3.connect(directory / FILE)) as rows:
        found = rows.execute("SELECT usage, reply, request FROM calls")
        return {json.loads(usage)["place"]: (reply, json.loads(request)) for usage, reply, request in found}


async def go_on(directory: Path, answers: Recording) -> tree.Run:
    with Journal.open(directory) as journal:
        run = journal.load()
        async with Model(answers, journal) as model:
            proposer = Seeded(Templates(DESCRIPTION), ModelProposer(model, helper=True, escalation=True))
            await Search(run, journal, proposer, InProcessBench(), None, seeded=True).play()
    return read(directory)


def blocks(talk: list[Any]) -> list[str]:
    """The material of a prompt, in its order, without the prose around it."""
    return [text for _, said in talk for _, text in BLOCK.findall(said)]


def test_ideas_that_were_prose_are_read_into_their_fields(recorded: Path) -> None:
    ideas = [idea for idea in read(recorded).ideas.values() if idea.change is None]
    with closing(sqlite3.connect(recorded / FILE)) as rows:
        bodies = [json.loads(body) for (body,) in rows.execute("SELECT body FROM records WHERE kind = 'ideas'")]
    before = {row["id"]: row for body in bodies for row in body["ideas"] if row["change"] is None}
    assert [idea.account for idea in ideas] == [before[idea.id]["reasoning"] for idea in ideas] and len(ideas) == 8
    assert all(idea.bottleneck.startswith("DRAM: ") and "\n" in idea.transformation for idea in ideas)
    assert all(idea.reasoning.endswith("  Risk: begins like a label") for idea in ideas)
    assert {idea.risk for idea in ideas} == {"tails", ""}
    assert {idea.predicted for idea in ideas} == {1.4, 2.0, 1.2, 1.5, None}
    assert [idea.second_parent for idea in ideas] == [before[idea.id]["mate"] for idea in ideas]
    assert sum(idea.second_parent is not None for idea in ideas) == 1


async def test_a_finished_run_of_before_asks_for_nothing(recorded: Path) -> None:
    run = read(recorded)
    assert tree.winner(run).idea is not None
    assert await go_on(recorded, Recording({})) == run


@pytest.mark.parametrize("kept", [2, 1])
async def test_a_run_of_before_that_was_stopped_asks_where_it_had_asked(recorded: Path, kept: int) -> None:
    """All is forgotten from the ideas of the last round on, or from those of the round before it."""
    calls, run = calls_of(recorded), read(recorded)
    with closing(sqlite3.connect(recorded / FILE)) as rows, rows:
        (first,) = rows.execute("SELECT min(number) FROM records WHERE kind = 'ideas' AND key = ?", (str(kept),))
        rows.execute("DELETE FROM records WHERE number >= ?", first)
        rows.execute("DELETE FROM calls")
    answers = Recording({place: reply for place, (reply, _) in calls.items()})
    again = await go_on(recorded, answers)
    late = {place for place in calls if (site := call_site.load(place)) and site.round >= kept}
    assert set(answers.asked) == late and len(late) > 8
    for place, talk in answers.asked.items():  # what stands beside the problem is told in other words since
        assert blocks(talk)[0] == blocks(calls[place][1])[0], place
    assert {idea.id: idea.title for idea in again.ideas.values()} == {i.id: i.title for i in run.ideas.values()}
    assert set(again.trials) == set(run.trials) and tree.winner(again).id == tree.winner(run).id


def test_a_recording_of_a_run_of_before_is_played_by_place(recorded: Path) -> None:
    calls, cassettes = calls_of(recorded), cassette.read(recorded)
    assert {str(call.place) for call in cassettes.calls} == set(calls)


def test_a_row_of_today_is_left_as_it_is() -> None:
    row = {"id": "i", "reasoning": "Risk: none\nTransformation: none", "transformation": "tile", "second_parent": None}
    assert older.idea(row) == row
