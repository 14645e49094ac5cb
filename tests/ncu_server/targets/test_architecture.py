"""Names of architectures, as people give them and as compilers want them."""

import pytest

from ncu_server.errors import Refusal
from ncu_server.targets.architecture import dotted, full


@pytest.mark.parametrize("number", ["90", "100", "101", "103", "110", "120", "121"])
def test_an_architecture_with_instructions_of_its_own_gets_its_suffix(number: str) -> None:
    assert full(f"sm_{number}") == f"sm_{number}a"
    assert dotted(f"sm_{number}") == f"{number[:-1]}.{number[-1]}a"


@pytest.mark.parametrize("number", ["75", "80", "86", "87", "89"])
def test_an_architecture_without_such_instructions_gets_none(number: str) -> None:
    assert (full(f"sm_{number}"), dotted(f"sm_{number}")) == (f"sm_{number}", f"{number[:-1]}.{number[-1]}")


@pytest.mark.parametrize("arch", ["", "sm_", "sm_9", "sm_90a", "sm_1000", "gfx942", "sm_90; rm"])
def test_what_is_no_architecture_is_refused(arch: str) -> None:
    with pytest.raises(Refusal, match="BAD_ARGUMENT"):
        full(arch)
