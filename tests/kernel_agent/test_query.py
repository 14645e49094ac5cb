"""What the library is asked."""

import pytest

from kernel_agent.query import query
from kernel_agent.types import Brief, Description, Device, Problem, Trial
from rag.page import LANGUAGES


@pytest.mark.parametrize(("target", "language"), [("cpu", "cpp"), ("cuda", "cuda"), ("triton", "cuda")])
def test_each_target_asks_in_a_language_that_the_corpus_has(target: str, language: str) -> None:
    description = Description(Device(target, "a device", "sm_90", 0, None), None, None, 1.0, 1.0, None, {})
    problem = Problem("relu", "", target)
    asked = query(Brief(problem, description, 1, Trial(None, 0, 0, None, ""), None, None))
    assert asked.language == language
    assert language in LANGUAGES
