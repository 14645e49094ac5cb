"""The README says only what is true."""

import ast
import re

from kernel_agent.settings import rows
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text()


def test_every_setting_stands_in_the_table_with_its_sentence() -> None:
    for r in rows():
        default = f"`{r.default}`" if r.default else ""
        assert f"| `{r.name}` | `{r.variable}` | {default} | {r.sentence} |" in README


def test_the_files_that_it_names_exist() -> None:
    root = ROOT
    for name in re.findall(r"\b(?:examples|tests|benchmarks|corpus)/[\w/.-]+\w", README):
        assert (root / name).exists(), name


def test_its_python_parses() -> None:
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        ast.parse(block)
