"""What is read off the tree: parents, shares, lineage, ranking, briefs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kernel_agent.run import tree
from kernel_agent.run.tree import Confirmation, EvaluationRecord, Ideas, Record, Run
from kernel_agent.run.types import Comparison, Evaluation, Idea, Interval, Status, Trial, digest
from kernel_agent.search import briefing, novelty, selection
from tests.support.scripted_run import DESCRIPTION, PROBLEM, evaluation_of, small_settings


def fresh(**settings: object) -> Run:
    return Run(PROBLEM, small_settings(**settings), DESCRIPTION)


def idea(number: int, round: int, parent: Trial, title: str = "", change: dict[str, int] | None = None) -> Idea:
    return Idea(digest("idea", number, round), round, parent.id, title or f"idea {number}", "because", change)


def grown(records: int, seed: int, **settings: object) -> tuple[Run, list[Record]]:
    """A random tree of three rounds, and the records it grew by."""
    chance, run, kept = random.Random(seed), fresh(**settings), []

    def keep(record: Record) -> None:
        run.record(record)
        kept.append(record)

    for round in range(1, 4):
        parents = selection.select(run, round)
        ideas = tuple(idea(number, round, chance.choice(parents)) for number in range(records))
        keep(Ideas(round, ideas))
        for one in ideas:
            source = f"# speed: {chance.choice([0.5, 1.5, 2.0, 2.5])}\n# {chance.random()}"
            source = source if chance.random() < 0.7 else f"# verdict: wrong\n# {chance.randrange(3)}"
            trial = Trial(one.id, 0, 0, one.parent, source)
            keep(trial)
            if trial.source_id not in run.evaluations:
                keep(EvaluationRecord(trial.source_id, evaluation_of(source, "eager")))
    return run, kept


def shuffled(kept: list[Record], seed: int) -> Iterator[Record]:
    """The same records in another order that is possible: ideas after their parents, trials after their ideas."""
    chance, left, there = random.Random(seed), list(kept), {fresh().reference.id}
    while left:
        ready = [r for r in left if not needs(r) - there]
        record = chance.choice(ready)
        left.remove(record)
        there |= {i.id for i in record.ideas} if isinstance(record, Ideas) else set()
        there |= {record.id} if isinstance(record, Trial) else set()
        yield record


def needs(record: Record) -> set[str | None]:
    match record:
        case Ideas(ideas=ideas):
            return {one.parent for one in ideas}
        case Trial():
            return {record.idea, record.parent}
    return set()


@pytest.mark.parametrize("seed", range(20))
def test_ranking_and_parents_do_not_depend_on_the_order_of_recording(seed: int) -> None:
    run, kept = grown(5, seed)
    other = fresh()
    for record in shuffled(kept, seed):
        other.record(record)
    assert tree.ranking(run) == tree.ranking(other)
    assert selection.select(run, 4) == selection.select(other, 4)
    assert tree.contenders(run) == tree.contenders(other)


@pytest.mark.parametrize("seed", range(20))
def test_every_ranking_is_sorted_holds_each_source_once_and_the_reference(seed: int) -> None:
    run, _ = grown(6, seed)
    ranked = tree.ranking(run)
    speeds = [run.speedup(trial) for trial in ranked]
    assert speeds == sorted(speeds, key=lambda speed: -(speed or 0))
    assert len({trial.source_id for trial in ranked}) == len(ranked)
    assert run.reference in ranked and run.speedup(run.reference) == 1.0
    assert tree.best(run) == ranked[0]


@pytest.mark.parametrize("seed", range(20))
def test_parents_are_passed_trials_of_the_last_round_or_the_best_for_all_ideas(seed: int) -> None:
    run, _ = grown(6, seed, branching_factor=5)
    for round in range(1, 5):
        parents = selection.select(run, round)
        best = tree.ranking(run, before=round)[0]
        assert all(tree.round_of(run, parent) == round - 1 or parent == best for parent in parents)
        assert all(run.speedup(parent) is not None for parent in parents) and len(set(parents)) == len(parents)
        shares = [count for _, count in selection.shares(run, round)]
        assert sum(shares) == 5 and max(shares) - min(shares) <= 1 and min(shares) >= 1


@pytest.mark.parametrize("seed", range(20))
def test_a_round_s_view_of_the_past_does_not_change_while_it_is_played(seed: int) -> None:
    """This is what lets a resumed round ask the model the very same question."""
    run, kept = grown(5, seed)
    early = fresh()
    for record in kept:
        if isinstance(record, Ideas) and record.round == 3:
            break
        early.record(record)
    assert selection.select(early, 3) == selection.select(run, 3)
    for parent in selection.select(run, 3):
        assert briefing.brief(early, parent, 3) == briefing.brief(run, parent, 3)


def test_lineage_leads_from_the_reference_through_repairs() -> None:
    run = fresh()
    run.record(Ideas(1, (first := idea(0, 1, run.reference),)))
    run.record(written := Trial(first.id, 0, 0, run.reference.id, "a"))
    run.record(repaired := Trial(first.id, 0, 1, written.id, "b"))
    assert tree.lineage(run, repaired) == (run.reference, written, repaired)
    assert tree.chain(run, first, 0) == (written, repaired) and tree.chain(run, first, 1) == ()


def test_before_the_first_success_the_reference_is_the_only_parent() -> None:
    run = fresh()
    run.record(Ideas(1, (first := idea(0, 1, run.reference),)))
    run.record(trial := Trial(first.id, 0, 0, run.reference.id, "# verdict: wrong"))
    run.record(EvaluationRecord(trial.source_id, evaluation_of(trial.source, "eager")))
    assert selection.select(run, 2) == (run.reference,) == tree.ranking(run)


def test_the_explorer_stems_from_another_idea_than_the_fastest() -> None:
    run = fresh(selection_percentage=0.01)
    run.record(Ideas(1, tuple(ideas := [idea(n, 1, run.reference) for n in range(2)])))
    for one, speed in ((ideas[0], 3.0), (ideas[0], 2.9), (ideas[1], 2.0)):
        attempt = len(tree.chain(run, one, 0))
        run.record(trial := Trial(one.id, attempt, 0, run.reference.id, f"# speed: {speed}"))
        run.record(EvaluationRecord(trial.source_id, evaluation_of(trial.source, "eager")))
    assert [run.speedup(parent) for parent in selection.select(run, 2)] == [3.0, 2.0]


@pytest.mark.parametrize("seed", range(5))
def test_the_best_so_far_never_falls_from_round_to_round(seed: int) -> None:
    run, _ = grown(6, seed)
    steps = tree.progress(run)
    assert list(steps) == sorted(steps) and len(steps) == max(idea.round for idea in run.ideas.values())
    assert steps[-1] == run.speedup(tree.best(run))


def test_the_winner_is_the_fastest_that_was_confirmed_beyond_the_noise() -> None:
    run = fresh()
    ideas = [idea(n, 1, run.reference) for n in range(3)]
    run.record(Ideas(1, tuple(ideas)))
    for one, speed in zip(ideas, (3.0, 2.0, 1.05), strict=True):
        run.record(trial := Trial(one.id, 0, 0, run.reference.id, f"# speed: {speed}"))
        run.record(EvaluationRecord(trial.source_id, evaluation_of(trial.source, "eager")))
    fast, second = tree.contenders(run)
    assert tree.winner(run) == run.reference
    run.record(Confirmation(fast.source_id, evaluation_of("# verdict: wrong")))
    assert tree.winner(run) == run.reference
    run.record(Confirmation(second.source_id, evaluation_of(second.source, "eager", "compile")))
    assert tree.winner(run) == second


def compared(speedup: Interval, verdict: Comparison | None) -> Evaluation:
    found = evaluation_of("# speed: 2", "eager")
    return replace(found, versus=(replace(found.versus[0], speedup=speedup, verdict=verdict),))


@pytest.mark.parametrize(
    ("speedup", "verdict", "wins"),
    [
        (Interval(1.02, 1.03, 1.04), "faster", True),
        (Interval(1.5, 1.6, 1.7), "inconclusive", False),
        (Interval(1.5, 1.6, 1.7), "slower", False),
        (Interval(1.5, 1.6, 1.7), None, True),
        (Interval(1.02, 1.03, 1.04), None, False),
    ],
)
def test_the_server_decides_what_is_faster_and_the_noise_in_records_of_before(
    speedup: Interval, verdict: Comparison | None, wins: bool
) -> None:
    run = fresh()
    run.record(Ideas(1, (one := idea(0, 1, run.reference),)))
    run.record(trial := Trial(one.id, 0, 0, run.reference.id, "#"))
    run.record(EvaluationRecord(trial.source_id, compared(speedup, verdict)))
    assert tree.contenders(run) == ((trial,) if wins else ())
    assert tree.accepted(run, compared(speedup, verdict)) is wins


def test_of_two_that_were_confirmed_the_surer_wins() -> None:
    run = fresh()
    ideas = [idea(n, 1, run.reference) for n in range(2)]
    run.record(Ideas(1, tuple(ideas)))
    for one, speed in zip(ideas, (3.01, 3.0), strict=True):
        run.record(trial := Trial(one.id, 0, 0, run.reference.id, f"# speed: {speed}"))
        run.record(EvaluationRecord(trial.source_id, evaluation_of(trial.source, "eager")))
    first, second = tree.contenders(run)
    sure = evaluation_of("# speed: 3.0", "eager", "compile")
    wide = replace(sure, versus=(replace(sure.versus[0], speedup=Interval(2.0, 3.1, 5.0)), *sure.versus[1:]))
    run.record(Confirmation(first.source_id, wide))
    run.record(Confirmation(second.source_id, sure))
    assert tree.winner(run) == second


def test_ideas_that_the_lineage_has_tried_are_refused_and_the_rest_are_bound() -> None:
    run = fresh()
    run.record(Ideas(1, (idea(0, 1, run.reference, "Fuse all loops."), idea(1, 1, run.reference, "", {"block": 128}))))
    proposed = [
        Idea("", 0, "", "fuse ALL loops", ""),
        Idea("", 0, "", "Another title, equal genes", "", {"block": 128}),
        Idea("", 0, "", "Other genes", "", {"block": 256}),
        Idea("", 0, "", "Tile", ""),
        Idea("", 0, "", "tile!", ""),
    ]
    found = novelty.new_ideas(run, run.reference, 2, proposed)
    assert [one.title for one in found] == ["Other genes", "Tile"]
    assert all(one.round == 2 and one.parent == run.reference.id and one.id for one in found)


def test_a_trial_is_named_by_its_template_s_kernel_and_else_by_its_idea() -> None:
    run = fresh()
    genes, words = idea(0, 1, run.reference, "tiles of 256", {"tile": 256}), idea(1, 1, run.reference, "a model's")
    run.record(Ideas(1, (genes, words)))
    source = "# kernel: the problem's own comment\n# kernel: tiles of 512\nimport torch\n"
    titles = []
    for one, attempt, text in ((genes, 0, "no title"), (genes, 1, source), (words, 0, source)):
        run.record(trial := Trial(one.id, attempt, 0, run.reference.id, text))
        titles.append(tree.title(run, trial))
    assert titles == ["tiles of 256", "tiles of 512", "a model's"]
    assert tree.title(run, run.reference) == "the original"


def test_a_brief_tells_the_lineage_s_lessons_apart_from_other_tries() -> None:
    run = fresh()
    good, bad = idea(0, 1, run.reference, "good"), idea(1, 1, run.reference, "bad")
    run.record(Ideas(1, (good, bad)))
    for one, source in ((good, "# speed: 2.0"), (bad, "# verdict: wrong")):
        run.record(trial := Trial(one.id, 0, 0, run.reference.id, source))
        run.record(EvaluationRecord(trial.source_id, evaluation_of(source, "eager")))
    brief = briefing.brief(run, tree.best(run), 2)
    assert [(o.title, o.status, o.speedup) for o in brief.ancestors] == [("good", Status.PASSED, 2.0)]
    assert [(o.title, o.status, o.remark) for o in brief.siblings] == [("bad", Status.WRONG, "scripted wrong")]
    assert brief.parent_idea == good and brief.parent_evaluation == run.evaluation(brief.parent)


def test_a_record_is_refused_twice_and_where_it_hangs_on_nothing() -> None:
    run = fresh()
    run.record(Ideas(1, (one := idea(0, 1, run.reference),)))
    with pytest.raises(ValueError, match="recorded already"):
        run.record(Ideas(1, (one,)))
    with pytest.raises(ValueError, match="not recorded"):
        run.record(Ideas(1, (replace(one, id="x", parent="nowhere"),)))
    with pytest.raises(ValueError, match="not recorded"):
        run.record(Trial("no idea", 0, 0, run.reference.id, ""))
