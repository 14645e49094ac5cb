"""Every verb has a role whose method takes its fields and gives its answer."""

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

pytest.importorskip("torch")

from ncu_server.sandbox.verb import Verb
from ncu_server.worker.roles import ROLES
from ncu_server.worker.verbs import VERBS


def handlers(verb: type[Verb[Any]]) -> list[Any]:
    return [method for role in ROLES.values() if (method := getattr(role, verb.name(), None))]


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_verb_is_answered_as_it_says(verb: type[Verb[Any]]) -> None:
    assert handlers(verb)
    for method in handlers(verb):
        hints = get_type_hints(method)
        answer, fds = hints.pop("return"), hints.pop("fds")
        assert (hints, answer, fds) == (get_type_hints(verb), verb.answer() or type(None), list[int])
        assert [*hints] == [field.name for field in fields(verb)]  # type: ignore[arg-type]


@pytest.mark.parametrize("role", ROLES.values(), ids=ROLES)
def test_a_role_says_nothing_that_nobody_asks(role: type[Any]) -> None:
    assert {name for name in dir(role) if not name.startswith("_")} <= set(VERBS)
