"""A verdict compares something, names what the judge put in, and says what makes a kernel wrong."""

from dataclasses import dataclass

import pytest

from ncu_server.errors import Refusal
from ncu_server.judge.candidate import EvaluateRequest
from ncu_server.judge.evaluate import evaluate
from ncu_server.judge.problems import Workshop
from tests.support.edits import edit
from tests.support.measuring import MODULE, TOLD

pytestmark = pytest.mark.asyncio(loop_scope="session")


@dataclass(frozen=True)
class Said:
    status: str
    log: str
    notes: str


async def said(warm: Workshop, problem: str, candidate: str) -> Said:
    async def quiet(_: str, *, ahead: int | None = None) -> None:
        pass

    try:
        result = await evaluate(warm, EvaluateRequest(candidate, problem, "cpu", ("eager",), False, 120.0), quiet)
    except Refusal as refusal:
        return Said("refused", str(refusal), "")
    return Said(result.status, result.log, " | ".join(result.notes))


def problem(forward: str, inputs: str = "[torch.randn(32, 256)]", arguments: str = "x", init: str = "pass") -> str:
    return f"""
import torch, torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}

def get_inputs():
    return {inputs}
"""


def candidate(body: str, forward: str, arguments: str = "x", init: str = "pass", out: str = "float") -> str:
    """A kernel `run(x, w, o, p, q)` over `n` elements of x in rows of `c`."""
    return f'''
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
{TOLD}static PyObject* run(PyObject*, PyObject* args) {{
  PyObject *xt, *wt, *ot; double p, q;
  if (!PyArg_ParseTuple(args, "OOOdd", &xt, &wt, &ot, &p, &q)) return nullptr;
  const float *x = (const float*)told(xt, "data_ptr"), *w = (const float*)told(wt, "data_ptr");
  {out}* o = ({out}*)told(ot, "data_ptr");
  int64_t n = told(xt, "numel"), c = width(xt);
  {body}
  Py_RETURN_NONE;
}}{MODULE}"""
kernel = load_inline("quick", SOURCE, no_implicit_headers=True, extra_cflags=["-O3"])

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        {forward}
'''


def each(expression: str) -> str:
    return f"for (int64_t i = 0; i < n; ++i) o[i] = {expression};"


FORWARD = "out = torch.empty_like(x); kernel.run(x, x, out, 0.0, 0.0); return out"
WHOLE = "out = torch.empty(x.shape, dtype=torch.{}); kernel.run(x, x, out, 0.0, 0.0); return out"
FIRST = "out = torch.zeros(x.shape[0], dtype=torch.int64); kernel.run(x, x, out, 0.0, 0.0); return out"
CONSTANT = {
    "a relu below zero": ("torch.relu(-x.abs())", each("std::fmax(-std::fabs(x[i]), 0.0f)"), FORWARD, "float"),
    "a sign above zero": ("torch.sign(x.abs() + 1)", each("std::fabs(x[i]) + 1 > 0 ? 1 : -1"), FORWARD, "float"),
    "a flag": ("x.abs() >= 0", each("!(std::fabs(x[i]) < 0)"), WHOLE.format("bool"), "bool"),
    "an integer": ("x[:, :1].argmax(1)", "for (int64_t r = 0; r < n / c; ++r) o[r] = 0;", FIRST, "int64_t"),
    "minus zero": ("-x.abs().clamp(max=0.0)", each("std::fmin(std::fabs(x[i]), 0.0f)"), FORWARD, "float"),
    "infinity": ("torch.relu(x - 12).log()", each("std::log(std::fmax(x[i] - 12, 0.0f))"), FORWARD, "float"),
    "below the normal numbers": ("x * 1e-42", each("x[i] * 1e-42f"), FORWARD, "float"),
    "a choice": ("torch.where(x * x < 0, x, 3.0)", each("x[i] * x[i] >= 0 ? 3 : 3"), FORWARD, "float"),
}
LONG = pytest.mark.long


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "a relu below zero" else [LONG]) for name in CONSTANT]
)
async def test_a_right_kernel_passes_whatever_nan_does_where_outputs_are_constant(warm: Workshop, name: str) -> None:
    formula, body, forward, out = CONSTANT[name]
    found = await said(warm, problem(f"return {formula}"), candidate(body, forward, out=out))
    assert found.status == "passed", found.log
    assert "constant output" in found.notes


@LONG
async def test_a_kernel_that_reads_nothing_is_wrong_where_nan_shows_in_all_results(warm: Workshop) -> None:
    given = problem("return torch.softmax(x, 1).mean(1, keepdim=True) + (x - x)")
    found = await said(warm, given, candidate(each("1.f / c"), FORWARD))
    assert (found.status, "the inputs are not read" in found.log) == ("wrong", True), found.log


EMPTY = {
    "no output": ("return x[:, :0]", "[torch.randn(32, 256)]", "there is nothing to compare"),
    "no input": ("return x.sum(0)", "[torch.randn(0, 256)]", "no input of get_inputs has an element"),
    "no inputs": ("return torch.ones(4)", "[]", "gives no input"),
    "only a word": ("return torch.ones(4)", "['relu']", "none of its plain values can be varied"),
    "several, all empty": ("return x[0].sum() + x[1].sum()", "[[torch.empty(0), torch.empty(3, 0)]]", "no input of"),
    "a dict of outputs, all empty": ("return {'a': x[:0], 'b': x[:, :0]}", "[torch.randn(4, 4)]", "nothing to compare"),
}


@pytest.mark.parametrize("name", EMPTY)
async def test_a_check_over_no_element_is_refused_in_one_sentence(warm: Workshop, name: str) -> None:
    forward, inputs, sentence = EMPTY[name]
    given = problem(forward, inputs, "" if inputs == "[]" else "x")
    found = await said(warm, given, candidate(each("0"), FORWARD))
    assert (found.status, sentence in found.log) == ("refused", True), found.log


OWN = "self.weight = nn.Parameter(torch.randn(64, 256)); self.bias = nn.Parameter(torch.zeros(64))"
PRODUCT = """for (int64_t r = 0; r < n / c; ++r) for (int64_t j = 0; j < 64; ++j) {
    float s = 0; for (int64_t k = 0; k < c; ++k) s += x[r * c + k] * w[j * c + k]; o[r * 64 + j] = s; }"""
MULTIPLY = "out = torch.empty(x.shape[0], 64); kernel.run(x, {}.detach(), out, 0.0, 0.0); return out{}"
LINEAR = problem("return self.fc(x)", init="self.fc = nn.Linear(256, 64)")
DIFFERENT = {
    "its own draw": (OWN, MULTIPLY.format("self.weight", " + self.bias"), "`weight`, in place of `fc.weight`"),
    "a draw before": (
        "torch.randn(1); self.fc = nn.Linear(256, 64)",
        MULTIPLY.format("self.fc.weight", " + self.fc.bias"),
        "`fc.weight` has other values",
    ),
    "another method": (
        "self.fc = nn.Linear(256, 64); nn.init.xavier_normal_(self.fc.weight)",
        MULTIPLY.format("self.fc.weight", " + self.fc.bias"),
        "`fc.weight` has other values",
    ),
    "the other way round": (
        "self.w = nn.Parameter(torch.randn(256, 64)); self.b = nn.Parameter(torch.rand(64))",
        MULTIPLY.format("self.w.t().contiguous()", " + self.b"),
        "`w`, in place of `fc.weight`",
    ),
    "without a bias": (
        "self.fc = nn.Linear(256, 64, bias=False)",
        MULTIPLY.format("self.fc.weight", ""),
        "nothing stands for `fc.bias`",
    ),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "its own draw" else [LONG]) for n in DIFFERENT])
async def test_the_parameter_that_makes_a_kernel_wrong_is_named_before_the_units(warm: Workshop, name: str) -> None:
    init, forward, sentence = DIFFERENT[name]
    found = await said(warm, LINEAR, candidate(PRODUCT, forward, init=init))
    assert found.status == "wrong"
    assert sentence in found.log and "the reference gives what the kernel gives" in found.log, found.log
    assert found.log.index(sentence) < found.log.index("units"), found.log


@LONG
async def test_parameters_that_are_only_packed_are_not_blamed_for_a_wrong_kernel(warm: Workshop) -> None:
    init = "fc = nn.Linear(256, 64); self.w = fc.weight.detach().t().contiguous(); self.b = fc.bias.detach().clone()"
    forward = MULTIPLY.format("self.w.t().contiguous()", " + self.b")
    found = await said(warm, LINEAR, candidate(edit(PRODUCT, "s += ", "s += 1.01f * "), forward, init=init))
    assert (found.status, "parameters" in found.log) == ("wrong", False), found.log


GIVEN = "x, factor, times, negate, mode"
PLAIN = problem(
    'y = x * factor + times\n        return torch.tanh(-y if negate else y) if mode == "tanh" else y',
    '[torch.randn(32, 256), 0.5, 3, True, "tanh"]',
    GIVEN,
)
TANH = each("std::tanh(x[i] * (float)p + (float)q)")
CALL = "out = torch.empty_like(x); {}; kernel.run(x, x, out, {}, {}); return out"
SIGN = "s = -1.0 if negate else 1.0"
BURNT = {
    "a float": (CALL.format(SIGN, "s * 0.5", "s * times"), "input 1, which the judge changed from 0.5"),
    "an int": (CALL.format(SIGN, "s * factor", "s * 3.0"), "input 2, which the judge changed from 3 to 4"),
    "a flag": (CALL.format("pass", "-factor", "-float(times)"), "input 3, which the judge changed from True to False"),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "an int" else [LONG]) for n in BURNT])
async def test_a_plain_value_that_is_burnt_into_a_kernel_shows(warm: Workshop, name: str) -> None:
    forward, sentence = BURNT[name]
    found = await said(warm, PLAIN, candidate(TANH, forward, GIVEN))
    assert (found.status, sentence in found.log) == ("wrong", True), found.log


async def test_a_kernel_that_reads_plain_values_passes_and_fixed_ones_are_named(
    warm: Workshop,
) -> None:
    found = await said(warm, PLAIN, candidate(TANH, CALL.format(SIGN, "s * factor", "s * times"), GIVEN))
    assert found.status == "passed", found.log
    assert "input 4 ('tanh': no number or flag)" in found.notes and "input 1" not in found.notes


@LONG
async def test_a_kernel_that_refuses_other_values_passes_and_the_verdict_says_so(warm: Workshop) -> None:
    guard = "assert (factor, times, negate) == (0.5, 3, True), 'made for one value'"
    found = await said(warm, PLAIN, candidate(TANH, CALL.format(guard, "-0.5", "-3.0"), GIVEN))
    assert found.status == "passed", found.log
    assert found.notes.count("the kernel refuses input") == 3 and "made for one value" in found.notes


ROWS = """for (int64_t r = 0; r < n / c; ++r) { double s = 0; for (int64_t i = 0; i < c; ++i) s += x[r * c + i];
    for (int64_t i = 0; i < c; ++i) o[r * c + i] = x[r * c + i] - s / c * p; }"""
KEYED = "{'x': torch.randn(256, 256), 'dim': 1, 'how': {'share': 0.5}}"


@LONG
@pytest.mark.parametrize(("share", "status"), [("how['share']", "passed"), ("0.5", "wrong")])
async def test_a_dimension_stays_as_drawn_and_what_lies_in_dicts_or_keywords_not(
    warm: Workshop, share: str, status: str
) -> None:
    given = problem("return x - x.mean(dim, keepdim=True) * how['share']", KEYED, "x, dim, how")
    forward = f"out = torch.empty_like(x); kernel.run(x, x, out, {share}, 0.0); return out"
    found = await said(warm, given, candidate(ROWS, forward, "x, dim, how"))
    assert found.status == status, found.log
    words = "input dim (1: it chooses a dimension or a size)" if status == "passed" else "input how['share'], which"
    assert words in found.notes + found.log


async def test_memory_that_is_never_written_is_said_to_be_the_judge_s(warm: Workshop) -> None:
    found = await said(
        warm, problem("return x * 2"), candidate("for (int64_t i = 0; i < n / 2; ++i) o[i] = x[i] * 2;", FORWARD)
    )
    assert (found.status, "100% of them are what the judge fills fresh memory with" in found.log) == ("wrong", True)


async def test_a_reference_that_does_not_write_its_output_is_no_kernel_s_fault(warm: Workshop) -> None:
    given = problem("out = torch.empty_like(x); out[:4] = x[:4]; return out")
    found = await said(warm, given, candidate(each("x[i]"), FORWARD))
    assert (found.status, "memory which is never written" in found.log) == ("refused", True), found.log
