"""Write what is generated: `python -m docs.generate` (or `make docs`).

docs/settings.md and .env.example come from kernel_agent/settings.py, the tables of wings in docs/architecture.md from
tests/test_architecture.py and the docstrings of the wings. tests/test_docs.py holds all three up to date.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kernel_agent.settings import rows  # noqa: E402
from tests.test_architecture import WINGS  # noqa: E402

SETTINGS = """# Settings

`make docs` writes this page from `kernel_agent/settings.py`.

Every setting is an argument of `KernelAgent(...)` by its name, a variable of the environment or
`.env`, and a flag of `run`, `resume`, `suite run`, `suite resume` and `doctor` (`num_rounds` is
`--num-rounds`). Arguments win over the environment, the environment over `.env`, all three over the
defaults. Keys and tokens have no flag. `.env.example` has every variable: copy it to `.env`.

Variables of the library stand in [retrieval](retrieval.md#other-models-and-stores), those of the
server in [the measuring server](mcp-server.md#variables).

| setting | variable | type | default | what it is |
| --- | --- | --- | --- | --- |
"""
ENVIRONMENT = "# Copy to .env and uncomment what you need. Arguments and environment variables win over this file.\n"
MARKED = re.compile(r"(?<=<!-- wings -->\n).*?(?=<!-- /wings -->)", re.DOTALL)


def settings_page() -> str:
    """The text of docs/settings.md."""
    return SETTINGS + "".join(
        f"| `{r.name}` | `{r.variable}` | {r.type} | {f'`{r.default}`' if r.default else ''} | {r.sentence} |\n"
        for r in rows()
    )


def environment_example() -> str:
    """The text of .env.example."""
    return ENVIRONMENT + "".join(f"\n# {r.sentence}\n# {r.variable}={r.default}\n" for r in rows())


def architecture_page(page: str) -> str:
    """The page with its tables of wings written anew. Raises ValueError where the page has no place for them."""
    tables = "\n".join(_table(part, row.split()) for part, row in WINGS.items())
    written, places = MARKED.subn(lambda _: f"\n{tables}\n", page)
    if places != 1:
        raise ValueError("docs/architecture.md has no place between <!-- wings --> and <!-- /wings -->")
    return written


def _table(part: str, wings: list[str]) -> str:
    lines = [f"| `{part}/` | what it is |", "| --- | --- |", *(f"| `{w}` | {_sentence(part, w)} |" for w in wings)]
    return "\n".join(lines) + "\n"


def _sentence(part: str, wing: str) -> str:
    """The first sentence of a wing's docstring."""
    folder = ROOT / part / wing
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    first = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[.])\s", first)[0]


def generated() -> Mapping[Path, str]:
    """Each generated file and what belongs in it."""
    architecture = ROOT / "docs" / "architecture.md"
    return {
        ROOT / "docs" / "settings.md": settings_page(),
        ROOT / ".env.example": environment_example(),
        architecture: architecture_page(architecture.read_text()),
    }


def stale() -> Iterator[Path]:
    """The generated files that are not as they should be."""
    return (file for file, text in generated().items() if not file.is_file() or file.read_text() != text)


def main() -> None:
    for file in list(stale()):
        file.write_text(generated()[file])
        print(f"wrote {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
