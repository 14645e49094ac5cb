"""The bandit: each model once first, then by gain for cost, the same choice each time."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kernel_agent.llm.bandit import Pull, choice

MODELS = ("big", "small")


def asked(*pulls: Pull, calls: int = 400) -> Counter[str]:
    return Counter(choice(MODELS, pulls, turn, f"place {turn}") for turn in range(calls))


def times(count: int, model: str, reward: float, cost: float) -> list[Pull]:
    return [Pull(model, reward, cost)] * count


def test_models_that_were_never_asked_take_turns_before_any_other() -> None:
    assert [choice(("a", "b", "c"), [], turn, "s") for turn in range(4)] == ["a", "b", "c", "a"]
    assert asked(Pull("big", 1.0, 0.01)) == {"small": 400}


def test_at_equal_cost_the_model_that_gains_is_asked() -> None:
    found = asked(*times(8, "big", 0.8, 1.0), *times(8, "small", 0.0, 1.0))
    assert found["big"] > 380 and found["small"] > 0, "the other may still prove itself"


@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e4])
def test_at_equal_gain_the_model_that_costs_a_tenth_is_asked_whatever_the_unit(unit: float) -> None:
    found = asked(*times(8, "big", 0.5, unit), *times(8, "small", 0.5, unit / 10))
    assert found["small"] > 390


def test_a_dear_model_is_asked_where_it_gains_more_than_its_price_is_higher() -> None:
    assert asked(*times(60, "big", 0.9, 2.0), *times(60, "small", 0.05, 1.0))["big"] > 390


def test_a_free_model_that_gains_is_asked_before_one_that_costs() -> None:
    assert asked(*times(3, "big", 1.0, 0.1), *times(3, "small", 0.1, 0.0)) == {"small": 400}


def test_the_choice_follows_from_pulls_and_seed_and_not_from_their_order() -> None:
    pulls = [*times(2, "big", 0.5, 1.0), *times(2, "small", 0.5, 1.0)]
    found = [choice(MODELS, pulls, 0, f"{n}") for n in range(50)]
    assert found == [choice(MODELS, reversed(pulls), 7, f"{n}") for n in range(50)]
    assert set(found) == set(MODELS)


def test_over_rounds_it_gains_more_for_the_money_than_turns_do() -> None:
    """Arms of known means, asked in rounds of eight of which the rewards come at the end."""
    arms = {"a": (0.5, 1.0), "b": (0.5, 4.0), "c": (0.1, 1.0), "d": (0.8, 8.0)}
    drawn = random.Random(0)
    pulls: list[Pull] = []
    for number in range(12):
        names = [choice(tuple(arms), pulls, turn, f"{number} {turn}") for turn in range(8)]
        pulls += [Pull(name, float(drawn.random() < arms[name][0]), arms[name][1]) for name in names]
    rate = sum(pull.reward for pull in pulls) / sum(pull.cost for pull in pulls)
    turns = sum(mean for mean, _ in arms.values()) / sum(cost for _, cost in arms.values())
    assert rate > 1.5 * turns
