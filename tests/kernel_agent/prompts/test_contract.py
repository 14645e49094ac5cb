"""What the contract says of the judge is what the judge does."""

from dataclasses import replace

import pytest

from kernel_agent.prompts import render
from kernel_agent.prompts.brief import facts
from kernel_agent.run.brief import Brief
from kernel_agent.run.types import Idea, Problem, Trial
from ncu_server.rules.comparison import BOUND
from ncu_server.worker.checking import tolerance
from ncu_server.worker.timing.input_sets import ROW_SCALES
from tests.support.scripted_run import DESCRIPTION

PARENT = Trial("idea", 0, 0, None, "pass")


def brief(target: str = "cuda", limit_us: float = 5.0, parent: Trial | None = None) -> Brief:
    known = replace(
        DESCRIPTION, device=replace(DESCRIPTION.device, target=target), limit_us=limit_us, moving_us=limit_us
    )
    idea = Idea("idea", 1, "", "Wide loads") if parent else None
    return Brief(
        Problem("p", "y = torch.relu(x)", target), known, 1, parent or Trial(None, 0, 0, None, "pass"), idea, None
    )


def contract(target: str) -> str:
    return " ".join(render("contract", **facts(brief(target))).split())


def test_the_numbers_are_the_judge_s() -> None:
    least, part = BOUND / tolerance.DEEP, f"{tolerance.SMALL:.0%}".replace("%", " %")
    assert (
        f"Where {part} of an output or a whole row, zeros too, is below {least:.0f} units, all that is "
        f"below {BOUND:.0f} units may err by {BOUND:.0f} times the reference's largest error there in full float32, or "
        f"{tolerance.FINE:,.0f} epsilon of its rms if that is more."
    ) in contract("cuda")
    assert tuple(1 / scale for scale in ROW_SCALES) == (1, 2, 4, 16)
    assert "each index of dimension 0 by 1, 1/2, 1/4 or 1/16" in contract("cuda")


def test_of_devices_only_what_runs_on_one_hears() -> None:
    for target in ("cuda", "triton"):
        assert "torch's `empty`, copies on the device and cooperative launches are fine" in contract(target)
        assert "makes the inputs' GPU the current one: write no device guard." in contract(target)
    assert "GPU" not in contract("cpu") and "(fold nothing of them in the constructor)." in contract("cpu")


@pytest.mark.parametrize(("limit_us", "words"), [(75.0, "torch.compile reaches 94 % of the limit"), (70.0, "")])
def test_near_the_limit_no_idea_is_an_answer(limit_us: float, words: str) -> None:
    asked = render("ideas", **facts(brief(limit_us=limit_us)), count=3, idea_limit=4000)
    assert ('`{"ideas": []}` where you see none that gains' in asked) is bool(words)
    assert words in asked
