"""Macros of a candidate's flags that rewrite the headers above its source."""

import pytest

from ncu_server.worker.building import macros


@pytest.mark.parametrize(("flag", "name"), [("-DR=4", "R"), ("-Dsize=3", "size"), ("-D TensorView", "TensorView")])
def test_a_macro_with_which_the_headers_do_not_compile_is_named(flag: str, name: str) -> None:
    with pytest.raises(macros.HeaderMacro, match=f"-D{name} rewrites {name} .* a name of two words"):
        macros.explain(["-O3", "-DROWS=4", flag])


@pytest.mark.parametrize("flag", ["-DROWS=4", "-DM=1024", "-DB=8", "-DNDEBUG", "-DROW_TILE=2", "-O3"])
def test_a_macro_that_the_headers_bear_is_not_blamed(flag: str) -> None:
    macros.explain([flag, "-DCOLS=4096"])
