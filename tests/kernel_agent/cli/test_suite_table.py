"""A suite read, compared, judged again and exported from the command line, and kernels made elsewhere judged."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from kernel_agent.cli.main import main
from kernel_agent.suite.plan import Plan
from kernel_agent.suite.store import Store
from tests.support.scripted_run import MODEL
from tests.support.suites import RELU, command, played

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kept") / "suite"
    asyncio.run(played(directory))
    return directory


@pytest.fixture
def suite(kept: Path, there: Path) -> Path:
    shutil.copytree(kept, there / "suite")
    return there / "suite"


def said(capsys: Output, *words: str | Path, code: int = 0) -> str:
    """What a command prints on stdout, after its exit code is as it should be."""
    assert main([str(word) for word in ("suite", *words)]) == code, capsys.readouterr().err
    return capsys.readouterr().out


def test_a_table_is_a_page_where_nobody_watches_and_json_and_csv_where_asked(suite: Path, capsys: Output) -> None:
    page = said(capsys, "table", suite)
    assert f"# {suite}" in page and "| level1/19_ReLU | improved |" in page and "| level1 | 2 | 1 (50%) |" in page
    assert page == said(capsys, "table", suite, "--markdown")
    found = json.loads(said(capsys, "table", suite, "--json"))
    assert [row["problem"] for row in found["rows"]] == ["level1/19_ReLU", "level1/77_Sort", "level2/26_GELU"]
    assert found["total"]["correct"] == 2 and set(found["levels"]) == {"level1", "level2"}
    assert said(capsys, "table", suite, "--csv").splitlines()[2].startswith("level1/77_Sort,original_delivered,")


def test_a_terminal_gets_the_same_cells_drawn(suite: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    out = said(capsys, "table", suite)
    assert "fast_1.05" in out and "level1/77_Sort" in out and "| --- |" not in out


def test_a_suite_is_compared_with_another_and_with_a_table_that_was_kept(suite: Path, capsys: Output) -> None:
    kept = suite.parent / "kept.json"
    kept.write_text(said(capsys, "table", suite, "--json"))
    out = said(capsys, "compare", kept, suite)
    assert "B over A: 1.00x" in out and "by a sign test p = 1: within noise" in out
    shutil.rmtree(RELU.directory(suite))
    found = json.loads(said(capsys, "compare", kept, suite, "--json"))
    assert found["pairs"][0]["change"] == "lost" and found["correct"] == {"up": 0, "down": 1, "p": 1.0}
    assert "level1/19_ReLU" in said(capsys, "compare", kept, suite)


def test_kernels_made_elsewhere_are_judged_and_read_as_a_suite(there: Path, capsys: Output) -> None:
    for name in ("problems/level1", "kernels"):
        (there / name).mkdir(parents=True)
    for number in (19, 20):
        (there / "problems" / "level1" / f"{number}_ReLU.py").write_text(f"{MODEL}# {number}\n")
    (there / "kernels" / "level_1_problem_19_sample_0_kernel.py").write_text("class ModelNew: ...\n# speed: 2.0\n")
    (there / "kernels" / "notes.py").write_text("")
    asked = ["evaluate", "kernels", "--problems", "problems", "--run-directory", "out", "--target", "cpu"]
    server = ["--server", command(there / "log")]
    out = said(capsys, *asked, *server)
    assert "for no problem: notes" in out and "level1/20_ReLU: kernels has no file for it" in out
    assert "1 of 2 problems have a kernel that passed" in out
    found = json.loads(said(capsys, *asked, *server, "--json"))
    assert [row["kernel_us"] for row in found["rows"]] == [50.0, None]
    assert len((there / "log").read_text().splitlines()) == 1, "what has been judged is kept"
    assert "1 of 1 kernels that were judged again held" in said(capsys, "confirm", "out", *server)
    assert said(capsys, "table", "out").count("| yes |") == 1
    assert "level1: kernels of level 1 for cpu, 1 of them" in said(capsys, "export", "out", "kb")
    assert main(["suite", "resume", "out"]) == 2
    assert capsys.readouterr().err == ("error: out has verdicts on kernels made elsewhere: `suite evaluate` goes on.\n")


@pytest.mark.parametrize(("more", "code"), [("", 0), ("# refuse: NO_ROOM", 4), ("# refuse: BAD_PROBLEM", 2)])
def test_kernels_of_which_none_could_be_judged_are_no_result(there: Path, capsys: Output, more: str, code: int) -> None:
    (there / "1_relu.py").write_text(f"{MODEL}{more}\n")
    (there / "kernels").mkdir()
    (there / "kernels" / "1_relu.py").write_text("class ModelNew: ...\n# verdict: wrong\n")
    asked = ["evaluate", "kernels", "--problems", "1_relu.py", "--target", "cpu", "--server", command(there / "log")]
    assert main(["suite", *asked]) == code
    out, err = capsys.readouterr()
    assert "0 of 1 problems have a kernel that passed" in out
    assert err == ("error: The one problem failed; 1_relu: so it was ordered.\n" if code else "")


def test_a_kernel_that_does_not_hold_is_told_by_the_exit_code_and_the_table(suite: Path, capsys: Output) -> None:
    (RELU.directory(suite) / "best_kernel.py").write_text("class ModelNew: ...\n# verdict: wrong\n")
    out = said(capsys, "confirm", suite, "--server", command(suite / "log"), code=6)
    assert "level1/19_ReLU: wrong: scripted wrong" in out and "1 of 2 kernels that were judged again held" in out
    page = said(capsys, "table", suite)
    assert "| 1 of 2 |" in page and "- level1/19_ReLU did not hold: wrong: scripted wrong" in page


BAD = [
    ("table none", "There is no folder none; each suite has one of its own"),
    ("table empty.json", "empty.json is no table of a suite: `suite table RUN --json` writes one."),
    ("compare none none", "There is no folder none"),
    ("confirm fresh", "has delivered no kernel that could be judged again."),
    ("export fresh kb", "No kernel of fresh can be exported: a has no kernel (waiting)."),
    ("evaluate none --problems relu.py", "There is no folder none."),
    ("evaluate empty --problems none", "There is no file or folder none."),
    ("evaluate empty --problems relu.py", "empty holds no kernel"),
    ("evaluate kernels --problems relu.py --run-directory fresh", "has verdicts on other problems than relu.py now"),
]


@pytest.mark.parametrize(("words", "sentence"), BAD)
def test_what_cannot_be_used_is_said_in_one_sentence(there: Path, capsys: Output, words: str, sentence: str) -> None:
    (there / "empty").mkdir()
    (there / "kernels").mkdir()
    (there / "kernels" / "relu.py").write_text("class ModelNew: ...\n")
    (there / "empty.json").write_text("{}")
    with Store.create(there / "fresh", Plan("x", {}), (type(RELU)("a", MODEL),)):
        pass
    assert main(["suite", *words.split()]) == 2
    err = capsys.readouterr().err
    assert sentence in err and err.count("\n") == 1
