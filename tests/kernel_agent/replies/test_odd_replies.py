"""What is read out of replies in odd form, and why nothing is where nothing can be."""

from __future__ import annotations

import re

import pytest

from kernel_agent.llm.model import Malformed
from kernel_agent.replies import read_ideas, read_module
from kernel_agent.run.types import Problem
from tests.support.odd_replies import IDEAS, MODULES, OTHER, PROBLEM, Odd, OddIdeas

GIVEN = Problem("twice", PROBLEM, "cpu")
PARENT = f"{PROBLEM}\n\n{OTHER}"


def test_the_corpus_is_large_and_its_names_differ() -> None:
    for odds in (MODULES, IDEAS):
        assert len({odd.name for odd in odds}) == len(odds)
    assert len(MODULES) + len(IDEAS) >= 120


@pytest.mark.parametrize("odd", [odd for odd in MODULES if odd.takes], ids=lambda odd: odd.name)
def test_the_module_is_found_in_whatever_form_it_comes(odd: Odd) -> None:
    whole = odd.takes if odd.takes.startswith(PROBLEM) else f"{PROBLEM}\n\n{odd.takes}"
    assert read_module(odd.reply, GIVEN, PARENT) == whole


@pytest.mark.parametrize("odd", [odd for odd in MODULES if odd.refuses], ids=lambda odd: odd.name)
def test_a_reply_without_a_module_is_refused_for_the_true_reason_and_place(odd: Odd) -> None:
    with pytest.raises(Malformed) as caught:
        read_module(odd.reply, GIVEN, PARENT)
    assert re.search(odd.refuses, str(caught.value)), caught.value


@pytest.mark.parametrize("odd", [odd for odd in IDEAS if odd.titles], ids=lambda odd: odd.name)
def test_ideas_are_found_in_whatever_form_they_come(odd: OddIdeas) -> None:
    assert tuple(one.title for one in read_ideas(odd.reply)) == odd.titles


@pytest.mark.parametrize("odd", [odd for odd in IDEAS if odd.refuses], ids=lambda odd: odd.name)
def test_a_reply_without_ideas_is_refused_for_the_true_reason_and_place(odd: OddIdeas) -> None:
    with pytest.raises(Malformed) as caught:
        read_ideas(odd.reply)
    assert re.search(odd.refuses, str(caught.value)), caught.value


@pytest.mark.parametrize("reply", ['{"ideas": []}', 'Nothing beats it.\n```json\n{"ideas": []}\n```\n'])
def test_an_empty_list_of_ideas_is_an_answer(reply: str) -> None:
    assert read_ideas(reply) == []


@pytest.mark.parametrize("reply", ["[]", "{}", '{"ideas": [', '{"ideas": [], ', '{"ideas": [{}]}', '{"kernels": []}'])
def test_what_only_looks_like_an_empty_list_of_ideas_is_none(reply: str) -> None:
    with pytest.raises(Malformed):
        read_ideas(reply)
