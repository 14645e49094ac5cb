"""A prompt is told by its parts, and what the prompts of a round share stands first."""

from dataclasses import replace
from itertools import takewhile

from kernel_agent.prompts import rendered
from kernel_agent.prompts.brief import facts
from kernel_agent.run.brief import Brief
from kernel_agent.run.measured import Launch
from kernel_agent.run.spending import by_part
from kernel_agent.run.types import Idea, Problem, Trial
from tests.support.scripted_run import DESCRIPTION

BRIEF = Brief(Problem("p", "class Model: pass\n", "cuda"), DESCRIPTION, 1, Trial(None, 0, 0, None, "pass"), None, None)
KERNEL = replace(BRIEF, parent=Trial("i", 0, 0, None, "# a kernel"), parent_idea=Idea("i", 1, "p", "Tile"))


def shared(one: str, other: str) -> str:
    """What both begin with."""
    return "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def test_a_prompt_says_how_long_each_part_of_it_is() -> None:
    prompt = rendered("write", **facts(KERNEL), idea="do it", attempt=0)
    assert set(prompt.parts) == {"contract", "problem", "parent", "ask"}
    assert abs(sum(prompt.parts.values()) - len(prompt.text)) < 4 and "\x1e" not in prompt.text


def test_what_the_prompts_of_a_round_share_stands_first_and_alike() -> None:
    ideas = rendered("ideas", **facts(KERNEL), count=2, idea_limit=4000).text
    one, other = (rendered("write", **facts(KERNEL), idea=idea, attempt=0).text for idea in ("one", "other"))
    assert "class Model" in shared(ideas, one), "the contract and the problem"
    assert "# a kernel" in shared(one, other), "the parent too"


def test_who_has_a_kernel_to_depart_from_needs_no_other_example() -> None:
    first = rendered("write", **facts(BRIEF), idea="do it", attempt=0).text
    assert "A complete example" in first
    assert "A complete example" not in rendered("write", **facts(KERNEL), idea="do it", attempt=0).text


def test_ideas_are_told_where_the_time_of_the_fastest_mode_goes() -> None:
    times = DESCRIPTION.baselines
    baselines = {**times, "max-autotune": replace(times["compile"], median_us=times["compile"].median_us / 2)}
    rows = (Launch("nchwToNhwc", 30.0, 2), Launch("conv" * 99, 69.0, 1), Launch("7 others", 1.0, 9))
    known = replace(DESCRIPTION, baselines=baselines, compiled=("old",), launches={"compile": rows[:1]})
    both = replace(known, launches={"compile": rows[:1], "max-autotune": rows})
    one, best = (
        rendered("ideas", **facts(replace(KERNEL, description=d)), count=2, idea_limit=9).text for d in (known, both)
    )
    assert "where the time of torch.compile goes" in one and "nchwToNhwc: 30.0 us in 2 launches, 100 %" in one
    assert "where the time of torch.compile max-autotune goes, in the order of its launches" in best
    told = best.partition("nchwToNhwc: 30.0 us in 2 launches, 30 %\n")[2].splitlines()
    assert told[0].startswith("convconv") and len(told[0]) < 145 and told[0].endswith(": 69.0 us, 69 %")
    assert told[1] == "7 others: 1.0 us in 9 launches, 1 %" and "old" not in told
    bare = rendered("ideas", **facts(replace(KERNEL, description=replace(known, launches={}))), count=2, idea_limit=9)
    assert "what torch.compile launches, in order;" in bare.text and "\nold\n" in bare.text


def test_the_tokens_of_a_run_are_shared_out_by_the_characters_of_each_part() -> None:
    calls = [
        ("a", "", {"parts": {"problem": 300, "pages": 100}, "prompt_tokens": 100}),
        ("b", "", {"parts": {"problem": 100}, "prompt_tokens": 0}),
        ("c", "", {"prompt_tokens": 50}),
    ]
    assert by_part(calls) == {
        "problem": {"characters": 400, "tokens": 75},
        "pages": {"characters": 100, "tokens": 25},
    }
