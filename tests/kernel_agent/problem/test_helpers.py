"""Helper files become part of the problem that imports them, or are named in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from kernel_agent.errors import ProblemError
from kernel_agent.problem.from_python import source_of
from kernel_agent.problem.helpers import whole, with_helpers

SCALE = "ONE = 1.0\n"
HELPER = """from __future__ import annotations
import math
from pack import scale as sc

class Half:
    gain: float = 0.5 * sc.ONE

def double(x):
    return 2 * x

if __name__ == "__main__":
    raise SystemExit
"""
FILES = {"here/helper.py": HELPER, "here/pack/scale.py": SCALE}


@pytest.mark.parametrize(
    "code",
    [
        "from helper import double\nr = double(4)",
        "from helper import double as twice, Half\nr = twice(8 * Half.gain)",
        "import helper\nr = helper.double(4)",
        "import math, helper as h\nr = h.double(math.floor(4.2))",
        "from helper import *\nr = double(4)",
        "from . import helper\nr = helper.double(4)",
        "from .helper import (\n    double,\n    Half as H,\n)\nr = double(8) * H.gain",
        "try:\n    from helper import double\nexcept ImportError:\n    double = None\nr = double(4)",
        "def f():\n    from helper import double\n    return double(4)\nr = f()",
        "'''Doc.'''\nfrom __future__ import annotations\nfrom helper import double; r = double(4)",
    ],
)
def test_an_import_of_a_helper_gives_the_same_names_in_one_source(code: str) -> None:
    text = with_helpers(code, "problem.py", FILES)
    found: dict[str, object] = {"__name__": "problem"}
    exec(compile(text, "problem.py", "exec"), found)
    assert found["r"] == 8 and "helper import" not in text


@pytest.mark.parametrize(
    ("code", "files", "words"),
    [
        ("from helper import double\ndef Half(): ...", FILES, "here/helper.py and p.py both define `Half`: rename it"),
        ("import math as sc\nfrom helper import double", FILES, "both define `sc`"),
        ("x = 1", FILES, "p.py imports nothing of here/helper.py: leave that file out."),
        ("import pack.scale", {"pack/scale.py": SCALE}, "write `from pack.scale import ...`"),
        ("import a", {"a.py": "import b", "b.py": "import a"}, "import one another"),
        ("import a", {"a.py": "def ("}, "a.py does not parse: "),
        ("import a", {"a.py": "\0"}, "a.py does not parse: source code string cannot contain null bytes."),
    ],
)
def test_what_cannot_be_put_together_is_said_in_one_sentence(code: str, files: Mapping[str, str], words: str) -> None:
    with pytest.raises(ProblemError) as fault:
        with_helpers(code, "p.py", files)
    assert words in str(fault.value) and "\n" not in str(fault.value)


def test_a_file_beside_the_problem_that_it_imports_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    helper, scale, problem = (tmp_path / name for name in ("helper.py", "pack/scale.py", "problem.py"))
    helper.write_text(HELPER)
    scale.write_text(SCALE)
    code = "import torch\nfrom helper import double\n"
    with pytest.raises(ProblemError, match=rf"problem.py imports {helper}, .* \(--with {helper}\)\.$"):
        whole(code, problem, {})
    with pytest.raises(ProblemError, match=f"helper.py imports {scale}, a file beside it"):
        whole(code, problem, {str(helper): HELPER})
    assert "ONE = 1.0" in whole(code, problem, {str(helper): HELPER, str(scale): SCALE})
    problem.write_text(code)
    assert "ONE = 1.0" in source_of(problem, helpers=[helper, scale]).code
    assert whole("import torch\n", problem, {}) == "import torch\n"


def test_a_file_with_the_name_of_what_is_installed_is_no_helper(tmp_path: Path) -> None:
    for name in ("torch.py", "json.py"):
        (tmp_path / name).write_text(HELPER)
    code = "import json\nimport torch\nimport torch.nn as nn\n"
    assert whole(code, tmp_path / "problem.py", {}) == code
