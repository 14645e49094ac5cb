"""The loop: what it asks, judges and records, once each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_agent import interfaces
from kernel_agent.errors import BudgetSpent, ServerError
from kernel_agent.knowledge.situation import situation
from kernel_agent.run import tree
from kernel_agent.run.brief import Brief, Unjudged
from kernel_agent.run.events import (
    Confirmed,
    Event,
    IdeaRecorded,
    Notice,
    Profiling,
    RoundStarted,
    Stopped,
    TrialJudged,
    TrialStarted,
)
from kernel_agent.run.gain import factor
from kernel_agent.run.journal import Journal, read
from kernel_agent.run.types import Evaluation, Idea, Problem, Profile, Status, Trial
from kernel_agent.search import briefing, selection
from kernel_agent.search.loop import Search
from rag import Answer, Library, Passage, Situation
from rag.retrieval.mechanisms import shown_by
from tests.support.scripted_bench import kernel_in
from tests.support.scripted_run import (
    DESCRIPTION,
    PROBLEM,
    InProcessBench,
    ScriptedProposer,
    evaluation_of,
    small_settings,
)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal.create(tmp_path / "run") as journal:
        journal.begin(PROBLEM, small_settings())
        journal.describe(DESCRIPTION)
        yield journal


class Writes(ScriptedProposer):
    """One idea a source; `repairs` are handed out in turn."""

    def __init__(self, *sources: str, repairs: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.sources, self.repairs = sources, list(repairs)

    async def ideas(self, brief: Brief, count: int) -> list[Idea]:
        return [Idea("", 0, "", source, "") for source in self.sources]

    async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
        return idea.title

    async def repair(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
        return self.repairs.pop(0) if self.repairs else None


def search(
    journal: Journal,
    proposer: ScriptedProposer,
    bench: InProcessBench,
    library: interfaces.Library | None = None,
    **settings: object,
) -> Search:
    run = journal.load()
    run.settings = small_settings(**settings)
    return Search(run, journal, proposer, bench, library)


async def test_a_run_plays_its_rounds_judges_each_source_once_and_keeps_everything(journal: Journal) -> None:
    bench, proposer = InProcessBench(), ScriptedProposer()
    events: list[Event] = []
    play = search(journal, proposer, bench)
    play.observe = events.append
    winner = await play.play()
    assert len(bench.judged) == len(set(bench.judged)) == len(play.run.evaluations)
    assert [event.round for event in events if isinstance(event, RoundStarted)] == [1, 2, 3]
    assert sum(isinstance(event, IdeaRecorded) for event in events) == 12 == len(play.run.ideas)
    judged = [event for event in events if isinstance(event, TrialJudged)]
    assert {event.trial.id for event in judged} == set(play.run.trials) - {play.run.reference.id}
    assert sum(not event.shared for event in judged) == len(bench.judged)
    accepted = [event.trial for event in events if isinstance(event, Confirmed) and event.accepted]
    assert winner in accepted and winner == tree.winner(play.run)
    assert journal.load() == read(journal.directory) and journal.load().trials == play.run.trials


async def test_a_search_without_a_library_works_out_no_question_for_it(journal: Journal) -> None:
    before = shown_by.cache_info()
    await search(journal, ScriptedProposer(), InProcessBench()).play()
    assert shown_by.cache_info() == before, "it takes longer than all else that a candidate costs"


async def test_one_source_in_two_tasks_at_once_is_judged_once(journal: Journal) -> None:
    class Slow(InProcessBench):
        """Answers when the two trials have been recorded, so that both are under way."""

        async def evaluate(
            self, problem: Problem, source: str, on_progress: Callable[[str], None] | None = None, **more: bool
        ) -> Evaluation:
            await both_written.wait()
            return await super().evaluate(problem, source, on_progress)

    class Twice(Writes):
        async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
            if attempt == 1:
                asyncio.get_running_loop().call_soon(both_written.set)
            return idea.title

    both_written, bench = asyncio.Event(), Slow()
    play = search(journal, Twice("# speed: 2"), bench, num_rounds=1, implementations_per_idea=2)
    await play.play()
    assert bench.judged == ["# speed: 2"] and len(play.run.trials) == 3 and len(play.run.evaluations) == 1


async def test_a_failure_is_repaired_at_most_so_often_and_each_step_is_a_trial(journal: Journal) -> None:
    wrong, again, right = "# verdict: wrong", "# verdict: wrong\n#", "# speed: 2"
    bench = InProcessBench()
    proposer = Writes(wrong, repairs=(again, right, "never asked for"))
    play = search(journal, proposer, bench, num_rounds=1, implementations_per_idea=1, max_repairs=2)
    winner = await play.play()
    steps = tree.chain(play.run, next(iter(play.run.ideas.values())), 0)
    assert [step.source for step in steps] == [wrong, again, right] and proposer.repairs == ["never asked for"]
    assert [step.parent for step in steps] == [play.run.reference.id, steps[0].id, steps[1].id]
    assert winner == steps[2]


async def test_when_repairs_are_spent_or_give_nothing_new_one_last_try_escalates(journal: Journal) -> None:
    class Escalates(Writes):
        async def escalate(self, brief: Brief, idea: Idea, trial: Trial, evaluation: Evaluation) -> str | None:
            self.asked.append(brief)
            return "# speed: 2"

    wrong, again = "# verdict: wrong", "# verdict: wrong\n#"
    proposer = Escalates(wrong, repairs=(again, wrong, "never asked for"))
    bench = InProcessBench()
    play = search(journal, proposer, bench, num_rounds=1, implementations_per_idea=1, max_repairs=4)
    winner = await play.play()
    steps = tree.chain(play.run, next(iter(play.run.ideas.values())), 0)
    assert [(step.step, step.source) for step in steps] == [(0, wrong), (1, again), (5, "# speed: 2")]
    assert proposer.repairs == ["never asked for"], "a repair that gives an earlier version again ends the repairs"
    assert [(one.title, one.status) for one in proposer.asked[0].repair_history] == [("first version", "wrong")]
    assert winner == steps[2] and bench.judged == [wrong, again, "# speed: 2"]


HELD = "# spills\n# speed: 2"


@pytest.mark.parametrize(
    ("repairs", "judged", "best"),
    [
        (("# speed: 3",), ["# speed: 3"], "# speed: 3"),
        (("# spills\n# speed: 3",), ["# spills\n# speed: 3"], "# spills\n# speed: 3"),
        (("# verdict: wrong", "# speed: 4"), ["# verdict: wrong", "# speed: 4"], "# speed: 4"),
        (("# verdict: wrong",), ["# verdict: wrong", "# verdict: wrong# escalated\n", HELD], HELD),
        ((), [HELD], HELD),
    ],
)
async def test_a_compiler_s_bad_news_goes_back_once_before_anything_runs(
    journal: Journal, repairs: tuple[str, ...], judged: list[str], best: str
) -> None:
    given = {"num_rounds": 1, "implementations_per_idea": 1, "max_repairs": 2}
    bench = InProcessBench()
    play = search(journal, Writes(HELD, repairs=repairs), bench, **given)
    assert (await play.play()).source == best and bench.judged == judged
    assert [one.status for one in play.run.poor_builds.values()] == [Status.POOR_BUILD]
    again = search(journal, Writes(HELD), rest := InProcessBench(), **given)
    assert (await again.play()).source == best and rest.judged == [], "what is recorded is asked for no more"


async def test_without_a_repair_to_come_no_compiler_is_heeded(journal: Journal) -> None:
    bench = InProcessBench()
    play = search(journal, Writes(HELD), bench, num_rounds=1, implementations_per_idea=1, max_repairs=0)
    assert (await play.play()).source == HELD and bench.judged == [HELD] and not play.run.poor_builds


class Tuned(Writes):
    """One kernel with two tunables; `speeds` says how fast its versions are."""

    def __init__(self) -> None:
        super().__init__("A = 1  # tune: 1, 2, 4, 8\nB = 1  # tune: 1, 2, 4\n")


class Tuning(InProcessBench):
    """Faster with larger values; A = 8 is wrong."""

    async def evaluate(
        self, problem: Problem, source: str, on_progress: Callable[[str], None] | None = None, **more: bool
    ) -> Evaluation:
        await super().evaluate(problem, source)
        return self.verdict(source)

    async def confirm(
        self,
        problem: Problem,
        source: str,
        baselines: Iterable[str],
        on_progress: Callable[[str], None] | None = None,
    ) -> Evaluation:
        await super().confirm(problem, source, baselines)
        return self.verdict(kernel_in(source))

    def verdict(self, source: str) -> Evaluation:
        a, b = (int(row.split()[2]) for row in source.splitlines())
        return evaluation_of(f"# speed: {1 + a / 2 + b / 4}" if a < 8 else "# verdict: wrong", "eager", "compile")


async def test_declared_tunables_are_swept_unasked_and_the_source_has_the_best_values(
    journal: Journal,
) -> None:
    bench, proposer = Tuning(), Tuned()
    play = search(journal, proposer, bench, num_rounds=1, implementations_per_idea=1, sweep_evaluations=11)
    winner = await play.play()
    assert winner.source == "A = 4  # tune: 1, 2, 4, 8\nB = 4  # tune: 1, 2, 4\n"
    assert winner.tuned == (("A", 4), ("B", 4)) and tree.title(play.run, winner).endswith(" [A=4, B=4]")
    assert play.run.trials[winner.parent or ""].tuned == () and winner in tree.chain(play.run, *place(play, winner))
    assert len(bench.judged) == len(set(bench.judged)) == 12
    assert [trial.idea for trial in tree.ranking(play.run)] == [winner.idea, None], "one row an implementation"
    assert selection.select(play.run, 2)[0] == winner
    assert journal.load().trials == play.run.trials
    resumed, asked = Tuning(), Tuned()
    assert await search(journal, asked, resumed, num_rounds=1, implementations_per_idea=1, sweep_evaluations=11).play()
    assert resumed.judged == [] == resumed.confirmed and asked.asked == []


def place(play: Search, trial: Trial) -> tuple[Idea, int]:
    return play.run.ideas[trial.idea or ""], trial.attempt


@pytest.mark.parametrize("stop_after", range(1, 7))
async def test_a_sweep_that_is_broken_off_goes_the_same_way_when_resumed(journal: Journal, stop_after: int) -> None:
    class Breaks(Tuning):
        async def evaluate(
            self, problem: Problem, source: str, on_progress: Callable[[str], None] | None = None, **more: bool
        ) -> Evaluation:
            if len(self.judged) == stop_after:
                raise ServerError("It died.")
            return await super().evaluate(problem, source)

    given = {"num_rounds": 2, "implementations_per_idea": 1, "sweep_evaluations": 7}
    with Journal.create(journal.directory.with_name("whole")) as other:
        other.begin(PROBLEM, small_settings())
        other.describe(DESCRIPTION)
        whole = search(other, Tuned(), whole_bench := Tuning(), **given)
        expected = await whole.play()
    with pytest.raises(ServerError):
        await search(journal, Tuned(), broken := Breaks(), **given).play()
    resumed = search(journal, Tuned(), rest := Tuning(), **given)
    assert await resumed.play() == expected
    assert sorted(broken.judged + rest.judged) == sorted(whole_bench.judged)
    assert resumed.run.trials == whole.run.trials


async def test_later_briefs_tell_what_a_sweep_tried_to_no_gain(journal: Journal) -> None:
    asked: list[Brief] = []

    class Remembers(Tuned):
        async def ideas(self, brief: Brief, count: int) -> list[Idea]:
            asked.append(brief)
            return await super().ideas(brief, count)

    await search(journal, Remembers(), Tuning(), num_rounds=2, branching_factor=1, implementations_per_idea=1).play()
    remarks = [one.remark for one in (*asked[-1].ancestors, *asked[-1].siblings)]
    assert any("swept to no gain: " in remark and remark.startswith("with ") for remark in remarks), remarks


async def test_an_idea_in_other_words_is_refused_before_its_code_and_replaced(
    journal: Journal,
) -> None:
    class Repeats(Writes):
        def __init__(self) -> None:
            super().__init__()
            self.proposals = [
                ["Hold the row in registers", "Keep row in registers", "Vectorized loads"],
                ["Registers keep the row", "Online softmax"],
            ]

        async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
            return f"# {idea.title}"

        async def ideas(self, brief: Brief, count: int) -> list[Idea]:
            self.asked.append(brief)
            return [Idea("", 0, "", title, "") for title in self.proposals.pop(0)]

    proposer = Repeats()
    play = search(journal, proposer, InProcessBench(), num_rounds=1, branching_factor=3, implementations_per_idea=1)
    await play.play()
    titles = [idea.title for idea in play.run.ideas.values()]
    assert titles == ["Hold the row in registers", "Vectorized loads", "Online softmax"]
    told = {one.title: (one.status, one.remark) for one in proposer.asked[1].siblings}
    assert told["Keep row in registers"] == (Unjudged.REFUSED, briefing.REPEATS)
    assert told["Hold the row in registers"] == (Unjudged.BEING_TRIED, "") and proposer.proposals == []


async def test_one_idea_of_a_later_round_crosses_two_parents(journal: Journal) -> None:
    proposer = ScriptedProposer()
    play = search(journal, proposer, InProcessBench(), num_rounds=2, sweep_evaluations=0)
    await play.play()
    second = tree.ideas_of(play.run, 2)
    crossed = [idea for idea in second if idea.second_parent]
    assert len(second) == 4 and len(crossed) == 1
    pair = selection.crossing(play.run, 2)
    assert pair is not None and (crossed[0].parent, crossed[0].second_parent) == (pair[0].id, pair[1].id)
    told = [brief.second_parent for brief in proposer.asked if brief.second_parent]
    assert {mate.trial.id for mate in told} == {crossed[0].second_parent} and len(told) >= 2, "asked for, then written"
    assert play.run.trials[crossed[0].parent].idea != play.run.trials[crossed[0].second_parent or ""].idea
    assert journal.load().ideas == play.run.ideas


async def test_kernels_that_differ_in_a_word_are_not_crossed(journal: Journal) -> None:
    class Templates(ScriptedProposer):
        async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
            return await super().write(brief, idea, attempt) + "\n# the same in all" * 500

    play = search(journal, Templates(), InProcessBench(), num_rounds=2, sweep_evaluations=0)
    await play.play()
    assert len(selection.select(play.run, 2)) > 1 and selection.crossing(play.run, 2) is None
    assert not [idea for idea in tree.ideas_of(play.run, 2) if idea.second_parent]


def test_a_kernel_with_fewer_operations_than_counted_is_held_to_the_bytes() -> None:
    known = replace(DESCRIPTION, bytes=1e9, device=replace(DESCRIPTION.device, copy_gbps=100.0), limit_us=40_000.0)
    assert [known.reached(us) for us in (80_000.0, 20_000.0)] == [0.5, 0.5]
    assert replace(known, limit_us=None).reached(20_000.0) is None


@pytest.mark.parametrize(
    ("speed", "given", "rounds", "words"),
    [
        ("# speed: 31", {}, 1, "reaches 99% of the limit"),
        ("# speed: 31", {"stop_share": 1.5, "flat_rounds": 0}, 4, None),
        ("# speed: 1.01", {"flat_rounds": 2}, 2, "nothing was faster for 2 rounds"),
        ("# speed: 2", {"flat_rounds": 2}, 3, "nothing was faster for 2 rounds"),
        ("# speed: 2", {"flat_rounds": 0}, 4, None),
    ],
)
async def test_the_search_ends_early_at_the_limit_or_after_flat_rounds(
    journal: Journal, speed: str, given: dict[str, object], rounds: int, words: str | None
) -> None:
    class Same(ScriptedProposer):
        async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
            return f"{speed}\n# {idea.title}"

    events: list[Event] = []
    play = search(journal, Same(), InProcessBench(), num_rounds=4, implementations_per_idea=1, **given)
    play.observe = events.append
    await play.play()
    assert max(idea.round for idea in play.run.ideas.values()) == rounds
    stops = [event for event in events if isinstance(event, Stopped)]
    assert [event.spent for event in stops] == ([False] if words else [])
    assert not words or words in stops[0].reason


async def test_a_sweep_can_be_switched_off(journal: Journal) -> None:
    bench = Tuning()
    await search(journal, Tuned(), bench, num_rounds=1, implementations_per_idea=1, sweep_evaluations=0).play()
    assert len(bench.judged) == 1


async def test_the_next_best_is_delivered_where_the_second_judgement_refuses_the_best(journal: Journal) -> None:
    class Stern(InProcessBench):
        def second(self, source: str) -> str:
            return "# verdict: wrong" if source == "# speed: 3" else source

    bench = Stern()
    play = search(journal, Writes("# speed: 2", "# speed: 3"), bench, num_rounds=1, implementations_per_idea=1)
    winner = await play.play()
    assert winner.source == "# speed: 2" and bench.confirmed == ["# speed: 3", "# speed: 2"]
    await search(journal, Writes(), bench, num_rounds=1).play()
    assert len(bench.confirmed) == 2, "a recorded confirmation was repeated"


async def test_a_kernel_whose_file_does_not_work_by_itself_is_not_delivered(journal: Journal) -> None:
    bench, events = InProcessBench(), list[Event]()
    bench.breaks = "builds"
    play = search(journal, Writes("# speed: 3"), bench, num_rounds=1, implementations_per_idea=1)
    play.observe = events.append
    assert await play.play() == play.run.reference and bench.confirmed == ["# speed: 3"]
    assert [event.accepted for event in events if isinstance(event, Confirmed)] == [False]
    assert any(
        isinstance(event, Notice) and "by itself: builds: so it was ordered" in event.message for event in events
    )


async def test_what_a_right_file_cannot_do_does_not_keep_it_from_delivery(journal: Journal) -> None:
    bench = InProcessBench()
    bench.breaks = "compile"
    play = search(journal, Writes("# speed: 3"), bench, num_rounds=1, implementations_per_idea=1)
    winner = await play.play()
    assert winner.source == "# speed: 3" and play.run.deliveries[winner.source_id].why_not.startswith("compile: ")


async def test_trials_that_were_not_told_apart_are_judged_again_and_the_best_wins(
    journal: Journal,
) -> None:
    class Second(InProcessBench):
        def second(self, source: str) -> str:
            return "# speed: 3.5" if source == "# speed: 3" else "# speed: 2.9"

    speeds = ["# speed: 3.01", "# speed: 3", "# speed: 2.5"]
    bench = Second()
    play = search(journal, Writes(*speeds), bench, num_rounds=1, branching_factor=3, implementations_per_idea=1)
    assert (await play.play()).source == "# speed: 3" and bench.confirmed == ["# speed: 3.01", "# speed: 3"]


async def test_the_original_wins_where_nothing_is_faster_and_nothing_is_confirmed(journal: Journal) -> None:
    bench = InProcessBench()
    play = search(journal, Writes("# speed: 0.9", "# speed: 1.01", "# verdict: wrong"), bench, num_rounds=2)
    assert await play.play() == play.run.reference and bench.confirmed == []


async def test_a_proposer_without_ideas_ends_with_the_original(journal: Journal) -> None:
    play = search(journal, Writes(), InProcessBench())
    assert await play.play() == play.run.reference and len(play.run.trials) == 1


async def test_our_fault_is_raised_as_itself_and_what_was_recorded_before_is_kept(journal: Journal) -> None:
    class Dies(InProcessBench):
        async def evaluate(
            self, problem: Problem, source: str, on_progress: Callable[[str], None] | None = None, **more: bool
        ) -> Evaluation:
            if source == "# speed: 3":
                await first_judged.wait()
                raise ServerError("It died.")
            return await super().evaluate(problem, source, on_progress)

    def watch(event: Event) -> None:
        if isinstance(event, TrialJudged):
            first_judged.set()

    first_judged, proposer = asyncio.Event(), Writes("# speed: 2", "# speed: 3")
    play = search(journal, proposer, Dies(), num_rounds=1, implementations_per_idea=1)
    play.observe = watch
    with pytest.raises(ServerError, match="It died"):
        await play.play()
    assert len(journal.load().evaluations) == 1
    bench = InProcessBench()
    assert (await search(journal, proposer, bench, num_rounds=1, implementations_per_idea=1).play()).source
    assert bench.judged == ["# speed: 3"]


async def test_a_resumed_search_asks_the_same_briefs_and_none_that_are_answered(journal: Journal) -> None:
    whole = ScriptedProposer()
    await search(journal, whole, InProcessBench()).play()
    with Journal.create(journal.directory.with_name("other")) as other:
        other.begin(PROBLEM, small_settings())
        other.describe(DESCRIPTION)
        await search(other, ScriptedProposer(), InProcessBench(), num_rounds=1).play()
        rest, bench = ScriptedProposer(), InProcessBench()
        resumed = search(other, rest, bench)
        events: list[Event] = []
        resumed.observe = events.append
        await resumed.play()
    assert {brief.round for brief in rest.asked} == {2, 3}
    assert all(brief in whole.asked for brief in rest.asked)
    assert sum(isinstance(event, TrialJudged) and event.kept for event in events) > 0
    assert all(event.idea.round > 1 for event in events if isinstance(event, TrialStarted) and event.step == 0)


async def test_what_a_round_leaves_is_profiled_in_a_batch_for_the_next_briefs(journal: Journal) -> None:
    bench, proposer = InProcessBench(), ScriptedProposer()
    events: list[Event] = []
    play = search(journal, proposer, bench)
    play.observe = events.append
    await play.play()
    assert len(bench.profiled) == sum(isinstance(event, Profiling) for event in events) <= 3
    sources = [source for batch in bench.profiled for source in batch]
    assert len(sources) == len(set(sources)) == len(play.run.profiles) > 0
    for brief in proposer.asked:
        if brief.parent.idea:
            assert brief.parent_profile == play.run.profiles[brief.parent.source_id]
            assert situation(brief).bottlenecks[0] == "occupancy"
    assert any(brief.parent.idea for brief in proposer.asked)
    assert journal.load().profiles == play.run.profiles


async def test_what_disappointed_is_profiled_and_the_next_briefs_say_why(journal: Journal) -> None:
    promises = {"# speed: 3.0": 2, "# speed: 2.9": 2, "# speed: 0.7": 2, "# speed: 0.5": 4, "# speed: 0.6": None}
    promises |= {"# speed: 0.8": -9, "# speed: 0.9": "1e400", "# speed: 0.65": "nan"}

    class Promises(Writes):
        async def ideas(self, brief: Brief, count: int) -> list[Idea]:
            self.asked.append(brief)
            told = {title: factor(str(gain)) for title, gain in promises.items()}
            return [Idea("", 0, "", *one, predicted=gain) for *one, gain in told.items()] if brief.round == 1 else []

    bench, proposer = InProcessBench(), Promises()
    await search(journal, proposer, bench, num_rounds=2, branching_factor=8).play()
    parents = {"# speed: 3.0", "# speed: 2.9", "# speed: 0.9"}
    assert set(bench.profiled[0]) == parents | {"# speed: 0.5", "# speed: 0.7"}
    told = {one.title: one for one in (*proposer.asked[-1].siblings, *proposer.asked[-1].ancestors)}
    assert (told["# speed: 0.5"].speedup, told["# speed: 0.5"].predicted) == (0.5, 4.0)
    assert told["# speed: 0.5"].remark.startswith("bound by") and told["# speed: 0.6"].remark == ""


async def test_a_winner_s_profile_changes_no_brief_of_a_run_resumed_after_its_budget(
    journal: Journal,
) -> None:
    class Stops(Writes):
        """Its budget is over when it is asked on the second parent."""

        left = 2

        async def ideas(self, brief: Brief, count: int) -> list[Idea]:
            self.asked.append(brief)
            if self.left == 0:
                raise BudgetSpent("It is over.")
            self.left -= 1
            return await super().ideas(brief, count) if brief.round == 1 else []

    class Refuses(InProcessBench):
        """Confirms but the third, which is no parent."""

        def second(self, source: str) -> str:
            return source if len(self.confirmed) == 3 else "# verdict: wrong"

    stopped, bench = Stops("# speed: 4", "# speed: 3", "# speed: 2", "# speed: 1.9"), Refuses()
    play = search(journal, stopped, bench, implementations_per_idea=1)
    assert (await play.play()).source == "# speed: 2" == bench.profiled[-1][0] and play.stopped
    again = Stops()
    again.left = 9
    await search(journal, again, InProcessBench(), implementations_per_idea=1).play()
    first, second = (next(b for b in mind.asked if b.round == 2) for mind in (stopped, again))
    assert first == second, "the one that was answered is not paid again"


async def test_after_the_last_round_also_an_early_one_the_winner_alone_is_profiled(
    journal: Journal,
) -> None:
    for rounds, given in ((1, {"num_rounds": 1}), (2, {"num_rounds": 2}), (2, {"num_rounds": 9, "stop_share": 1e-6})):
        with Journal.create(journal.directory.with_name(f"run {given}")) as other:
            other.begin(PROBLEM, small_settings())
            other.describe(DESCRIPTION)
            bench = InProcessBench()
            play = search(other, ScriptedProposer(), bench, **given)
            winner = await play.play()
            last = 1 if "stop_share" in given else rounds
            before = {s.source for n in range(1, last) for s in selection.survivors(play.run, n)}
            told = [source for batch in bench.profiled for source in batch]
            assert set(told) == before | {winner.source} and len(told) == len(set(told))
            further = search(other, ScriptedProposer(), again := InProcessBench(), num_rounds=last + 1)
            await further.play()
            seen = {source for batch in again.profiled for source in batch}
            assert not seen & set(told) and {s.source for s in selection.survivors(further.run, last)} <= seen | set(
                told
            )


async def test_without_a_page_no_winner_is_profiled(journal: Journal) -> None:
    play = search(journal, ScriptedProposer(), bench := InProcessBench(), num_rounds=1, report=False)
    assert (await play.play()).idea and not bench.profiled


async def test_a_resumed_run_profiles_nothing_twice_and_what_was_missed(journal: Journal) -> None:
    class Dies(InProcessBench):
        async def profile(
            self, problem: Problem, sources: Sequence[str], on_progress: Callable[[str], None] | None = None
        ) -> list[Profile]:
            raise ServerError("It died.")

    with pytest.raises(ServerError):
        await search(journal, ScriptedProposer(), Dies(), num_rounds=1).play()
    bench = InProcessBench()
    await search(journal, ScriptedProposer(), bench, num_rounds=1).play()
    assert not bench.judged and len(bench.profiled) == 1
    again = InProcessBench()
    await search(journal, ScriptedProposer(), again, num_rounds=1).play()
    assert not again.profiled


async def test_without_a_profiler_the_run_goes_on_and_says_so_once(journal: Journal) -> None:
    bench, events = InProcessBench("the cpu target has no counters"), list[Event]()
    play = search(journal, ScriptedProposer(), bench)
    play.observe = events.append
    await play.play()
    said = [event.message for event in events if isinstance(event, Notice)]
    assert said == ["nothing is profiled in this run: the cpu target has no counters"]
    assert len(bench.profiled) == 1 and not play.run.profiles and len(play.run.ideas) == 12


async def test_passages_reach_the_briefs_and_the_ideas(journal: Journal) -> None:
    class Shelf:
        def __init__(self) -> None:
            self.asked: list[Situation] = []

        def consult(self, situation: Situation) -> Answer:
            self.asked.append(situation)
            return Answer("lexical", (Passage("p1", "page", "title", "heading", "text", "page.md"),))

        def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
            return ()

    proposer, shelf = ScriptedProposer(), Shelf()
    play = search(journal, proposer, InProcessBench(), shelf, num_rounds=1)
    await play.play()
    assert all(brief.passages and brief.retrieval_mode == "lexical" for brief in proposer.asked)
    assert all(idea.passages == ("p1",) for idea in play.run.ideas.values())
    first = shelf.asked[0]
    assert (first.operators, first.families, first.bottlenecks) == (("relu",), ("pointwise",), ("dram-bw",))
    assert (first.arch, first.language, first.idea) == ("x86_64", "cpp", "")
    assert any("because" in asked.idea for asked in shelf.asked[1:])
    assert not any("class Model" in str(asked) for asked in shelf.asked)


async def test_code_is_asked_for_in_the_order_of_the_ideas(journal: Journal) -> None:
    class Shelf:
        """Whose first answer on code comes after the second, where that is asked for meanwhile."""

        def __init__(self) -> None:
            self.asked, self.second = 0, threading.Event()

        def consult(self, situation: Situation) -> Answer:
            if situation.idea:
                self.asked += 1
                if self.asked == 1:
                    assert self.second.wait(5), "they are asked for at once"
                self.second.set()
            return Answer("lexical", ())

        def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
            return ()

    class Noting(ScriptedProposer):
        written: list[str]

        async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
            self.written = [*getattr(self, "written", []), idea.title]
            return await super().write(brief, idea, attempt)

    proposer = Noting()
    play = search(journal, proposer, InProcessBench(), Shelf(), num_rounds=1, implementations_per_idea=1)
    await play.play()
    assert proposer.written == [idea.title for idea in play.run.ideas.values()]


async def test_an_idea_that_means_the_same_to_the_library_s_vectors_is_refused_too(journal: Journal) -> None:
    class Shelf:
        def consult(self, situation: Situation) -> Answer:
            return Answer("hybrid", ())

        def likeness(self, text: str, others: Sequence[str]) -> Sequence[float]:
            return [0.95 if {"Ring of tiles", "Tiles on a carousel"} == {text, other} else 0.85 for other in others]

    class Repeats(Writes):
        async def ideas(self, brief: Brief, count: int) -> list[Idea]:
            self.asked.append(brief)
            first = ["Ring of tiles", "Tiles on a carousel", "Online softmax"]
            told = first if len(self.asked) == 1 else ["Wide loads"]
            return [Idea("", 0, "", title, "") for title in told]

        async def write(self, brief: Brief, idea: Idea, attempt: int) -> str:
            return f"# {idea.title}"

    proposer = Repeats()
    few = {"num_rounds": 1, "branching_factor": 3, "implementations_per_idea": 1}
    play = search(journal, proposer, InProcessBench(), Shelf(), **few)
    await play.play()
    assert [idea.title for idea in play.run.ideas.values()] == ["Ring of tiles", "Online softmax", "Wide loads"]


def test_the_real_library_understands_the_query(journal: Journal, tmp_path: Path) -> None:
    page = "---\nid: relu\ntitle: Relu\nlanguages: [cpp]\n---\n\n# Relu\n\nA relu is bound by memory.\n"
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "relu.md").write_text(page)
    run = journal.load()
    with Library.open(tmp_path / "cache", mode="lexical", corpus=tmp_path / "corpus") as library:
        answer = library.consult(situation(briefing.brief(run, run.reference, 1)))
    assert [passage.page for passage in answer.passages] == ["relu"]
