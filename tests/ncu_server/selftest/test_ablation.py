"""The mechanisms that the ablation switches off are there to be switched off."""

import ast

import pytest

from benchmarks.ablation import MECHANISMS, Off, without
from ncu_server.places import PACKAGE


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_can_be_switched_off(mechanism: str) -> None:
    for off in MECHANISMS[mechanism].off:
        source = (PACKAGE / off.file).read_text()
        changed = without(source, off)
        assert ast.unparse(ast.parse(changed)) != ast.unparse(ast.parse(source))


def test_what_is_not_there_cannot_be_switched_off() -> None:
    with pytest.raises(LookupError, match=r"rules/lint.py has no nothing"):
        without("REJECT = ()\n", Off("rules/lint.py", "nothing", "()"))
