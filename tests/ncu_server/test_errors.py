"""A refusal carries its reason and its fix as fields; the sentence is made of them."""

import pytest

from ncu_server.errors import Code, Refusal
from ncu_server.wire.profiling import Refused
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [(("there is no ncu", "install it"), "there is no ncu; install it"), (("it broke",), "it broke")],
)
def test_a_sentence_is_made_of_reason_and_fix(fields: tuple[str, ...], sentence: str) -> None:
    refusal = Refusal(Code.NO_PROFILER, *fields)
    assert refusal.sentence == sentence
    assert str(refusal) == f"NO_PROFILER: {sentence}"


def test_a_reason_that_holds_a_semicolon_stays_whole() -> None:
    refusal = Refusal(Code.NCU_FAILED, "ncu said: a; b", "profile again")
    kept = Refused(rung="counters", code=refusal.code, reason=refusal.reason, fix=refusal.fix)
    assert (kept.reason, kept.fix) == ("ncu said: a; b", "profile again")


def test_nobody_reads_a_fix_out_of_a_sentence() -> None:
    sources = [path.read_text() for path in (ROOT / "ncu_server").rglob("*.py")]
    assert not [text for text in sources if 'partition("; ")' in text or 'split("; ")' in text]
