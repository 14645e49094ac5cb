"""Every shipped case gets the verdict that a sound judge gives, with no forbidden effect."""

import pytest

from ncu_server.judge.problems import Workshop
from ncu_server.selftest.cases import HERE, SelftestCase, cases, catalogue
from ncu_server.selftest.run import judged
from ncu_server.wire import evaluation

# One of each family; the rest takes minutes.
QUICK = {
    "cpu/clock_overwritten",
    "cpu/decoy",
    "cpu/deletes_files",
    "cpu/half_the_tree",
    "cpu/honest_argmax",
    "cpu/honest_batch_norm",
    "cpu/honest_bfloat16",
    "cpu/honest_containers",
    "cpu/inherits_the_reference",
    "cpu/looks_for_keys",
    "cpu/never_so_far_right",
    "cpu/numpy_computes",
    "cpu/replay_by_address",
    "cpu/timed_part_replaced",
}
ALL = cases()
NAMES = {case.name for case in ALL}


def wanted() -> list[object]:
    found = []
    for case in ALL:
        for rules in ("default", "strict"):
            if rules == "strict" and case.expect["strict"] == case.expect["default"]:
                continue
            quick = case.name in QUICK and rules == "default"
            marks = [] if quick else [pytest.mark.selftest if case.target == "cpu" else pytest.mark.gpu]
            found.append(pytest.param(case, rules, marks=marks, id=f"{case.name}-{rules}"))
    return found


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("case", "rules"), wanted())
async def test_the_judge_says_what_a_sound_one_would(
    warm: Workshop, case: SelftestCase, rules: evaluation.Rules
) -> None:
    outcome = await judged(warm, case, rules)
    assert outcome.fault is None, f"{outcome.row()}\n{outcome.log}"


def test_the_quick_ones_exist() -> None:
    assert {n for n in NAMES if n in QUICK} == QUICK


def test_every_row_of_the_catalogue_has_a_case() -> None:
    rows = catalogue()
    assert {case.kind for case in ALL} == {*rows.cheats, *rows.honest}
    assert not set(rows.cheats) & set(rows.honest) - {case.kind for case in ALL if case.honest}


def test_there_are_enough_of_each_target() -> None:
    counts = {target: sum(c.target == target for c in ALL) for target in ("cpu", "cuda", "triton")}
    assert counts["cpu"] >= 60
    assert counts["cuda"] + counts["triton"] >= 20


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.name)
def test_headers_are_sound(case: SelftestCase) -> None:
    if case.honest:
        assert case.expect["default"] == {"passed"}
        assert not case.effects
    else:
        assert case.expect["default"] != {"passed"}
        twin = next((c for c in ALL if c.name == case.twin), None)
        assert twin is not None and twin.honest, f"{case.name} has no honest twin"
        assert twin.problem_name == case.problem_name
    assert case.why.endswith(".")


def test_every_problem_and_kernel_is_used() -> None:
    problems = {p.stem for p in (HERE / "problems").glob("*.py")}
    assert {case.problem_name for case in ALL} == problems
    texts = "".join(p.read_text() for t in ("cpu", "cuda", "triton") for p in (HERE / t).glob("*.py"))
    assert all(f"kernel: {p.stem}\n" in texts for p in (HERE / "kernels").glob("*.py"))
