"""What a wrong kernel could hide behind, and what an honest one must be allowed."""

from typing import Any

import pytest

from ncu_server.judge import benchmark
from ncu_server.judge.candidate import EvaluateRequest
from ncu_server.judge.evaluate import evaluate
from ncu_server.judge.interleave import MAX_PAIRS
from ncu_server.judge.problems import Workshop
from ncu_server.wire.evaluation import EvaluateResult
from tests.support.edits import edit
from tests.support.measuring import MODULE, TOLD, Server

pytestmark = pytest.mark.asyncio(loop_scope="session")


def problem(init: str, forward: str, inputs: str, arguments: str = "self, x") -> str:
    return f"""
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward({arguments}):
        {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""


def candidate(init: str, loop: str, forward: str, arguments: str = "self, x") -> str:
    """A kernel `run(x, w, out)` whose body is `loop` over `n` elements in rows of `c`."""
    return f'''
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
{TOLD}static PyObject* run(PyObject*, PyObject* args) {{
  PyObject *xt, *wt, *ot;
  if (!PyArg_ParseTuple(args, "OOO", &xt, &wt, &ot)) return nullptr;
  const float *x = (const float*)told(xt, "data_ptr"), *w = (const float*)told(wt, "data_ptr");
  float* o = (float*)told(ot, "data_ptr");
  int64_t n = told(xt, "numel"), c = width(xt);
  {loop}
  Py_RETURN_NONE;
}}{MODULE}"""
kernel = load_inline("quick", SOURCE, no_implicit_headers=True, extra_cflags=["-O3"])

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward({arguments}):
        {forward}
'''


async def verdict(server: Server, given: str, written: str) -> dict[str, Any]:
    return await server.evaluate(written, problem=given)


async def in_process(workshop: Workshop, written: str, given: str) -> EvaluateResult:
    """The verdict of a judge that lives here, so that a test can settle what it leaves to chance."""

    async def quiet(_: str, *, ahead: int | None = None) -> None:
        pass

    return await evaluate(workshop, EvaluateRequest(written, given, "cpu", (), False, 120.0), quiet)


NORM = """for (int64_t r = 0; r < n / c; ++r) {
    double m = 0, v = 0;
    for (int64_t i = 0; i < c; ++i) m += x[r * c + i];
    m /= c;
    for (int64_t i = 0; i < c; ++i) v += (x[r * c + i] - m) * (x[r * c + i] - m);
    double k = 1 / std::sqrt(v / c + 1e-5);
    for (int64_t i = 0; i < c; ++i) o[r * c + i] = (x[r * c + i] - m) * k WEIGHT;
  }"""
LAYER_NORM = problem("self.norm = nn.LayerNorm(256)", "return self.norm(x)", "[torch.randn(32, 256)]")
TWICE = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * 2;"
FORWARD = "out = torch.empty_like(x); kernel.run(x, {}, out); return out"


async def test_parameters_at_their_defaults_cannot_be_ignored(server: Server) -> None:
    forward = edit(FORWARD.format("self.norm.weight.detach()"), "return out", "return out + self.norm.bias.detach()")
    honest = candidate("self.norm = nn.LayerNorm(256)", edit(NORM, "WEIGHT", "* w[i]"), forward)
    assert (await verdict(server, LAYER_NORM, honest))["status"] == "passed"
    lazy = candidate("pass", edit(NORM, "WEIGHT", ""), FORWARD.format("x"))
    assert (await verdict(server, LAYER_NORM, lazy))["status"] == "wrong"


async def test_weights_packed_once_in_the_constructor_are_allowed(server: Server) -> None:
    init = "norm = nn.LayerNorm(256); self.w = norm.weight.detach().clone(); self.b = norm.bias.detach().clone()"
    forward = edit(FORWARD.format("self.w"), "return out", "return out + self.b")
    packed = candidate(init, edit(NORM, "WEIGHT", "* w[i]"), forward)
    assert (await verdict(server, LAYER_NORM, packed))["status"] == "passed"


@pytest.mark.long
async def test_a_mean_that_is_nearly_constant_is_checked_on_sharper_inputs(server: Server) -> None:
    given = problem("pass", "return (x > 0.5).float().mean(1)", "[torch.rand(8, 65536)]")
    guess = candidate(
        "pass",
        "for (int64_t r = 0; r < n / c; ++r) o[r] = 0.5f;",
        "out = torch.empty(x.shape[0]); kernel.run(x, x, out); return out",
    )
    assert (await verdict(server, given, guess))["status"] == "wrong"
    loop = "for (int64_t i = 0; i < c; ++i) s += x[r * c + i] > .5f;"
    part = "for (int64_t r = 0; r < n / c; ++r) { double s = 0; " + loop + " o[r] = s / c; }"
    full = candidate("pass", part, "out = torch.empty(x.shape[0]); kernel.run(x, x, out); return out")
    assert (await verdict(server, given, full))["status"] == "passed"


@pytest.mark.long
async def test_one_output_buffer_for_all_calls_is_wrong(server: Server) -> None:
    given = problem("pass", "return x * 2", "[torch.randn(32, 256)]")
    loop = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * 2;"
    shared = candidate("self.out = torch.empty(32, 256)", loop, "kernel.run(x, x, self.out); return self.out")
    result = await verdict(server, given, shared)
    assert result["status"] == "wrong" and "earlier call" in result["log"]
    assert (await verdict(server, given, candidate("pass", loop, FORWARD.format("x"))))["status"] == "passed"


@pytest.mark.long
async def test_outputs_that_take_turns_are_wrong(server: Server) -> None:
    given = problem("pass", "return x * 2", "[torch.randn(32, 256)]")
    loop = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * 2;"
    forward = "self.ring.reverse(); kernel.run(x, x, self.ring[0]); return self.ring[0]"
    turns = candidate("self.ring = [torch.empty(32, 256) for _ in range(2)]", loop, forward)
    result = await verdict(server, given, turns)
    assert result["status"] == "wrong" and "earlier call" in result["log"]


async def test_a_reference_that_changes_its_input_asks_the_same_of_the_candidate(server: Server) -> None:
    given = problem("pass", "return x.mul_(2) + 1", "[torch.randn(32, 256)]")
    loop = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * 2;"
    inplace = candidate(
        "pass", loop, "kernel.run(x, x, x); out = torch.empty_like(x); kernel.run(x, x, out); return out * .5 + 1"
    )
    assert (await verdict(server, given, inplace))["status"] == "passed"
    kept = candidate("pass", loop, "out = torch.empty_like(x); kernel.run(x, x, out); return out + 1")
    result = await verdict(server, given, kept)
    assert result["status"] == "wrong" and "input 0 after the call" in result["log"]


@pytest.mark.long
async def test_buffers_must_end_as_the_reference_s_do(server: Server) -> None:
    count = 'self.register_buffer("calls", torch.zeros((), dtype=torch.int64))'
    given = problem(count, "self.calls += 1; return x * 2", "[torch.randn(32, 256)]")
    loop = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * 2;"
    counting = candidate(count, loop, "self.calls += 1; " + FORWARD.format("x"))
    assert (await verdict(server, given, counting))["status"] == "passed"
    result = await verdict(server, given, candidate(count, loop, FORWARD.format("x")))
    assert result["status"] == "wrong" and "buffer calls" in result["log"]


async def test_a_buffer_that_the_reference_changes_and_the_candidate_lacks_is_named(server: Server) -> None:
    given = problem(
        'self.register_buffer("calls", torch.zeros(()))', "self.calls += 1; return x * 2", "[torch.randn(32, 256)]"
    )
    result = await verdict(server, given, candidate("pass", TWICE, FORWARD.format("x")))
    assert (result["status"], result["log"]) == ("wrong", "the model has no buffer calls, which the reference changes")


@pytest.mark.parametrize(
    ("init", "forward"),
    [
        (
            'self.register_buffer("packed", None)',
            'if self.packed is None: self.register_buffer("packed", self.fc.weight.detach().clone())',
        ),
        (
            "self.packed = None",
            'if self.packed is None: del self.packed; self.register_buffer("packed", self.fc.weight * 1)',
        ),
        (
            'self.register_buffer("packed", torch.zeros(1, 256)); self.ready = False',
            "self.packed.copy_(self.packed if self.ready else self.fc.weight); self.ready = True",
        ),
    ],
)
async def test_a_buffer_of_the_candidate_s_own_is_its_scratch(server: Server, init: str, forward: str) -> None:
    scale = "self.fc = nn.Linear(256, 1, bias=False)"
    given = problem(scale, "return x * self.fc.weight", "[torch.randn(32, 256)]")
    loop = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * w[i % c];"
    written = candidate(
        f"{scale}\n        {init}", loop, f"{forward}\n        " + FORWARD.format("self.packed.detach()")
    )
    result = await verdict(server, given, written)
    assert result["status"] == "passed", result["log"]


async def test_dropout_is_judged_in_eval_mode(server: Server) -> None:
    given = problem("self.drop = nn.Dropout(0.5)", "return self.drop(x) * 2", "[torch.randn(32, 256)]")
    loop = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * 2;"
    result = await verdict(server, given, candidate("pass", loop, FORWARD.format("x")))
    assert result["status"] == "passed"
    assert "both sides run in eval mode: the reference has dropout" in result["notes"]


@pytest.mark.parametrize("draw", ["torch.rand(()).item()", "random.random()", "np.random.uniform()"])
async def test_a_layer_that_training_skips_now_and_then_is_judged_in_eval_mode(server: Server, draw: str) -> None:
    skip = f"import random, numpy as np; y = x if self.training and {draw} < 0.2 else x * 2"
    given = problem("pass", f"{skip}; return y", "[torch.randn(32, 256)]")
    loop = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * 2;"
    result = await verdict(server, given, candidate("pass", loop, FORWARD.format("x")))
    assert result["status"] == "passed", result["log"]
    assert "both sides run in eval mode: in training mode the reference draws random numbers" in result["notes"]


async def test_a_lower_precision_is_told_apart_and_an_honest_bfloat16_kernel_passes(server: Server) -> None:
    given = problem("pass", "return x * 1.1", "[torch.randn(32, 256)]")
    loop = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] * 1.1f;"
    cut = candidate("pass", loop, "x = x.bfloat16().float(); " + FORWARD.format("x"))
    assert (await verdict(server, given, cut))["status"] == "wrong"
    half = problem("pass", "return x * 1.1", "[torch.randn(32, 256).bfloat16()]")
    honest = candidate(
        "pass", loop, "x = x.float(); out = torch.empty_like(x); kernel.run(x, x, out); return out.bfloat16()"
    )
    assert (await verdict(server, half, honest))["status"] == "passed"


@pytest.mark.long
@pytest.mark.parametrize(
    ("formula", "kernel", "constant"),
    [
        ("torch.relu(x - 12)", "x[i] > 12 ? x[i] - 12 : 0", "0"),
        ("(x > 50).float()", "x[i] > 50", "0"),
        ("(x - x) * 1e-3", "(x[i] - x[i]) * 1e-3f", "0"),
        ("torch.sigmoid(x + 40)", "1 / (1 + std::exp(-x[i] - 40))", "1"),
    ],
)
async def test_a_degenerate_problem_is_named_and_a_constant_does_not_pass(
    server: Server, formula: str, kernel: str, constant: str
) -> None:
    given = problem("pass", f"return {formula}", "[torch.randn(32, 256)]")
    honest = candidate("pass", f"for (int64_t i = 0; i < n; ++i) o[i] = {kernel};", FORWARD.format("x"))
    result = await verdict(server, given, honest)
    assert result["status"] == "passed", result["log"]
    assert any("constant output" in note for note in result["notes"])
    lazy = candidate("pass", f"for (int64_t i = 0; i < n; ++i) o[i] = {constant};", FORWARD.format("x"))
    assert (await verdict(server, given, lazy))["status"] == "wrong"


@pytest.mark.long
async def test_a_mean_of_a_softmax_is_no_constant_where_its_input_is_no_number(server: Server) -> None:
    given = problem("pass", "return torch.softmax(x, 1).mean(1)", "[torch.randn(32, 256)]")
    most = "float m = x[r * c]; for (int64_t i = 0; i < c; ++i) m = std::fmax(m, x[r * c + i]); double s = 0, t = 0;"
    sums = "for (int64_t i = 0; i < c; ++i) s += std::exp(x[r * c + i] - m);"
    means = "for (int64_t i = 0; i < c; ++i) t += std::exp(x[r * c + i] - m) / s; o[r] = t / c;"
    forward = "out = torch.empty(x.shape[0]); kernel.run(x, x, out); return out"
    honest = candidate("pass", f"for (int64_t r = 0; r < n / c; ++r) {{ {most} {sums} {means} }}", forward)
    assert (await verdict(server, given, honest))["status"] == "passed"
    lazy = candidate("pass", "for (int64_t r = 0; r < n / c; ++r) o[r] = 1.f / c;", forward)
    assert (await verdict(server, given, lazy))["status"] == "wrong"


async def test_a_flag_that_one_draw_in_five_sets_is_not_overlooked(server: Server) -> None:
    inputs, arguments = "[torch.randn(64, 256), torch.tensor(len(DRAWS) % 5)]", "self, x, flag"
    given = problem("pass", "return torch.where(flag == 4, x * 3, x * 2)", inputs, arguments)
    given = "DRAWS = []\n" + edit(given, "    return [torch.randn", "    DRAWS.append(None)\n    return [torch.randn")
    lazy = candidate("pass", TWICE, FORWARD.format("x"), arguments)
    found = await verdict(server, given, lazy)
    assert (found["status"], "drawn again" in found["log"]) == ("wrong", True)
    honest = candidate("pass", edit(TWICE, "2", "w[0]"), FORWARD.format("2.0 + (flag == 4)"), arguments)
    assert (await verdict(server, given, honest))["status"] == "passed"


async def test_an_input_that_may_not_change_stays_as_drawn_and_that_is_said(server: Server) -> None:
    # Of which the lower triangle is read, so that it need not be symmetric.
    drawn = "[(lambda a: a @ a.mT / 48 + 0.05 * torch.eye(48) + a.triu(1))(torch.randn(64, 48, 48))]"
    given = problem("pass", "return torch.linalg.cholesky(x)[:, 0, 0]", drawn)
    corner = "for (int64_t r = 0; r < n / (c * c); ++r) o[r] = std::sqrt(x[r * c * c]);"
    forward = "out = torch.empty(x.shape[0]); kernel.run(x, x, out); return out"
    found = await verdict(server, given, candidate("pass", corner, forward))
    assert found["status"] == "passed", found["log"]
    assert any("input 0 as drawn" in note for note in found["notes"])


WHOLE = "a = torch.randint(-8, 8, (512, 32)).float(); a[0, 0] = 9"  # 9 is the largest number, and changed by `clamp`
SUMS = "for (int64_t r = 0; r < n / c; ++r) { o[r] = 0; for (int64_t i = 0; i < c; ++i) o[r] += x[r * c + i]; }"


@pytest.mark.parametrize(
    ("init", "change"),
    [
        ("pass", ""),
        ("self.register_buffer('calls', torch.zeros(()))", "self.calls.add_(1); "),
        ("pass", "x.clamp_(max=8); "),
    ],
    ids=["nothing changes", "a buffer changes", "an input changes, or not"],
)
async def test_a_timed_call_is_held_to_the_error_that_its_own_values_allow(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, init: str, change: str
) -> None:
    """Sums that are exact for whole numbers, and for no others; at whichever block timing ends."""
    given = problem(init, f"{change}return x.sum(1)", "pairs()")
    given += f"\ndef pairs():\n    {WHOLE}\n    return [torch.cat([a, -a], 1)]\n"
    forward = f"{change}out = torch.empty(x.shape[0]); kernel.run(x, x, out); return out"
    monkeypatch.setattr(benchmark, "audits", lambda: frozenset(range(MAX_PAIRS)))
    found = await in_process(workshop, candidate(init, SUMS, forward), given)
    assert found.status == "passed", found.log


async def test_an_output_that_is_the_reference_s_own_buffer_is_that_of_the_call(server: Server) -> None:
    init, drawn = "self.register_buffer('total', torch.zeros(64, 64))", "[torch.randn(64, 64)]"
    given = problem(init, "return self.total.add_(x)", drawn)
    add = "for (int64_t i = 0; i < n; ++i) o[i] = x[i] + w[i];"
    forward = "out = torch.empty_like(x); kernel.run(x, self.total, out); self.total.copy_(out); return out"
    found = await verdict(server, given, candidate(init, add, forward))
    assert found["status"] == "passed", found["log"]


@pytest.mark.parametrize("where", ["an input", "a buffer"])
async def test_a_place_that_moves_on_is_put_back_before_each_call(server: Server, where: str) -> None:
    """As in a cache of keys, of which a few steps more than one would leave the room."""
    init = "self.register_buffer('at', torch.tensor(14))" if where == "a buffer" else "pass"
    drawn = "[torch.zeros(64, 16), torch.randn(64), torch.tensor(14)]"
    at = "self.at" if where == "a buffer" else "at"
    write = f"rows[:, {at}] = new; {at} += 1; "
    given = problem(init, write + "return rows.sum(1)", drawn, "self, rows, new, at")
    forward = write + "out = torch.empty(64); kernel.run(rows, rows, out); return out"
    found = await verdict(server, given, candidate(init, SUMS, forward, "self, rows, new, at"))
    assert found["status"] == "passed", found["log"]
    assert found["provenance"]["label"] != "unknown", found["notes"]


async def test_draws_of_other_shapes_are_checked_and_not_timed(server: Server) -> None:
    given = problem("pass", "return x.float() * 2", "[torch.randint(9, (4000 + int(torch.randint(500, ())),))]")
    twice = "for (int64_t i = 0; i < n; ++i) o[i] = 2 * x[i];"
    forward = "x = x.float(); out = torch.empty_like(x); kernel.run(x, x, out); return out"
    found = await verdict(server, given, candidate("pass", twice, forward))
    assert found["status"] == "passed", found["log"]


@pytest.mark.parametrize(
    ("forward", "drawn", "kernel"),
    [
        ("return (high - low).sqrt()", "low, low + torch.rand(64, 64)", "std::sqrt(w[i] - x[i])"),
        ("return torch.searchsorted(high, low).float()", "low, torch.randn(64, 64).sort(1).values", "0"),
        ("assert bool((1 - high.sum(1)).abs().max() < 1e-5); return low * high", "low, low.softmax(1)", "x[i] * w[i]"),
        ("return low + high", "low[:, ::2] + 5, low[:, ::2]", "x[i] + w[i]"),
    ],
    ids=["high over low", "sorted rows", "asserted", "gaps"],
)  # fmt: skip
async def test_what_a_problem_needs_of_its_inputs_is_left_to_them(
    server: Server, forward: str, drawn: str, kernel: str
) -> None:
    given = problem("pass", forward, f"(lambda low: [{drawn}])(torch.randn(64, 64))", "self, low, high")
    count = "for (int64_t r = 0; r < n / c; ++r) for (int64_t k = 0; k < c; ++k) { int64_t m = 0;"
    count += " for (int64_t j = 0; j < c; ++j) m += w[r * c + j] < x[r * c + k]; o[r * c + k] = m; }"
    body = count if "searchsorted" in forward else f"for (int64_t i = 0; i < n; ++i) o[i] = {kernel};"
    call = "out = torch.empty(low.shape); kernel.run(low.contiguous(), high.contiguous(), out); return out"
    found = await verdict(server, given, candidate("pass", body, call, "self, low, high"))
    assert found["status"] == "passed", found["log"]
