"""Kernels that are there already before real scripted servers: made elsewhere, and delivered ones once more."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kernel_agent.bench.client import BenchClient
from kernel_agent.errors import UsageError
from kernel_agent.suite.judging import Judging
from kernel_agent.suite.kernels import found_kernels
from kernel_agent.suite.plan import Plan
from kernel_agent.suite.rows import rows_of
from kernel_agent.suite.store import Store, read
from kernel_agent.suite.types import Row, SuiteProblem
from tests.support.scripted_run import MODEL
from tests.support.suites import GELU, RELU, SORT, played, scripted

KERNELS = {
    "1_fast": "# speed: 2.0\n",
    "2_slow": "# speed: 0.5\n",
    "3_wrong": "# verdict: wrong\n",
    "5_refused": "# refuse: NO_DEVICE\n",
}
ASKED = tuple(SuiteProblem(id, MODEL) for id in (*KERNELS, "4_missing"))


def made(place: Path) -> Path:
    """Kernels made elsewhere, one of them in no known encoding."""
    place.mkdir()
    for id, mark in KERNELS.items():
        (place / f"{id}.py").write_text(f"class ModelNew: ...\n{mark}")
    return place


@pytest_asyncio.fixture
async def pool(tmp_path: Path) -> AsyncIterator[BenchClient]:
    async with scripted(tmp_path / "server") as client:
        yield client


async def evaluate(pool: BenchClient, place: Path, anew: bool = False) -> tuple[dict[str, Row], list[str]]:
    """The rows that come of it, and what was told."""
    told: list[str] = []
    directory = place / "out"
    with Store.open(directory) if directory.exists() else Store.create(directory, Plan("x", {}), ASKED) as store:
        await Judging(store, pool, told.append, anew).evaluate(found_kernels(place / "kernels", ASKED))
    return {row.problem: row for row in rows_of(read(directory))}, told


def calls(place: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (place / "server" / "bench.log").read_text().splitlines()]


async def test_kernels_made_elsewhere_become_rows_whatever_they_are(pool: BenchClient, tmp_path: Path) -> None:
    made(tmp_path / "kernels")
    rows, told = await evaluate(pool, tmp_path)
    fast, slow, wrong, missing, refused = (rows[problem.id] for problem in sorted(ASKED, key=lambda one: one.id))
    assert (fast.status, fast.correct, fast.kernel_us, fast.compile_mode) == ("improved", True, 50.0, "compile")
    assert fast.speedup and fast.speedup.median == 2.0 and fast.versus_compile and fast.versus_compile.median == 1.6
    assert (slow.status, slow.correct, slow.kernel_us) == ("no_improvement", True, 200.0)
    assert (wrong.status, wrong.reason, wrong.evaluations) == ("failed", "wrong: scripted wrong", 1)
    assert (missing.status, missing.reason) == ("failed", f"{tmp_path / 'kernels'} has no file for it")
    assert refused.status == "failed" and "so it was ordered" in str(refused.reason)
    assert len(told) == 5 and "1_fast: 2.00x [1.98, 2.02] over eager PyTorch" in told
    assert all(call["fresh"] and call["baselines"] == ["eager", "compile"] for call in calls(tmp_path))


async def test_an_evaluation_goes_on_with_what_is_left_or_has_changed(pool: BenchClient, tmp_path: Path) -> None:
    kernels = made(tmp_path / "kernels")
    await evaluate(pool, tmp_path)
    before = len(calls(tmp_path))
    (kernels / "2_slow.py").write_text("class ModelNew: ...\n# speed: 3.0\n")
    (kernels / "4_missing.py").write_text("class ModelNew: ...\n# speed: 1.5\n")
    (kernels / "1_fast.py").unlink()
    rows, _ = await evaluate(pool, tmp_path)
    assert len(calls(tmp_path)) == before + 2
    assert rows["2_slow"].kernel_us == pytest.approx(100 / 3) and rows["4_missing"].correct
    assert (rows["1_fast"].status, rows["1_fast"].correct) == ("failed", False), "its kernel is gone"
    (kernels / "1_fast.py").write_text("class ModelNew: ...\n# speed: 2.0\n")
    rows, _ = await evaluate(pool, tmp_path)
    assert len(calls(tmp_path)) == before + 2 and rows["1_fast"].correct, "the verdict on it is kept"
    await evaluate(pool, tmp_path, anew=True)
    assert len(calls(tmp_path)) == before + 2 + 4


async def test_a_file_that_is_no_text_is_a_row(pool: BenchClient, tmp_path: Path) -> None:
    kernels = made(tmp_path / "kernels")
    (kernels / "4_missing.py").write_bytes(b"\x80\x81\xfe" * 9)
    rows, _ = await evaluate(pool, tmp_path)
    assert rows["4_missing"].status == "failed" and "4_missing.py" in str(rows["4_missing"].reason)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kept") / "suite"
    asyncio.run(played(directory, (RELU, SORT, GELU)))
    return directory


@pytest.fixture
def directory(kept: Path, tmp_path: Path) -> Path:
    shutil.copytree(kept, tmp_path / "suite")
    return tmp_path / "suite"


Word = tuple[tuple[Row, ...], list[str], tuple[str, ...]]


async def confirm(pool: BenchClient, directory: Path, anew: bool = False) -> Word:
    """The rows that come of it, what was told, and the faults."""
    told: list[str] = []
    with Store.open(directory) as store:
        faults = await Judging(store, pool, told.append, anew).confirm()
    return rows_of(read(directory)), told, faults


async def test_delivered_kernels_are_judged_again_as_their_files_lie_there(pool: BenchClient, directory: Path) -> None:
    (relu, sort, gelu), told, faults = await confirm(pool, directory)
    assert (relu.held, sort.held, gelu.held) == (True, None, True) and not faults
    assert all("held, " in line and "over eager PyTorch" in line for line in told) and len(told) == 2
    asked = {str(call["source"]): call for call in calls(directory.parent)}
    assert set(asked) == {(one.directory(directory) / "best_kernel.py").read_text() for one in (RELU, GELU)}
    assert sorted(str(call["baselines"]) for call in asked.values()) == ["['eager', 'compile']", "['eager']"]
    assert all(call["fresh"] for call in asked.values())
    assert (await confirm(pool, directory))[1] == [], "what is confirmed stays so"
    assert len((await confirm(pool, directory, anew=True))[1]) == 2


@pytest.mark.parametrize(
    ("mark", "why"),
    [("# verdict: wrong", "wrong: scripted wrong"), ("# speed: 1.02", "inconclusive: 1.02x [1.01, 1.03]")],
)
async def test_a_kernel_that_did_not_hold_is_named_with_the_reason(
    pool: BenchClient, directory: Path, mark: str, why: str
) -> None:
    file = RELU.directory(directory) / "best_kernel.py"
    file.write_text(f"class ModelNew: ...\n{mark}\n")
    (relu, _, gelu), _, _ = await confirm(pool, directory)
    assert (relu.held, gelu.held) == (False, True) and str(relu.why_not_held).startswith(why)
    file.write_text("class ModelNew: ...\n# speed: 9.0\n")
    assert rows_of(read(directory))[0].held is None, "that word was on another file"
    assert (await confirm(pool, directory))[0][0].held is True


async def test_a_fault_of_the_server_is_no_word_on_the_kernel(pool: BenchClient, directory: Path) -> None:
    (RELU.directory(directory) / "best_kernel.py").write_text("class ModelNew: ...\n# refuse: NO_DEVICE\n")
    (relu, _, gelu), _, faults = await confirm(pool, directory)
    assert relu.held is None and gelu.held is True
    assert len(faults) == 1 and faults[0].startswith("level1/19_ReLU: ") and "so it was ordered" in faults[0]


async def test_a_kernel_made_elsewhere_holds_where_it_is_right_again(pool: BenchClient, tmp_path: Path) -> None:
    made(tmp_path / "kernels")
    await evaluate(pool, tmp_path)
    rows, _, _ = await confirm(pool, tmp_path / "out")
    assert {row.problem: row.held for row in rows if row.correct} == {"1_fast": True, "2_slow": True}


async def test_a_suite_without_a_kernel_has_nothing_to_confirm(pool: BenchClient, tmp_path: Path) -> None:
    with Store.create(tmp_path / "empty", Plan("x", {}), (RELU,)):
        pass
    with pytest.raises(UsageError, match="has delivered no kernel"):
        await confirm(pool, tmp_path / "empty")
