"""What may be handed over: text, paths, classes, instances, functions; and what comes back to call."""

from __future__ import annotations

import builtins
import math
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from kernel_agent.delivery.best_kernel import Kernel  # noqa: E402
from kernel_agent.errors import ProblemError, UsageError  # noqa: E402
from kernel_agent.problem.construct import construct_module  # noqa: E402
from kernel_agent.problem.from_python import source_of  # noqa: E402
from kernel_agent.problem.from_source import load_problem  # noqa: E402
from tests.support.paths import ROOT  # noqa: E402

SCALE = 0.5
KIND = torch.float32


def halved(x: Any, exponent: int = 2) -> Any:
    return F.relu(x).to(KIND) * SCALE**exponent * math.sqrt(4.0)


def softly(x: Any, y: Any) -> Any:
    return halved(x) + y


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.lin = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return halved(self.lin(x))


class Tower(nn.Module):
    def __init__(self, width: int, depth: int = 2):
        super().__init__()
        self.width, self.depth = width, depth
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])

    def forward(self, x: Any) -> Any:
        return self.blocks(x)


def played(found: Any, shapes: Any = None) -> Any:
    """The problem's source run where nothing of this file is known: the output's shape, parameters, inputs' ranges."""
    source = load_problem(found.code, found.name, "cpu", shapes, found.init_inputs).source
    known: dict[str, Any] = {"__name__": "problem"}
    exec(compile(source, "problem", "exec", dont_inherit=True), known)
    torch.manual_seed(0)
    model, inputs = known["Model"](*known["get_init_inputs"]()), known["get_inputs"]()
    shapes = {name: list(p.shape) for name, p in model.state_dict().items()}
    kinds = [(str(x.dtype), x.double().min().item(), x.double().max().item()) for x in inputs]
    return list(model(*inputs).shape), shapes, kinds


def test_text_and_paths_are_read_and_a_path_names_the_run(tmp_path: Path) -> None:
    (tmp_path / "row.py").write_text("x = 1\n", "utf-8-sig")
    assert (source_of("x = 1\n").code, source_of("x = 1\n").name) == ("x = 1\n", "kernel")
    for path in (tmp_path / "row.py", str(tmp_path / "row.py")):
        assert (source_of(path).code, source_of(path).name) == ("x = 1\n", "row")


def test_a_class_is_taken_with_what_it_uses_of_its_module_and_nothing_else() -> None:
    found = source_of(Tower, init_inputs=[8])
    shape, parameters, _ = played(found, [(4, 8)])
    assert shape == [4, 8] and len(parameters) == 4
    assert "Taken" not in found.code and "softly" not in found.code and "pytest" not in found.code


def test_an_instance_is_taken_with_the_arguments_that_it_kept() -> None:
    module = Tower(8, 3)
    before = torch.get_rng_state()
    found = source_of(module)
    assert torch.equal(before, torch.get_rng_state())
    assert list(found.init_inputs or ()) == [8, 3]
    shape, parameters, _ = played(found, [(4, 8)])
    assert shape == [4, 8] and len(parameters) == 6


def test_torchs_own_modules_are_taken_by_what_they_say_of_themselves() -> None:
    held = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.LazyLinear(2))
    with pytest.raises(ProblemError, match="does not say how it was made: write a class around it"):
        source_of(held)
    found = source_of(held[:4])
    shape, parameters, _ = played(found, [(2, 3, 5, 5)])
    assert shape == [2, 100] and "held.0.weight" in parameters


def test_a_function_is_taken_with_example_inputs_like_which_values_are_drawn() -> None:
    x, y = torch.rand(64, 32) * 3 + 1, (torch.randn(64, 32) * 7).half()
    shape, _, kinds = played(source_of(softly, inputs=(x, y)))
    assert shape == [64, 32]
    (kind, low, high), (other, least, most) = kinds
    assert (kind, other) == ("torch.float32", "torch.float16")
    assert low > 0.9 and high < 4.1 and least < -14 and most > 14


def pick(table: Any, at: Any, mask: Any) -> Any:
    return table[at] * mask[:, None]


def test_integers_and_booleans_stay_in_their_range() -> None:
    at, mask = torch.randint(0, 10, (50,)), torch.rand(50) < 0.3
    shape, _, kinds = played(source_of(pick, inputs=[torch.randn(10, 4), at, mask]))
    assert shape == [50, 4] and kinds[1][0] == "torch.int64" and kinds[2][0] == "torch.bool"
    assert kinds[1][1] >= 0 and kinds[1][2] <= 9


def local() -> Any:
    factor = 3.0

    def scaled(x: Any) -> Any:
        return x * factor

    return scaled


def test_what_a_function_has_closed_over_comes_along() -> None:
    assert "factor = 3.0" in (found := source_of(local(), inputs=torch.randn(3, 3))).code
    assert played(found)[0] == [3, 3]


TABLE = torch.ones(3)


def uses_a_tensor(x: Any) -> Any:
    return x + TABLE


def starred(*x: Any) -> Any:
    return x[0]


class Hidden(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.lin = nn.Linear(width, 2)


class Doubled(nn.Module):
    """Keeps something else than it was given, under the same name."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale * 2

    def forward(self, x: Any) -> Any:
        return x * self.scale


class Named(nn.Module):
    def __init__(self, a: int, *, b: int = 2):
        super().__init__()
        self.a, self.b = a, b


def changed(module: nn.Module, place: str, value: object) -> nn.Module:
    inner, _, name = place.rpartition(".")
    setattr(module.get_submodule(inner), name, value)
    return module


class Raising(nn.Module):
    """Raises what it is told to once `on`."""

    on = False

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        if Raising.on:
            raise getattr(builtins, kind)("no\nway")


RAISED = ("AssertionError", "KeyError", "ZeroDivisionError", "OSError", "NotImplementedError", "ImportError")


class Unshowable:
    def __repr__(self) -> str:
        raise ValueError


UNDRAWN = [
    torch.tensor([1.0, float("nan")]),
    torch.tensor([float("-inf"), 0.0]),
    torch.ones(2, device="meta"),
    torch.ones(2).to_sparse(),
    torch.tensor([1], dtype=torch.uint64),
]

BAD: list[tuple[Any, dict[str, Any], str]] = [
    (5, {}, "A problem is source text, a path"),
    (partial(halved), {}, "A problem is source text, a path"),
    (Path("/nowhere.py"), {}, "cannot be read"),
    (lambda x: x, {}, "is not a plain function or class"),
    (uses_a_tensor, {}, "value of `TABLE` cannot be written as source"),
    (starred, {}, "only plain arguments"),
    (nn.Linear, {}, "is torch's own: give an instance"),
    (Hidden(4), {}, "was given as `width` is not known: give init_inputs"),
    (Tower(8).half(), {}, "other parameters or attributes than the module given"),
    (Tower(8), {"init_inputs": [9]}, "other parameters or attributes than the module given"),
    (Tower(8), {"init_inputs": ["a"]}, "give init_inputs"),
    (Doubled(3.0), {}, r"`Doubled\(6\.0,\)` has other .*\(scale\): give init_inputs"),
    (Named(2, b=9), {}, r"has other .*\(b\): give init_inputs"),
    (changed(Tower(8), "blocks.1.width", 9), {}, r"has other .*\(blocks\.1\.width\)"),
    *((Raising(kind), {}, rf"`Raising\('{kind}',\)` fails \({kind}\(.*\): give init_inputs") for kind in RAISED),
    (Unshowable(), {}, "not an object of type Unshowable"),
    (torch.ones(40, 40), {}, "A problem is source text"),
    ("a\0.py", {}, "cannot be read"),
    ("x" * 5000 + ".py", {}, "cannot be read"),
    (softly, {"inputs": [object()]}, "An example input is a tensor"),
    *((softly, {"inputs": [odd]}, "An example input cannot be drawn again .*: write get_inputs") for odd in UNDRAWN),
    ("def get_inputs(): ...\n", {"inputs": [1]}, "leave inputs out"),
]


@pytest.mark.parametrize(("code", "more", "words"), BAD)
def test_what_cannot_be_taken_is_said_in_one_sentence(
    code: Any, more: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Raising, "on", True)
    with pytest.raises(ProblemError, match=words) as fault:
        source_of(code, **more)
    assert "\n" not in str(fault.value) and len(str(fault.value)) < 6000


@pytest.mark.parametrize("value", [Unshowable(), [Unshowable()], torch.ones(9, 9), {"x": torch.ones(9)}, 5, "4x4"])
def test_shapes_and_arguments_that_are_none_are_shown_in_short(value: Any) -> None:
    code = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x): ...\n"
    for given in ((value, None), ([value], None), ([(4,)], value), ([(4,)], [value, torch.ones(9, 9)])):
        with pytest.raises(ProblemError) as fault:
            load_problem(code, "m", "cpu", *given)
        assert "\n" not in str(fault.value) and len(str(fault.value)) < 400


def test_the_largest_integers_are_drawn_again() -> None:
    for example in (torch.full((3,), 2**63 - 1), torch.tensor([-(2**63), 2**63 - 1]), torch.tensor([255]).byte()):
        assert played(source_of(ident, inputs=example))[2][0][0] == str(example.dtype)


def ident(x: Any) -> Any:
    return x


PLACE, LEAST = torch.device("cpu"), float("-inf")


def placed(x: Any) -> Any:
    return x.to(PLACE).clamp(min=LEAST)


def test_devices_and_infinities_can_be_written_as_source() -> None:
    assert played(source_of(placed, inputs=torch.ones(2)))[0] == [2]


def test_the_best_kernel_is_built_at_its_first_call(tmp_path: Path) -> None:
    path = tmp_path / "best_kernel.py"
    source = source_of(softly, inputs=(torch.ones(2), torch.ones(2))).code
    path.write_text(load_problem(source, "softly", "cpu").source + "\n\nclass ModelNew(Model):\n    fresh = True\n")
    kernel = Kernel(path)
    assert torch.equal(kernel(torch.ones(4), torch.ones(4)), softly(torch.ones(4), torch.ones(4)))
    assert kernel.module.fresh and kernel.module is Kernel(path).module
    with pytest.raises(UsageError, match="There is no kernel at"):
        Kernel(tmp_path / "none.py")(1)


def test_taking_text_loads_no_torch() -> None:
    code = "import sys, kernel_agent.problem.from_python as i; i.source_of('x = 1\\n'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "False\n", done.stderr


class Masked(torch.nn.Module):
    def __init__(self, gain: float, shift: float = 0.0) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, x: torch.Tensor, *, mask: torch.Tensor) -> torch.Tensor:
        return x * self.gain * mask


def masked(x: torch.Tensor, scale: float = 1.0, *, mask: torch.Tensor) -> torch.Tensor:
    return x * scale * mask


def called(source: str) -> Any:
    found: dict[str, Any] = {"__name__": "problem"}
    exec(compile(source, "problem", "exec"), found)
    given, drawn = found["get_init_inputs"](), found["get_inputs"]()
    model = construct_module(found["Model"], given)
    args, keywords = drawn if isinstance(drawn, list) else ([], drawn)
    return model(*args, **keywords)


@pytest.mark.parametrize(
    ("code", "init_inputs"),
    [(Masked, {"gain": 2.0}), (Masked, [[2.0], {"shift": 1.0}]), (Masked(2.0), {"gain": 2.0}), (masked, None)],
)
@pytest.mark.parametrize("nested", [False, True])
def test_keywords_of_constructors_and_calls_are_examples_too(code: Any, init_inputs: Any, nested: bool) -> None:
    x, mask = torch.randn(4, 8), torch.randn(8)
    inputs = ((x,), {"mask": mask}) if nested else {"x": x, "mask": mask}
    given = source_of(code, inputs=inputs, init_inputs=init_inputs)
    assert called(load_problem(given.code, "m", "cpu", init_inputs=given.init_inputs).source).shape == (4, 8)


def test_a_constructor_is_given_what_a_generator_yields() -> None:
    assert construct_module(nn.Linear, (size for size in (3, 5))).out_features == 5


def test_containers_of_examples_keep_their_form_and_named_defaults_are_given() -> None:
    x = torch.randn(2, 3)
    source = source_of(masked, inputs={"x": x, "scale": 2.0, "mask": x}).code
    assert "def forward(self, x, *, scale, mask):" in source and "'scale': 2.0" in source
    found: dict[str, Any] = {}
    exec(source_of(masked, inputs=[[x, (x, 1)], {"mask": x}]).code, found)
    (one, (other, number)), keywords = found["get_inputs"]()
    assert one.shape == other.shape == keywords["mask"].shape == (2, 3) and number == 1
