"""Verdicts of a real server on real candidates: faults of the kernel are results with a status."""

import pytest

from tests.support.edits import edit
from tests.support.measuring import HONEST as BOUND
from tests.support.measuring import QUICK as HONEST
from tests.support.measuring import SCALE_ADD, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")

LATE = edit(HONEST, "kernel = load_inline", "import functools\nkernel = functools.cache(lambda: load_inline")
LATE = edit(edit(LATE, 'extra_cflags=["-O3"])', 'extra_cflags=["-O3"]))'), "kernel.run", "kernel().run")
LOOP = "d[i] = p[i] * (float)s + q[i] + c[i % n];"


async def test_an_honest_kernel_passes_with_a_timing_and_a_paired_speedup(server: Server) -> None:
    result = await server.evaluate(HONEST)
    assert result["status"] == "passed", result["log"]
    assert 0 <= result["error"] <= 64
    assert result["timing"]["low_us"] <= result["timing"]["median_us"] <= result["timing"]["high_us"]
    (versus,) = result["versus"]
    assert versus["baseline"] == "eager"
    assert versus["speedup"]["low"] <= versus["speedup"]["median"] <= versus["speedup"]["high"]
    ratio = versus["timing"]["median_us"] / result["timing"]["median_us"]
    assert versus["speedup"]["median"] == pytest.approx(ratio, rel=0.5)


@pytest.mark.parametrize("late", ["super().__init__()", "return out"])
async def test_a_second_library_may_be_built_in_the_constructor_or_a_call(server: Server, late: str) -> None:
    result = await server.evaluate(
        edit(HONEST, late, f"load_inline('quick', SOURCE, no_implicit_headers=True); {late}")
    )
    assert result["status"] == "passed", result["log"]


@pytest.mark.parametrize("honest", [HONEST, LATE], ids=["import", "call"])
async def test_a_library_may_be_built_of_files_that_the_candidate_writes(server: Server, honest: str) -> None:
    write = "import pathlib, tempfile\nfile = pathlib.Path(tempfile.mkdtemp(), 'quick.cpp')\nfile.write_text(SOURCE)\n"
    candidate = edit(honest, "kernel = ", f"{write}kernel = ")
    candidate = edit(candidate, "import load_inline", "import load")
    candidate = edit(candidate, 'load_inline("quick", SOURCE, no_implicit_headers=True,', 'load("quick", [str(file)],')
    result = await server.evaluate(candidate)
    assert result["status"] == "passed", result["log"]


async def test_a_library_built_anew_by_each_call_is_refused_with_where_to_build_it(server: Server) -> None:
    late = "load_inline('quick', SOURCE, no_implicit_headers=True, extra_cflags=[f'-D_{id(out)}'])"
    result = await server.evaluate(edit(HONEST, "return out", f"{late}; return out"))
    assert result["status"] == "run_error"
    first, *others = result["log"].splitlines()
    assert "NotBuilt: this call of load_inline or load was not made when the candidate was built: call it" in first
    assert any(row.startswith("Traceback") for row in others)


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ((LOOP, edit(LOOP, ";", "")), "build_error", "error: expected"),
        (("class ModelNew", "assert kernel() == 0\nclass ModelNew"), "build_error", "AssertionError"),
        (("kernel().run", "kernel().missing"), "run_error", "missing"),
        (("return out", "import os; os._exit(3)"), "build_error", "while it was called to be built"),
        (("return out", "return out[:1]"), "wrong", "shape"),
    ],
)
async def test_faults_of_a_late_build_are_told_from_those_of_a_call(
    server: Server, change: tuple[str, str], status: str, word: str
) -> None:
    result = await server.evaluate(edit(LATE, *change))
    assert result["status"] == status, result["log"]
    assert word in result["log"]


async def test_a_fresh_judgement_agrees(server: Server) -> None:
    result = await server.evaluate(HONEST, fresh=True)
    assert result["status"] == "passed"


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ((LOOP, edit(LOOP, "c[i % n]", "c[i % n] * 1.001f")), "wrong", "elements"),
        ((LOOP, "if (i % 7) " + LOOP), "wrong", "elements"),
        ((LOOP, ";"), "wrong", "elements"),
        (("torch.empty_like(x)", "torch.empty_like(x)[None]"), "wrong", "shape"),
        (("return out", "return out.double()"), "wrong", "dtype"),
        (("return out", "return (out, out)"), "wrong", "tuple"),
        (("return out", "return x.copy_(out)"), "wrong", "inputs"),
        (("return out", "return out.as_subclass(Liar)"), "wrong", "Liar"),
        (("return out", "return out.to_sparse()"), "wrong", "sparse_coo as tensor 0: only dense"),
        (("return out", "return out.to('meta')"), "wrong", "a meta tensor"),
        (("return out", "return 10**5000"), "wrong", "more than can be told"),
        (("return out", "out = [out]; out.append(out); return out"), "wrong", "in one another without end"),
        ((LOOP, edit(LOOP, ";", "")), "build_error", "error: expected"),
        (("class ModelNew", "raise RuntimeError('at import')\nclass ModelNew"), "build_error", "at import"),
        (("class ModelNew(", "class ModelNew)("), "build_error", "line"),
        (("class ModelNew", "class Other"), "rejected", "ModelNew"),
        (("return out", "raise ValueError('in forward')"), "run_error", "in forward"),
        (("super().__init__()", "super().__init__(); raise SystemExit(0)"), "run_error", "SystemExit"),
        (("return out", "import os; os._exit(0)"), "run_error", "exit code 0"),
        ((LOOP, "*(volatile int*)8 = 1;"), "run_error", "SIGSEGV"),
        (("super().__init__()", "super().__init__(); print('y' * 3_000_000)"), "passed", ""),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
async def test_each_fault_gets_its_status(server: Server, change: tuple[str, str], status: str, word: str) -> None:
    liar = "class Liar(torch.Tensor):\n    pass\n\nclass ModelNew"
    candidate = edit(edit(HONEST, "class ModelNew", liar), *change)
    result = await server.evaluate(candidate)
    assert (result["status"], word in result["log"]) == (status, True), result["log"]
    assert (result["timing"] is None) == (status != "passed")


async def test_a_macro_that_would_rewrite_the_binding_is_refused_in_a_sentence(server: Server) -> None:
    result = await server.evaluate(edit(BOUND, '["-O3"]', '["-O3", "-DR=4"]'))
    assert result["status"] == "build_error"
    assert "The flag -DR rewrites R in the headers" in result["log"].splitlines()[-1]


async def test_what_the_compiler_said_is_data_as_well(server: Server) -> None:
    result = await server.evaluate(HONEST.replace(LOOP, LOOP.replace(";", "")))
    (first, *_) = result["diagnostics"]
    assert (first["severity"], "expected" in first["text"]) == ("error", True) and first["line"] > 0
    assert first["candidate_line"] is None or HONEST.splitlines()[first["candidate_line"] - 1].strip()
    assert not (await server.evaluate(HONEST.replace("class ModelNew", "1 / 0\nclass ModelNew")))["diagnostics"]


async def test_warnings_go_by_their_old_name_too(server: Server) -> None:
    result = await server.evaluate(HONEST.replace("class ModelNew", "from functools import cache\nclass ModelNew"))
    assert result["warnings"] and result["warnings"] == result["leads"]


async def test_an_endless_candidate_is_a_timeout(server: Server) -> None:
    result = await server.evaluate(edit(HONEST, LOOP, "for (volatile int k = 0;;) k = 1;"), timeout_s=3)
    assert result["status"] == "timeout"
    assert (await server.evaluate(HONEST))["status"] == "passed"


async def test_replaying_the_last_output_is_caught_in_a_timed_call(server: Server) -> None:
    count = "        self.calls = getattr(self, 'calls', 0) + 1\n        if self.calls > 60: return self.kept.clone()\n"
    cached = edit(HONEST, "        out = torch", count + "        out = torch")
    result = await server.evaluate(edit(cached, "return out", "self.kept = out; return out"))
    assert result["status"] == "wrong"
    assert "timed call" in result["log"]


async def test_returning_unwritten_memory_is_wrong(server: Server) -> None:
    result = await server.evaluate(edit(HONEST, "kernel.run(x, y, self.bias.detach(), out, self.scale)", "pass"))
    assert result["status"] == "wrong"


async def test_a_module_without_a_kernel_is_rejected(server: Server) -> None:
    result = await server.evaluate(edit(SCALE_ADD, "class Model", "class ModelNew"))
    assert result["status"] == "rejected"


async def test_a_candidate_sees_no_key(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-1")
    spy = "import os\nassert not [k for k in os.environ if 'KEY' in k or 'TOKEN' in k]\n"
    assert (await server.evaluate(spy + HONEST))["status"] == "passed"


async def test_parameters_and_arguments_reach_the_candidate(server: Server) -> None:
    problem = edit(SCALE_ADD, "return [1.5]", "return [float(torch.rand(()))]")
    assert (await server.evaluate(HONEST, problem=problem))["status"] == "passed"


@pytest.mark.parametrize(
    ("outputs", "status"),
    [("(a, a > 0)", "passed"), ("[a, a > 0]", "wrong"), ("(a, a < 0)", "wrong"), ("(a, (a > 0).int())", "wrong")],
)
async def test_containers_and_exact_types_are_held(server: Server, outputs: str, status: str) -> None:
    problem = edit(
        SCALE_ADD,
        "return x * self.scale + y + self.bias",
        "a = x * self.scale + y + self.bias\n        return (a, a > 0)",
    )
    candidate = edit(HONEST, "return out", f"a = out\n        return {outputs}")
    assert (await server.evaluate(candidate, problem=problem))["status"] == status


async def test_a_dict_filled_in_another_order_and_a_float_rounded_otherwise_are_equal(server: Server) -> None:
    problem = edit(
        SCALE_ADD,
        "return x * self.scale + y + self.bias",
        "a = x * self.scale + y + self.bias\n        return {'a': a, 'b': a > 0, 'c': a.abs().sum().item()}",
    )
    same = edit(HONEST, "return out", "return {'c': out.double().abs().sum().item(), 'b': out > 0, 'a': out}")
    result = await server.evaluate(same, problem=problem)
    assert result["status"] == "passed", result["log"]
    result = await server.evaluate(edit(same, "'b': out > 0", "'b': out > 9"), problem=problem)
    assert result["status"] == "wrong" and "output 1: " in result["log"]


async def test_nan_and_infinity_must_stand_where_they_are_expected(server: Server) -> None:
    problem = edit(
        SCALE_ADD, "return x * self.scale", "x = torch.where(x > 1, torch.inf, x)\n        return x * self.scale"
    )
    assert (await server.evaluate(HONEST, problem=problem))["status"] == "wrong"
    knows = edit(HONEST, "out = torch", "x = torch.where(x > 1, torch.inf, x)\n        out = torch")
    assert (await server.evaluate(knows, problem=problem))["status"] == "passed"


NOTHING = """
def get_inputs_none():
    return [torch.randn(0, 256), torch.randn(0, 256)]
"""
FAILS = """
def get_inputs_big():
    raise ValueError("too\\nbig")
"""


async def test_a_verdict_says_the_limit_that_the_description_says(server: Server) -> None:
    answer = await server.call("describe_problem", problem=SCALE_ADD, target="cpu", baselines=["eager"])
    known, found = answer.structured_content, await server.evaluate(HONEST)
    assert known is not None and known["limit_us"] > 0
    assert found["limit_us"] == pytest.approx(known["limit_us"]) and found["limit_rate"] == known["limit_rate"]


async def test_inputs_without_elements_are_checked_beside_others_and_not_timed(server: Server) -> None:
    problem = edit(SCALE_ADD, "self.bias = nn.Parameter(torch.randn(256))", "") + NOTHING
    problem = edit(problem, " + self.bias", "")
    candidate = edit(HONEST, "+ c[i % n]", "")
    result = await server.evaluate(candidate, problem=problem)
    assert (result["status"], result["limit_us"] > 0, result["shapes"]) == ("passed", True, []), result["log"]
    assert [note for note in result["notes"] if "get_inputs_none has an element" in note]
    assert not [note for note in result["notes"] if "constant" in note]
    late = edit(candidate, "out = torch.empty_like(x)", "out = torch.empty_like(x) if len(x) else x[None]")
    result = await server.evaluate(late, problem=problem)
    assert (result["status"], "get_inputs_none" in result["log"]) == ("wrong", True), result["log"]


async def test_a_fault_in_a_variant_is_told_as_its_own_in_one_line(server: Server) -> None:
    said = await server.refusal("evaluate_kernel", candidate=HONEST, problem=SCALE_ADD + FAILS, target="cpu")
    assert said.endswith("the problem fails in get_inputs_big: ValueError: too big")
