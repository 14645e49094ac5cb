"""One budget over many problems, as tables of made-up histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernel_agent.run.budget import Limits
from kernel_agent.suite.grants import SHORTEST, History, Rules, first, next_grant, raised, score, share
from kernel_agent.suite.plan import Grant, granted
from kernel_agent.suite.types import State

SHARE = Grant("", minutes=5.0)
RULES = Rules(share=Limits(minutes=5.0), cap=Limits())


def history(name: str, best: float = 1.0, reached: float | None = 0.5, **given: object) -> History:
    """A problem that has used its share on ten candidates, and whose budget ended it."""
    found = History(name, State.DONE, (replace(SHARE, problem=name),), Limits(0.0, 0, 5.0), best, reached, 10, True)
    return replace(found, **given)


GAINING = history("gaining", best=2.0)
FLAT = history("flat")
NEAR = history("near", best=3.0, reached=0.96)
FAILED = history("failed", best=2.0, state=State.FAILED)
ENDED = history("ended by itself", best=2.0, spent_out=False)
RUNNING = history("running", best=2.0, state=State.RUNNING)


@pytest.mark.parametrize(
    ("total", "cap", "even", "expected"),
    [
        (Limits(), Limits(), False, Limits()),
        (Limits(minutes=100), Limits(), False, Limits(minutes=5.0)),
        (Limits(minutes=100), Limits(), True, Limits(minutes=10.0)),
        (Limits(minutes=100), Limits(minutes=2), False, Limits(minutes=2)),
        (Limits(), Limits(minutes=2, dollars=1), False, Limits(minutes=2, dollars=1)),
        (Limits(dollars=10, tokens=1000), Limits(), False, Limits(dollars=0.5, tokens=50)),
    ],
)
def test_a_share_is_half_of_the_even_one_unless_all_get_the_same(
    total: Limits, cap: Limits, even: bool, expected: Limits
) -> None:
    assert share(total, cap, 10, even) == expected


@pytest.mark.parametrize("nothing", [FLAT, NEAR, FAILED, ENDED, RUNNING, history("waits", state=State.WAITING)])
def test_what_has_no_headroom_or_no_gain_gets_nothing(nothing: History) -> None:
    assert score(nothing, RULES) == 0
    assert next_grant(Limits(minutes=100), [nothing], RULES) is None


@pytest.mark.parametrize(
    ("more", "less"),
    [
        (history("a", best=2.0, reached=0.1), history("b", best=2.0, reached=0.8)),
        (history("a", best=3.0), history("b", best=1.5)),
        (history("a", best=2.0), history("b", best=2.0, judged=40)),
        (GAINING, history("b", judged=0)),
        (history("a", best=2.0, reached=None), FLAT),
    ],
)
def test_more_headroom_and_more_gain_a_call_come_first(more: History, less: History) -> None:
    given = next_grant(Limits(minutes=100), [less, more], RULES)
    assert given is not None and given.problem == more.problem


def test_a_grant_is_a_share_more_and_remembers_what_was_reached() -> None:
    given = next_grant(Limits(minutes=100), [FLAT, GAINING], RULES)
    assert given == Grant("gaining", minutes=5.0, why="2.00x so far, 50% of the limit", best=2.0, judged=10)


def test_a_problem_that_has_played_its_rounds_and_gained_gets_one_more() -> None:
    given = next_grant(Limits(minutes=100), [replace(GAINING, spent_out=False, played_out=True)], RULES)
    assert given is not None and given.rounds == 1


def test_a_problem_that_did_not_gain_by_its_last_grant_gets_no_other() -> None:
    again = replace(GAINING, grants=(*GAINING.grants, Grant("gaining", minutes=5.0, best=2.0, judged=10)), judged=20)
    assert next_grant(Limits(minutes=100), [again], RULES) is None
    assert next_grant(Limits(minutes=100), [replace(again, best=2.2)], RULES) is not None


@pytest.mark.parametrize(
    ("left", "others", "minutes"),
    [
        (100.0, [], 5.0),
        (3.0, [], 3.0),
        (0.4, [], None),
        (0.0, [], None),
        (6.0, [replace(RUNNING, spent=Limits(0.0, 0, 1.0))], 2.0),
        (6.0, [history("new", state=State.WAITING, grants=())], 1.0),
        (5.2, [history("new", state=State.WAITING, grants=())], None),
    ],
)
def test_what_others_still_need_is_not_given_away(left: float, others: list[History], minutes: float | None) -> None:
    given = next_grant(Limits(minutes=left), [GAINING, *others], RULES)
    assert (given.minutes if given else None) == minutes


def test_nothing_is_granted_beyond_the_limit_of_one_problem() -> None:
    rules = replace(RULES, cap=Limits(minutes=7.0))
    given = next_grant(Limits(minutes=100), [GAINING], rules)
    assert given is not None and given.minutes == 2.0
    assert next_grant(Limits(minutes=100), [replace(GAINING, grants=(*GAINING.grants, given))], rules) is None


def test_even_grants_nothing_and_neither_does_a_suite_without_a_limit_in_all() -> None:
    assert next_grant(Limits(minutes=100), [GAINING], replace(RULES, even=True)) is None
    assert next_grant(Limits(), [GAINING], replace(RULES, cap=Limits(minutes=5.0))) is None


def test_dollars_that_are_spent_grant_no_minutes() -> None:
    rules = Rules(share=Limits(dollars=1.0, minutes=5.0), cap=Limits())
    both = replace(GAINING, grants=(Grant("gaining", 5.0, 1.0),))
    assert next_grant(Limits(dollars=0.0, minutes=100), [both], rules) is None
    given = next_grant(Limits(dollars=0.5, minutes=100), [both], rules)
    assert given is not None and (given.minutes, given.dollars) == (5.0, 0.5)


def test_the_last_problems_share_what_is_left_where_it_is_less() -> None:
    waiting = [history(name, state=State.WAITING, grants=()) for name in "abc"]
    given = first(Limits(minutes=6.0), waiting, "a", RULES)
    assert given is not None and given.minutes == 2.0
    assert first(Limits(minutes=0.0), waiting, "a", RULES) is None
    assert first(Limits(), waiting, "a", Rules(Limits(), Limits())) == Grant("a", why="its share")


def test_raised_limits_go_to_what_a_budget_has_ended() -> None:
    higher = replace(RULES, share=Limits(minutes=8.0))
    given = raised(Limits(), [ENDED, FLAT], higher)
    assert given is not None and (given.problem, given.minutes) == ("flat", 3.0)
    assert raised(Limits(), [replace(FLAT, grants=(*FLAT.grants, given))], higher) is None
    assert raised(Limits(minutes=0.0), [FLAT], higher) is None


def test_a_suite_spends_its_budget_where_there_is_gain_and_then_ends() -> None:
    """Ten problems of which three gain, each by a factor that shrinks with every grant."""
    total, gains = 100.0, {"0": 2.0, "3": 1.5, "7": 1.2}
    left, problems = total, [History(str(number)) for number in range(10)]
    rules = Rules(share(Limits(minutes=total), Limits(), 10, even=False), Limits())
    given: list[Grant] = []
    while True:
        waiting = next((one for one in problems if one.state is State.WAITING), None)
        grant = (
            first(Limits(minutes=left), problems, waiting.problem, rules)
            if waiting
            else next_grant(Limits(minutes=left), problems, rules)
        )
        if grant is None:
            break
        given.append(grant)
        assert grant.minutes
        at = int(grant.problem)
        old = problems[at]
        spent, gain = (
            (old.spent.minutes or 0.0) + grant.minutes,
            gains.get(old.problem, 1.0) ** (0.5 ** len(old.grants)),
        )
        problems[at] = replace(
            old,
            state=State.DONE,
            grants=(*old.grants, grant),
            spent=Limits(0.0, 0, spent),
            best=old.best * gain,
            reached=0.2 * old.best * gain,
            judged=old.judged + 10,
            spent_out=True,
        )
        left -= grant.minutes
    got = {one.problem: granted(one.grants)[0].minutes or 0.0 for one in problems}
    assert min(got.values()) == 5.0 and sum(got.values()) <= total and left >= 0
    assert {name for name, minutes in got.items() if minutes > 5.0} == set(gains)


def test_a_problem_that_waits_with_too_short_a_share_gets_the_rest_of_it() -> None:
    short = replace(SHARE, problem="waits", minutes=0.5)
    waits = history("waits", state=State.WAITING, grants=(short,), spent=Limits(0.0, 0, 0.0))
    more = raised(Limits(minutes=100), [waits], RULES)
    assert more is not None and more.minutes == 4.5


def test_few_minutes_are_for_few_problems_each_long_enough() -> None:
    total = Limits(minutes=4.0)
    rules = Rules(share(total, Limits(), 20, even=False), Limits())
    assert rules.share == Limits(minutes=SHORTEST)
    waiting = [History(str(number)) for number in range(20)]
    left, played = 4.0, 0
    while grant := first(Limits(minutes=left), waiting, waiting[0].problem, rules):
        assert grant.minutes
        left, played, waiting = left - grant.minutes, played + 1, waiting[1:]
    assert played == 6 and left == pytest.approx(0.0, abs=1e-9)
    assert share(Limits(minutes=0.5), Limits(), 20, even=True) == Limits(minutes=0.5)
    assert share(total, Limits(minutes=0.1), 20, even=True) == Limits(minutes=0.1)
