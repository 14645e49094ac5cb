"""What a digest says of launches recorded on GPUs from sm_75 to sm_120."""

import pytest
from pydantic import TypeAdapter

from kernel_agent.bench import profiles
from ncu_server.profiler import metrics
from ncu_server.profiler.compare import compare
from ncu_server.profiler.digest import digest, plain
from ncu_server.profiler.facts import KernelFacts, LineFact, RuleFact
from ncu_server.profiler.render import TOKENS, brief, tokens
from ncu_server.wire.profiling import KernelReport, Profiled, ProfileResult
from tests.support.nsight import LAUNCHES, launch


def troubles(which: str, **changed: float | str | None) -> set[str]:
    return {finding.trouble for finding in digest(launch(which, **changed)).findings}


@pytest.mark.parametrize(
    ("which", "bound", "trouble"),
    [
        ("healthy_sm_90", "near the limit", None),
        ("healthy_sm_75", "near the limit", None),
        ("uncoalesced_sm_90", "memory", "uncoalesced"),
        ("bank_conflicts_sm_86", "launch", "bank_conflicts"),
        ("spills_sm_86", "memory", "spills"),
        ("low_occupancy_sm_80", "latency", "low_occupancy"),
        ("tensor_idle_sm_86", "compute", "tensor_idle"),
        ("small_grid_sm_100", "launch", "small_grid"),
        ("tail_sm_120", "latency", "tail"),
        ("barriers_sm_86", "latency", "barriers"),
    ],
)
def test_a_recorded_launch_is_told_by_its_disease(which: str, bound: str, trouble: str | None) -> None:
    found = digest(launch(which))
    assert found.bound == bound
    named = {finding.trouble for finding in found.findings}
    assert trouble in named if trouble else not named
    assert found.duration_us and found.clock_ghz and found.why


def test_warps_that_wait_at_a_barrier_beside_busy_tensor_cores_are_no_trouble() -> None:
    seen = launch("barriers_sm_86")
    busy = {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 68.0}
    fed = seen.model_copy(update={"metrics": {**seen.metrics, **busy}})
    assert "barriers" not in {finding.trouble for finding in digest(fed).findings}


@pytest.mark.parametrize("which", LAUNCHES)
def test_no_digest_holds_what_is_no_number_or_costs_too_much(which: str) -> None:
    text = digest(launch(which)).model_dump_json()
    assert "NaN" not in text and "Infinity" not in text
    assert tokens(digest(launch(which))) < TOKENS


def test_names_that_moved_with_the_architecture_are_found() -> None:
    newest = digest(launch("tail_sm_120"))
    assert newest.memory.dram_read_bytes == pytest.approx(12_607_000, rel=1e-3)
    assert newest.tensor_pct and newest.tensor_pct > 50
    assert digest(launch("small_grid_sm_100")).tensor_pct == pytest.approx(12.5, abs=0.1)


def test_what_was_not_collected_is_missing_with_its_section_not_made_up() -> None:
    found = digest(launch("poor_sections_sm_90"))
    assert found.bound == "unknown" and found.duration_us is None and not found.stalls
    assert {m.metric: m.reason for m in found.missing}["gpu__time_duration.sum"].endswith("SpeedOfLight collects it")
    empty = digest(KernelFacts(name="k"))
    assert empty.confidence == "high" and empty.occupancy.limiter is None and not empty.findings


def test_zero_samples_give_no_hot_lines_and_a_doubt() -> None:
    found = digest(launch("healthy_sm_90", [LineFact(file="k.cu", line=1, text="x", executed=5)], samples=0.0))
    assert not found.hot_lines
    assert found.confidence == "low" and "0 samples" in found.doubts[0]


def test_traffic_beyond_need_is_laid_to_the_line_that_makes_most_of_it() -> None:
    lines = [
        LineFact(file="/b/cuda.cu", line=7, text="out[i] = in[i];", samples=90, global_sectors=80, global_ideal=80),
        LineFact(file="/b/cuda.cu", line=9, text="out[i] = in[i * 8];", samples=10, global_sectors=90, global_ideal=20),
    ]
    found = digest(launch("uncoalesced_sm_90", lines), source="a\nout[i] = in[i];\nb\n  out[i] = in[i * 8];\n")
    (finding,) = [f for f in found.findings if f.trouble == "uncoalesced"]
    assert finding.place and (finding.place.file, finding.place.line) == ("cuda.cu", 9)
    assert finding.place.candidate_line == 4
    assert [(line.line, line.share_pct) for line in found.hot_lines] == [(7, 90.0), (9, 10.0)]


def test_a_line_that_stands_twice_in_the_candidate_is_not_placed() -> None:
    found = digest(launch("healthy_sm_90", [LineFact(file="k.cu", line=1, text="x;", samples=9)]), source="x;\nx;\n")
    assert found.hot_lines[0].candidate_line is None


def test_waste_that_nobody_waits_for_is_no_trouble() -> None:
    calm = {"memory_pct": 5.0, "latency": 1e6}
    assert "uncoalesced" not in troubles("uncoalesced_sm_90", **calm)


def test_a_busy_load_pipe_is_no_limit_but_a_busy_tensor_pipe_is() -> None:
    known = dict(LAUNCHES["tail_sm_120"])
    throughput = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
    for pipe, bound in (("tensor_cycles_active", "near the limit"), ("lsu", "compute")):
        name = f"sm__pipe_{pipe}.avg.pct_of_peak_sustained_elapsed" if pipe != "lsu" else "l1tex__lsuin_requests.avg"
        metrics = known | {throughput: 91.0, f"breakdown:{throughput}": name, name: 91.0}
        assert digest(KernelFacts(name="k", metrics=metrics)).bound == bound


def test_rules_are_data_with_those_that_promise_most_of_the_whole_time_first() -> None:
    def rule(title: str, kind: int, speedup: float, scope: str | None) -> RuleFact:
        return RuleFact.model_validate(
            {"rule": title, "section": "S", "title": title, "text": title, "kind": kind, "speedup_pct": speedup}
            | {"scope": scope}
        )

    rules = [rule("local", 2, 90, "local"), rule("less", 2, 5, "global"), rule("most", 3, 40, "global")]
    found = digest(KernelFacts(name="k", rules=[*rules, rule("fine", 1, 99, "global")]))
    assert [r.title for r in found.rules] == ["most", "less", "local"]


def test_the_markup_of_rules_is_stripped() -> None:
    text = "See @section:Occupancy:it@, @url:the guide:https://x.org/a#b@, @source:k.cu:12:this line@, @sass:16:that@."
    assert plain(text) == "See it, the guide, this line, that."


def test_a_number_is_collected_compared_digested_and_told_by_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    row = metrics.Metric("Tables", ("l1tex__new.sum", "l1tex__old.sum"), "new sectors", "sectors", shown=True)
    monkeypatch.setitem(metrics.ROWS, "new", row)
    kernel = launch("uncoalesced_sm_90")
    before, after = (
        kernel.model_copy(update={"metrics": {**kernel.metrics, "l1tex__old.sum": number}}) for number in (4e4, 1e4)
    )
    assert [(c.what, c.value) for c in digest(before).counters] == [("new sectors", 4e4)] and not digest(
        kernel
    ).counters
    assert [c.what for c in compare(before, after, ("a", "b")).changes] == ["new sectors"]
    answer = TypeAdapter(profiles.Digest).validate_python(digest(before).model_dump())
    told = profiles.profile(profiles.ProfileAnswer("profiled", "", profiles.KernelReport("r", digest=answer)))
    assert told.metrics[-1] == "new sectors 4e+04 sectors"


@pytest.mark.parametrize("count", [1, 2, 8])
def test_however_many_digests_there_are_the_result_is_cut_to_what_fits(count: int) -> None:
    lines = [LineFact(file="k.cu", line=n, text="y" * 160, samples=100 - n) for n in range(8)]
    rules = [RuleFact(rule="r", section="S", title=f"t{n}", text="Z" * 700, kind=2) for n in range(9)]
    kernel = launch("uncoalesced_sm_90", lines).model_copy(update={"rules": rules})
    parts = [
        Profiled(target="c", status="profiled", report=KernelReport(report_id=f"{n:012}", digest=digest(kernel)))
        for n in range(count)
    ]
    result = brief(ProfileResult(profiles=parts))
    assert tokens(result) <= TOKENS
    first, last = (result.profiles[n].report for n in (0, -1))
    assert first and first.digest and first.digest.findings
    assert last and (last.digest or "read_report" in last.notes[0])
