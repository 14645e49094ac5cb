from pathlib import Path

import pytest

from kernel_agent import KernelAgent
from kernel_agent.errors import UsageError
from kernel_agent.prompts import TARGETS
from kernel_agent.prompts.advice import chosen, rules

OWN = '[[rule]]\noperators = "matmul|GEMM|^mm$"\ntargets = ["cuda"]\nadvice = "Ours are 128 wide."\n'


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(OWN)
    return path


def test_a_rule_speaks_for_its_operators_on_its_targets_the_user_s_first(own: Path) -> None:
    known = rules(own)
    told = chosen(known, ["relu", "mm"], "cuda")
    assert told[0] == "Ours are 128 wide." and len(told) >= 2
    assert "Ours are 128 wide." not in chosen(known, ["mm"], "cpu")
    assert chosen(known, ["my_gemm"], "cuda") == ("Ours are 128 wide.",)
    assert chosen(known, ["relu"], "cuda") == ()
    assert len(chosen(known, ["mm", "bmm", "addmm"], "cuda")) == len(set(told)), "each rule speaks once"


def test_our_own_rules_name_targets_that_there_are() -> None:
    assert {target for rule in rules() for target in rule.targets} <= set(TARGETS)
    assert all(len(rule.advice) < 1000 for rule in rules()), "a prompt cuts what is longer"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[rule]]\noperators = '('\nadvice = 'x'\n", "rule|0.operators|no regular expression"),
        ("[[rule]]\nadvice = 'x'\n", "operators"),
        ("[[rules]]\nadvice = 'x'\n", "not [[rule]] tables"),
        ("[[rule]\n", "no TOML"),
        ("[[rule]]\noperators = 'mm'\nadvice = 'x'\ntarget = 'cuda'\n", "target"),
        ("rule = 3\n", "not [[rule]] tables"),
    ],
)
def test_rules_that_are_none_are_refused_before_anything_runs(own: Path, text: str, words: str) -> None:
    own.write_text(text)
    with pytest.raises(UsageError) as caught:
        KernelAgent(prompt_rules=own)
    assert str(own) in str(caught.value) and "\n" not in str(caught.value)
    assert any(word in str(caught.value) for word in words.split("|"))


def test_rules_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        KernelAgent(prompt_rules=tmp_path / "none.toml")
