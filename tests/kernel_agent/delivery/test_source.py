"""The kernel's source as part of a file: with lines before it, its build under a `with`."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.delivery.source import within, without_future

ROOT = Path(__file__).resolve().parents[3]
FUTURE = {
    "from __future__ import annotations\ndef f(x: int, *, y: list[int] = 1) -> None: ...\n": (
        "\ndef f(x: 'int', *, y: 'list[int]' = 1) -> 'None': ...\n"
    ),
    "from __future__ import division, print_function\nx: int = 1": "\nx: int = 1",
    "'Doc.'\nfrom __future__ import annotations; import math\nx: 'Later' = 1": (
        "'Doc.'\nimport math\nx: \"'Later'\" = 1"
    ),
    "from __future__ import (\n    annotations,\n)\nclass A:\n    é: dict[\n        str, int\n    ]; y: int": (
        "\nclass A:\n    é: 'dict[str, int]'; y: 'int'"
    ),
    "s = 'from __future__ import annotations'": "s = 'from __future__ import annotations'",
}


@pytest.mark.parametrize("code", FUTURE)
def test_imports_from_the_future_go_and_annotations_become_what_they_were_then(code: str) -> None:
    assert without_future(code) == FUTURE[code]


def test_annotations_have_the_values_that_the_import_gives_them() -> None:
    code = """from __future__ import annotations
import dataclasses, typing
@dataclasses.dataclass
class A:
    x: Later | None = None
    y: typing.ClassVar[int] = 3
    z: "int" = 1
def f(a: A, *rest: Later, b: lambda: 1 = 2, **more: "A") -> Later: ...
class Later: ...
"""
    one: dict[str, Any] = {"__name__": "typing"}
    other: dict[str, Any] = {"__name__": "typing"}
    exec(compile(code, "one", "exec", dont_inherit=True), one)
    exec(compile("x = 1\n" + without_future(code), "other", "exec", dont_inherit=True), other)
    for name in ("A", "f"):
        assert one[name].__annotations__ == other[name].__annotations__
    assert repr(one["A"](1)) == repr(other["A"](1))


def _without_blocks(tree: ast.Module) -> str:
    body = [inner for node in tree.body for inner in (node.body if isinstance(node, ast.With) else [node])]
    return ast.dump(ast.Module(body, []))


@pytest.mark.parametrize(
    "code",
    [
        'x = a("""a\nb\n  c""")\ny = 2',
        "x = f'''a\n{1 + (2)}\nc'''; y = a(1,\n2,\n'''a\nb'''\n)",
        "def f(): ...\nx = 1; y = f(); z = 3\nclass A: x = 1\n",
        "if a():\n\tx = 1\n\tif 2:\n\t\ty = 2\n",
        "\fx = a()\n# a remark\n\n@a\nclass A:\n    'doc\\\nmore'\n    x = 1 + \\\n 2\n",
        "def f():\n    '''a\nb'''\n\nx = f()\n",
        "",
        "# nothing",
    ],
)
def test_statements_in_blocks_are_the_same_statements(code: str) -> None:
    assert _without_blocks(ast.parse(within(code, "with around:"))) == ast.dump(ast.parse(code))


RUN = {
    "x = f()": True,
    "x = os.environ['A']": True,
    "x: list[int] = f()": True,
    "x = sys.argv": True,
    "import tvm_ffi.cpp": True,
    "import math, triton": True,
    "from sys import argv": True,
    "from torch.utils.cpp_extension import load_inline": True,
    "try:\n    import cupy\nexcept ImportError:\n    cupy = None": True,
    "raise ValueError(x)": True,
    "class A:\n    x = f()": True,
    "@a\nclass A: ...": True,
    "@a()\ndef f(x: list[int] = g()): g()": False,
    "class A(nn.Module):\n    'doc'\n    @torch.no_grad()\n    def f(self): g()": False,
    "SOURCE = r'''a\nb'''": False,
    "x: dict[str, int] = {'a': 1}": False,
    "f = lambda: g()": False,
    "import math, torch.nn as nn": False,
    "from torch import nn": False,
    "Model = Scaled": False,
    "run = kernel.run": False,
}


@pytest.mark.parametrize("code", RUN)
def test_only_what_runs_something_stands_in_a_block(code: str) -> None:
    between = f"# a remark\n\n{code}\nx = [1]\n"
    assert within(between, "with around:").startswith("# a remark\n\nwith around:\n" if RUN[code] else between)


def test_every_source_here_is_the_same_in_blocks_and_its_functions_stay_outside() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    sources = [(ROOT / name).read_text("utf-8") for name in listed.stdout.splitlines()[::5]]
    assert len(sources) > 50
    for code in sources:
        tree, before = ast.parse(within(code, "with around:")), ast.parse(code)
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert functions == [node.name for node in before.body if isinstance(node, ast.FunctionDef)]
        if not any(isinstance(node, ast.With) for node in before.body):
            assert _without_blocks(tree) == ast.dump(before)
