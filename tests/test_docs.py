"""README and the pages say only what is true: links, commands, names and tables are held against the code."""

import argparse
import ast
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import rag.__main__
from docs.generate import stale
from kernel_agent import errors
from kernel_agent.cli import flags
from kernel_agent.cli.main import COMMANDS, INTERRUPTED, NOT_PASSED
from kernel_agent.settings import rows
from ncu_server.sandbox.policy import WALLS
from ncu_server.server import make_server
from ncu_server.wire import profiling
from ncu_server.wire.evaluation import EvaluateResult
from tests.support.paths import ROOT

PAGES = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TOP = ("examples", "tests", "benchmarks", "corpus", "kernel_agent", "ncu_server", "rag", "docs", r"\.ci")
PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(TOP)})/[\w/.<>*-]*[\w>*]")
each_page = pytest.mark.parametrize("page", PAGES)


def prose(page: str) -> str:
    """A page without its fenced blocks."""
    return FENCED.sub("", PAGES[page])


def spans(page: str) -> Iterator[str]:
    """What stands between backticks in a page's prose."""
    return (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page)))


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in links."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def folder_of(page: str) -> Path:
    return ROOT if page == "README.md" else ROOT / "docs"


def commands() -> Iterator[tuple[str, str]]:
    """Every command of a page: the lines of its shell blocks, and what stands in backticks and begins like one."""
    for page, text in PAGES.items():
        blocks = [block for kind, block in FENCED.findall(text) if kind == "sh"]
        lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
        lines += [span for span in spans(page) if re.match(r"(python|make|pip|kernel-agent|ncu-server) ?", span)]
        lines = [line for line in lines if line.strip() and not re.search(r"<\w+>", line)]
        yield from ((page, " ".join(line.split("#")[0].split())) for line in lines)


def table(page: str, head: str) -> list[str]:
    """The names in backticks of the first column of the table below a header row that begins so."""
    after = PAGES[page].partition(f"\n| {head} |")[2]
    assert after, f"{page} has no table of {head}"
    cells = [line.split("|")[1] for line in after.split("\n\n")[0].splitlines()[2:]]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@each_page
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if link.startswith("http"):
            continue
        place, _, anchor = link.partition("#")
        file = folder_of(page) / place if place else folder_of(page) / page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@each_page
def test_files_and_folders_that_a_page_names_exist(page: str) -> None:
    for name in PATH.findall(PAGES[page]):
        pattern = re.sub(r"<\w+>", "*", name)
        assert any(ROOT.glob(pattern)) or any(ROOT.glob(f"{pattern}.py")), name


@each_page
def test_what_a_page_finds_in_a_file_is_in_it(page: str) -> None:
    for name, file in re.findall(r"`(\w+)`\s+(?:of|in)\s+`([\w/]+\.\w+)`", PAGES[page]):
        assert re.search(rf"\b{name}\b", (ROOT / file).read_text()), f"{name} in {file}"


@each_page
def test_lines_are_short(page: str) -> None:
    wide = [line for line in PAGES[page].splitlines() if len(line) > 100]
    assert not [line for line in wide if page == "README.md" or not line.startswith("|")]


def test_readme_is_read_in_five_minutes_and_links_every_page() -> None:
    assert len(PAGES["README.md"].splitlines()) <= 150
    assert {f"docs/{page}" for page in PAGES} - {"docs/README.md"} <= set(
        re.findall(r"\]\(([^)#]+)\)", PAGES["README.md"])
    )


@pytest.mark.parametrize(("page", "command"), sorted(set(commands())))
def test_every_command_is_understood(page: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    match words:
        case ["make", *given]:
            subprocess.run(["make", "-n", *given], cwd=ROOT, check=True, capture_output=True)
        case ["python" | ".venv/bin/python", "-m", "pytest", *places]:
            assert all((ROOT / place).exists() for place in places)
        case ["python", "-m", module, *given]:
            understood(module, given, monkeypatch)
        case ["python", "test_agent.py", *given]:
            understood("test_agent", given, monkeypatch)
        case ["kernel-agent" | "ncu-server"] | ["pip", "install", "." | "pypdf" | ".[ray]"] | ["python"]:
            pass
        case ["export", variable, *_]:
            assert variable.partition("=")[0] in sources()
        case _:
            pytest.fail(f"nothing reads {command!r}")


class Understood(Exception):  # noqa: N818
    """The arguments of a command were parsed."""


def understood(module: str, given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the module's own parser read the arguments, and no more of it run."""
    if module == "docs.generate":
        assert not given
        return
    if module == "kernel_agent":
        assert not given or flags.parsed(given, COMMANDS)
        return
    if module == "rag" and not given:
        return
    parse = argparse.ArgumentParser.parse_args

    def only(parser: argparse.ArgumentParser, *arguments: object, **named: object) -> None:
        parse(parser, *arguments, **named)  # type: ignore[call-overload]
        raise Understood

    folder = (ROOT / module.replace(".", "/")).is_dir()
    found = importlib.import_module(f"{module}.__main__" if folder else module)
    monkeypatch.setattr(sys, "argv", [module, *given])
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", only)
    with pytest.raises(Understood):
        (found.arguments if module == "test_agent" else found.main)()


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The flags of a parser and of its commands."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from options(command)


@each_page
def test_flags_and_names_that_a_page_has_exist(page: str) -> None:
    from ncu_server.__main__ import _parser as of_the_server

    known = {*options(flags.parser(COMMANDS)), *options(rag.__main__._parser()), *options(of_the_server())}
    for span in spans(page):
        if re.match(r"--?[a-z]", span):
            assert span.split()[0].partition("=")[0] in known, span
        if re.fullmatch(r"[A-Z][A-Z_]+|[a-z]+(_[a-z0-9]+)+", span):
            assert span in sources(), span


def sources() -> str:
    """The text of all sources, in which a name of a page is looked for."""
    if not _sources:
        folders = ("kernel_agent", "ncu_server", "rag", "tests", ".ci")
        found = [p.read_text() for name in folders for p in (ROOT / name).rglob("*.py") if p != Path(__file__)]
        _sources.append("\n".join([*found, *((ROOT / name).read_text() for name in ("set_up.py", ".env.example"))]))
    return _sources[0]


_sources: list[str] = []


def test_rooms_that_the_architecture_names_exist() -> None:
    parts = ("kernel_agent", "ncu_server", "rag")
    wings = {path.name for part in parts for path in (ROOT / part).iterdir() if path.is_dir()}
    text = prose("architecture.md").partition("## A candidate's walk")[2].partition("## Glossary")[0]
    named = [name for name in re.findall(r"`(\w+(?:/\w+)*)/?`", text) if name.split("/")[0] in wings]
    assert len(named) > 30
    for name in named:
        places = [ROOT / part / name for part in parts]
        assert any(place.is_dir() or place.with_suffix(".py").is_file() for place in places), name


def test_what_is_generated_is_up_to_date() -> None:
    assert not list(stale()), "run `make docs`"


@pytest.mark.parametrize("block", [b for text in PAGES.values() for kind, b in FENCED.findall(text) if kind == "json"])
def test_every_client_s_configuration_names_a_module(block: str) -> None:
    for server in json.loads(block)["mcpServers"].values():
        assert server["args"][0] == "-m" and (ROOT / server["args"][1] / "__main__.py").is_file()


PYTHON = {page: b for page, text in PAGES.items() for kind, b in FENCED.findall(text) if kind == "python"}


def reader(page: str, place: Path) -> subprocess.CompletedProcess[str]:
    """Run a page's Python as it stands, beside the examples; the measurements alone are scripted."""
    shutil.copytree(ROOT / "examples", place / "examples")
    bench = f"python {ROOT / 'tests' / 'support' / 'scripted_bench.py'} --log {place / 'log'}"
    kept = {name: value for name, value in os.environ.items() if name not in {row.variable for row in rows()}}
    given = {"KERNEL_AGENT_MCP_SERVER_PATH": bench, "KERNEL_AGENT_RETRIEVAL": "lexical", "PYTHONPATH": str(ROOT)}
    environment = kept | given | {"KERNEL_AGENT_PROVIDER": "templates", "XDG_CACHE_HOME": str(place / "cache")}
    command = [sys.executable, "-c", PYTHON[page]]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    return done


def test_the_python_of_readme_finds_a_kernel_and_every_result_has_a_row(tmp_path: Path) -> None:
    assert reader("README.md", tmp_path).stdout.startswith("improved ")
    [written] = (tmp_path / "runs").glob("*/results.json")
    assert set(table("python-api.md", "key")) == {*json.loads(written.read_text()), "kernel"}


@pytest.mark.long
@pytest.mark.parametrize("page", sorted(set(PYTHON) - {"README.md"}))
def test_the_python_of_the_other_pages_runs(page: str, tmp_path: Path) -> None:
    reader(page, tmp_path)


@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_a_page_asks_for_results_that_there_are(page: str) -> None:
    for node in ast.walk(ast.parse(PYTHON[page])):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            assert node.slice.value in table("python-api.md", "key")


def test_readme_s_code_is_ten_lines() -> None:
    assert len([line for line in PYTHON["README.md"].splitlines() if line.strip()]) <= 10


async def test_every_tool_has_a_row_and_every_row_a_tool(tmp_path: Path) -> None:
    tools = {tool.name for tool in await make_server(tmp_path).list_tools()}
    assert set(table("mcp-server.md", "tool")) == tools
    assert f"{len(tools)} tools" in PAGES["README.md"]


def test_every_command_of_the_agent_has_a_row() -> None:
    assert {name.split()[0] for name in table("getting-started.md", "command")} >= set(COMMANDS)


def test_every_provider_and_every_status_has_a_row() -> None:
    providers = next(row.type.split(", ") for row in rows() if row.name == "provider")
    assert {"auto", *table("models.md", "provider")} == set(providers) == {"auto", *table("README.md", "provider")}
    statuses = get_args(EvaluateResult.model_fields["status"].annotation)
    assert set(table("judging.md", "status")) == set(statuses)


def test_every_finding_and_every_rung_of_a_profile_has_a_row() -> None:
    assert set(table("profiling.md", "trouble")) == set(get_args(profiling.Trouble))
    assert table("profiling.md", "rung") == list(get_args(profiling.Rung))


def test_every_exit_code_has_a_row() -> None:
    named = [one for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "exit_code")]
    faults = [one for one in named if one is not errors.KernelAgentError]
    after = PAGES["getting-started.md"].partition("\n| exit code |")[2].split("\n\n")[0].splitlines()[2:]
    codes = {int(row.split("|")[1]) for row in after}
    assert codes == {0, *(one.exit_code for one in faults), NOT_PASSED, INTERRUPTED}


def test_every_wall_of_the_sandbox_has_a_row() -> None:
    assert set(table("security.md", "wall (its name in a verdict)")) == set(WALLS)


def test_exceptions_and_their_exit_codes_are_those_of_the_code() -> None:
    after = PAGES["python-api.md"].partition("\n| exception |")[2].splitlines()[2:]
    found = [(name, int(row.split("|")[3])) for row in after for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert len(found) >= 7
    for name, code in found:
        assert getattr(errors, name).exit_code == code


def test_every_file_of_results_is_in_the_index_with_a_commit_of_its_own() -> None:
    lines = [line for line in PAGES["results.md"].splitlines() if line.startswith("| [")]
    linked = [name for line in lines for name in re.findall(r"\(\.\./benchmarks/results/([\w.-]+)\)", line)]
    assert sorted(linked) == sorted(path.name for path in (ROOT / "benchmarks" / "results").iterdir())
    for line in lines:
        text = (ROOT / "benchmarks" / "results" / re.findall(r"results/([\w.-]+)\)", line)[0]).read_text()
        commits, date = line.split("|")[-2], line.split("|")[3].strip()
        assert all(commit in text for commit in re.findall(r"\b[0-9a-f]{7}\b", re.sub(r"\(.*?\)", "", commits))), line
        assert date in text, line
