"""What is measured once in a while can still be measured."""

import importlib

import pytest

from benchmarks.deck import valued
from tests.support.paths import ROOT

APART = {"kernelbench_one", "clients.legacy"}
"""Children that run beside packages of others."""
FILES = sorted((ROOT / "benchmarks").rglob("*.py"))
NAMES = {".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts) for path in FILES}


@pytest.mark.parametrize("name", sorted(name for name in NAMES - APART if not name.startswith("prompt_problems")))
def test_a_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}".removesuffix(".__init__"))


def test_a_decks_formula_is_read_as_sums_and_products_alone() -> None:
    sizes = {"M": 2.0, "K": 6.0}
    assert valued("M*K + (K/2)*M", sizes) == 18
    for other in ("M ** K", "print(M)", "M * N"):
        with pytest.raises(ValueError, match="no sum of products of M, K"):
            valued(other, sizes)
