"""Reading PyTorch source: what is taken, what is rewritten, what is refused and in which words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kernel_agent.errors import ProblemError
from kernel_agent.problem.from_source import load_problem
from tests.support.edits import edit
from tests.support.paths import ROOT

EXAMPLE = (ROOT / "examples" / "rms_norm_residual.py").read_text()

SINGLE = """\
from __future__ import annotations
import torch.nn as nn

class Scaled(nn.Module):
    '''Scaled is its name in text too.'''
    def __init__(self, size: int, scale: float = 2.0):
        super(Scaled, self).__init__()
        self.Scaled = scale
    def forward(self, x, y):
        return (x + y) * self.Scaled

def build() -> Scaled:
    return Scaled(3)
"""


def test_kernelbench_form_is_taken_as_it_is() -> None:
    problem = load_problem(EXAMPLE, "rms", "cpu")
    assert (problem.source, problem.name, problem.target) == (EXAMPLE, "rms", "cpu")


def test_a_single_module_keeps_its_name_and_gets_that_of_model_too() -> None:
    source = load_problem(SINGLE, "scaled", "cpu", [(4, 3), [4, 3]], [3]).source
    assert source.startswith(SINGLE) and source.endswith("\nModel = Scaled\n")
    assert "return [torch.randn((4, 3)), torch.randn((4, 3))]" in source and "return [3]" in source
    compile(source, "scaled", "exec")


@pytest.mark.parametrize(
    ("first", "base"),
    [
        ("", "nn.Module"),
        ("", "torch.nn.Module"),
        ("", "Module"),
        ("", "nn.Linear"),
        ("", "torch.jit.ScriptModule"),
        ("import torch.nn as N", "N.Module"),
        ("import torch as t", "t.nn.Module"),
        ("from torch import nn as net", "net.Linear"),
        ("from torch.nn import Module as Base", "Base"),
        ("from torch.nn.modules.module import Module as M", "M"),
        ("import torch\nBase = torch.nn.Module", "Base"),
        ("import torch as t\nN = t.nn\nBase = N.Module", "Base"),
        ("\ufefffrom torch import nn", "nn.Module"),
    ],
)
def test_a_module_is_known_by_its_base_under_any_name(first: str, base: str) -> None:
    code = f"{first}\nclass ModelNew({base}):\n    def forward(self, x): return x\n"
    assert load_problem(code, "x", "cpu", [(2,)]).source.endswith("\nModel = ModelNew\n")


def test_a_module_that_derives_from_model_leaves_model_alone() -> None:
    code = EXAMPLE + "\n\nclass Wider(Model):\n    pass\n"
    assert load_problem(code, "x", "cpu").source == code


def test_inputs_alone_may_be_missing() -> None:
    code = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): return x\n"
    source = load_problem(code, "x", "cpu", input_shapes=[()]).source
    assert "torch.randn(())" in source and "def get_init_inputs():\n    return []" in source


@pytest.mark.parametrize(
    ("code", "given", "words"),
    [
        ("def f(:\n", {}, "does not parse"),
        ("x = 1\0", {}, "does not parse"),
        ("", {}, "holds no `Model`"),
        ("class Model:\n    pass\n", {}, "holds no `Model`"),
        ("class A(nn.Module): ...\nclass B(nn.Module): ...\n", {}, "`A` (line 1), `B` (line 2)"),
        ("class Model(nn.Module): ...\n", {}, "input_shapes"),
        (SINGLE, {"input_shapes": [(1,)], "init_inputs": [3]}, "takes x, y, but input_shapes gives 1"),
        (SINGLE, {"input_shapes": [(1,), (1,)]}, "takes size (and may be given scale), but init_inputs gives 0"),
        (SINGLE, {"input_shapes": [4, 3], "init_inputs": [3]}, "[(16, 1024), (1024,)]"),
        (SINGLE, {"input_shapes": [(1.5,), (1,)], "init_inputs": [3]}, "list of shapes"),
        (SINGLE, {"input_shapes": [(1,), (1,)], "init_inputs": [object()]}, "init_inputs is a list"),
        ("from a import Model\nclass B(nn.Module): ...\n", {"input_shapes": []}, "rename that"),
        (EXAMPLE, {"input_shapes": [(1,)]}, "leave input_shapes out"),
        (EXAMPLE, {"init_inputs": [1]}, "leave init_inputs out"),
        ("from flax import nn\nclass B(nn.Module): ...\n", {"input_shapes": []}, "holds no `Model`"),
        ("x = " + "-" * 20_000 + "1\n", {}, "nested too deeply"),
        ("# \ud800\n", {}, "holds half a character"),
        ("x = " + "a." * 5_000 + "a\n", {}, "nested too deeply"),
        (None, {}, "`code` is text, not None"),
        (b"x = 1", {}, "`code` is text, not b'x = 1'"),
        (SINGLE, {"input_shapes": 5, "init_inputs": [3]}, "not 5"),
        (SINGLE, {"input_shapes": "4x4", "init_inputs": [3]}, "list of shapes"),
        (SINGLE, {"input_shapes": [(1,), (1,)], "init_inputs": 5}, "not 5"),
    ],
)
def test_a_fault_is_one_sentence(code: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError) as caught:
        load_problem(code, "the file", "cpu", **given)
    sentence = str(caught.value)
    assert words in sentence and "\n" not in sentence and sentence.endswith(".")


def test_where_it_does_not_parse_is_told() -> None:
    with pytest.raises(ProblemError, match="in line 2"):
        load_problem("x = 1\ny = = 2\n", "file", "cpu")


def test_several_sets_of_shapes_become_functions_of_their_own() -> None:
    sets = [[(2, 3), (3,)], [[4, 3], [3]]]
    source = load_problem(SINGLE, "x", "cpu", input_shapes=sets, init_inputs=[3, 1.0]).source
    assert "def get_inputs():\n    return [torch.randn((2, 3)), torch.randn((3,))]" in source
    assert "def get_inputs_2():\n    return [torch.randn((4, 3)), torch.randn((3,))]" in source


def test_each_set_of_shapes_has_to_fit() -> None:
    with pytest.raises(ProblemError, match="input_shapes gives 1"):
        load_problem(SINGLE, "x", "cpu", input_shapes=[[(2, 3), (3,)], [(4, 3)]], init_inputs=[3, 1.0])


FUNCTIONS = "def get_inputs():\n    return [1]\ndef get_init_inputs():\n    return []\n"
TWO = "class A(nn.Module): ...\nclass B(nn.Module):\n    def __init__(self):\n        self.a = A()\n"


@pytest.mark.parametrize(
    ("code", "last"),
    [
        (SINGLE + FUNCTIONS, "Model = Scaled"),
        (TWO + FUNCTIONS, "Model = B"),
        (TWO + "class C(nn.Module): ...\n" + FUNCTIONS, "Model = C  # the last that no other one uses, after B"),
        (edit(TWO, "self.a = A()", "self.a = make()") + "def make(): return A()\n" + FUNCTIONS, "Model = B"),
        ("from base import Layer\nclass Net(Layer):\n    def forward(self, x): ...\n" + FUNCTIONS, "Model = Net"),
        ("from torch.nn import *\nclass Net(Module): ...\n" + FUNCTIONS, "Model = Net"),
    ],
)
def test_a_module_of_any_name_is_the_problem_where_no_other_one_uses_it(code: str, last: str) -> None:
    source = load_problem(code, "x", "cpu").source
    assert source.startswith(code.rstrip()) and source.splitlines()[-1] == last


@pytest.mark.parametrize(
    "model",
    [
        "Model = B\n",
        "from functools import partial\nModel = partial(B)\n",
        "try:\n    Model = B\nexcept NameError:\n    pass\n",
    ],
)
def test_a_model_that_is_named_is_taken_however_it_is_bound(model: str) -> None:
    code = TWO + "class C(nn.Module): ...\n" + model + FUNCTIONS
    assert load_problem(code, "x", "cpu").source == code


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(0)\n",
        "sys.exit(main())\n",
        "if len(sys.argv) < 2:\n    exit()\nB(sys.argv[1])\n",
        "raise SystemExit\n",
    ],
)
def test_a_source_ends_where_it_ends_the_program(end: str) -> None:
    code = f"import sys\n{TWO}{FUNCTIONS}print(B)\n"
    assert load_problem(f"{code}{end}", "x", "cpu").source == load_problem(code, "x", "cpu").source
    early = f"import sys\n{end}{TWO}{FUNCTIONS}"
    assert end in load_problem(early, "x", "cpu").source
    guarded = f"{code}if __name__ == '__main__':\n    sys.exit(0)\n"
    assert "sys.exit(0)" in load_problem(guarded, "x", "cpu").source


def test_keyword_only_inputs_get_the_last_shapes_and_constructors_keywords() -> None:
    code = "class B(nn.Module):\n    def __init__(self, n): ...\n    def forward(self, x, *, mask): ...\n"
    source = load_problem(code, "x", "cpu", [(2, 3), (3,)], {"n": 4}).source
    assert "return [[torch.randn((2, 3))], {'mask': torch.randn((3,))}]" in source and "return {'n': 4}" in source
    with pytest.raises(ProblemError, match="takes x, mask, but input_shapes gives 1"):
        load_problem(code, "x", "cpu", [(2, 3)], [[], {"n": 4}])


def test_what_is_missing_is_named_with_the_arguments_that_it_is_for() -> None:
    with pytest.raises(ProblemError) as fault:
        load_problem(SINGLE, "scaled", "cpu")
    assert "one for each input of `Scaled.forward` (x, y)" in str(fault.value)
    assert "`Scaled` is made with size: add `get_init_inputs` too." in str(fault.value)
    with pytest.raises(ProblemError) as fault:
        load_problem(SINGLE, "scaled", "cpu", init_inputs=[3])
    assert str(fault.value).endswith("`Scaled.forward` (x, y).")


OPTIONAL = """\
class Attention(nn.Module):
    def __init__(self, size, heads=8): ...
    def forward(self, queries, keys=None, mask: Tensor | None = None, *, bias, scale=None): ...
"""


@pytest.mark.parametrize(
    ("code", "takes"),
    [
        (OPTIONAL, ("queries, bias", "keys, mask")),
        (edit(OPTIONAL, "self, queries, keys", "self, queries, /, keys"), ("queries, bias", "keys, mask")),
        (edit(OPTIONAL, "*, bias, scale", "scale"), ("queries", "keys, mask, scale")),
        (edit(OPTIONAL, "queries, keys=None", "queries=None"), ("bias", "queries, mask")),
        (edit(OPTIONAL, "self, queries, keys", "self, queries, values, keys"), ("queries, values, bias", "keys, mask")),
    ],
)
def test_an_argument_with_a_default_is_nowhere_told_as_needed(code: str, takes: tuple[str, str]) -> None:
    needed, optional = takes
    with pytest.raises(ProblemError) as missing:
        load_problem(code, "x", "cpu")
    assert f"`Attention.forward` ({needed}); `Attention` is made with size:" in str(missing.value)
    with pytest.raises(ProblemError, match=re.escape(f"takes {needed} (and may be given {optional}), but")):
        load_problem(code, "x", "cpu", [(1,)] * 7, [3])
    least = [(1,)] * (needed.count(",") + 1)
    assert load_problem(code, "x", "cpu", least, [3]).source.count("torch.randn") == len(least)
