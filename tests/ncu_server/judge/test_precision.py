"""A verdict says which arithmetic an error is worthy of, and what the reference itself errs decides what passes."""

from typing import Any

import pytest

from ncu_server.selftest.cases import SelftestCase, cases
from tests.support.edits import edit
from tests.support.measuring import Server

pytestmark = pytest.mark.asyncio(loop_scope="session")
CASES = {case.name: case for case in cases()}


async def verdict(server: Server, case: SelftestCase, **change: str) -> dict[str, Any]:
    given = {"candidate": case.candidate, "problem": case.problem, "target": case.target, "timeout_s": 120}
    result = (await server.call("evaluate_kernel", **{**given, **change})).structured_content
    assert result is not None
    return result


async def shown(server: Server, problem: str, target: str) -> str | None:
    given = {"problem": problem, "target": target, "baselines": ["eager"]}
    result = (await server.call("describe_problem", **given)).structured_content
    assert result is not None
    return str(result["arithmetic"])


@pytest.mark.parametrize(
    ("name", "status", "arithmetic"),
    [
        ("cpu/honest_linear_relu", "passed", "float32"),
        ("cpu/float16_operands", "wrong", "tf32"),
        ("cpu/bfloat16_inside", "wrong", "bf16"),
        ("cpu/float8_operands", "wrong", "fp8"),
        ("cpu/honest_argmax", "passed", "exact"),
    ],
)
async def test_a_verdict_says_what_its_error_is_worthy_of(
    server: Server, name: str, status: str, arithmetic: str
) -> None:
    result = await verdict(server, CASES[name])
    assert (result["status"], result["arithmetic"], result["allowed"]) == (status, arithmetic, 64)
    assert result["precision"].startswith("The kernel ")
    assert (result["error"] <= result["allowed"]) == (status == "passed")


HALF = ("return torch.relu(self.fc(x))", "with torch.autocast(x.device.type, dtype=torch.bfloat16): y = self.fc(x)\n"
        "        return torch.relu(y.float())")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("cpu/honest_linear_relu", "passed"),
        ("cpu/float16_operands", "passed"),
        ("cpu/bfloat16_inside", "passed"),
        ("cpu/float8_operands", "wrong"),
    ],
)
async def test_what_autocast_errs_is_allowed_four_times(server: Server, name: str, status: str) -> None:
    result = await verdict(server, CASES[name], problem=edit(CASES[name].problem, *HALF))
    assert result["status"] == status, result["log"]
    assert 1000 < result["allowed"] < 2.0**20


async def test_a_description_says_what_the_reference_computes_in(server: Server) -> None:
    linear = CASES["cpu/honest_linear_relu"].problem
    assert await shown(server, linear, "cpu") == "float32"
    assert await shown(server, edit(linear, *HALF), "cpu") == "bf16"


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "status", "arithmetic"),
    [
        ("cuda/honest_convolution", "passed", "float32"),
        ("cuda/honest_tf32_convolution", "passed", "tf32"),
        ("cuda/honest_float16_convolution", "passed", "tf32"),
        ("cuda/bfloat16_convolution", "wrong", "bf16"),
        ("cuda/float8_convolution", "wrong", "fp8"),
        ("cuda/honest_matmul", "passed", "float32"),
        ("cuda/tf32_inside", "wrong", "tf32"),
        ("cuda/float16_operands", "wrong", "tf32"),
        ("cuda/bfloat16_inside", "wrong", "bf16"),
        ("cuda/float8_operands", "wrong", "fp8"),
    ],
)
async def test_beside_cudnn_s_tf32_only_as_narrow_passes(
    server: Server, name: str, status: str, arithmetic: str
) -> None:
    result = await verdict(server, CASES[name])
    assert (result["status"], result["arithmetic"]) == (status, arithmetic), result["log"]
    assert (result["allowed"] > 64) == ("convolution" in name)


@pytest.mark.gpu
async def test_a_description_says_that_cudnn_takes_tf32(server: Server) -> None:
    assert await shown(server, CASES["cuda/honest_convolution"].problem, "cuda") == "tf32"
    assert await shown(server, CASES["cuda/honest_matmul"].problem, "cuda") == "float32"


DEAD = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(256, 256)

    def forward(self, x):
        return torch.relu(self.fc(x) - 2)

def get_inputs():
    return [torch.rand(64, 256)]

def get_init_inputs():
    return []
"""


async def test_how_exact_zeros_have_to_be_is_told_by_inputs_that_make_others(server: Server) -> None:
    given = {"problem": DEAD, "target": "cpu", "baselines": ["eager"]}
    result = (await server.call("describe_problem", **given)).structured_content
    assert result is not None
    drawn, far = result["precision"]
    assert (drawn["inputs"], drawn["rms"], far["inputs"]) == ("as drawn", 0.0, "far")
    assert far["rms"] > far["unit"] > 0
