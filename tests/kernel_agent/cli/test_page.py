"""`report`, `watch`, and what `show` has for scripts: as a person types them."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from kernel_agent.cli.main import main
from kernel_agent.page.seen import see
from kernel_agent.run import tree
from tests.support.page_runs import write
from tests.support.page_suites import write_suite
from tests.support.scripted_run import BENCH, MODEL
from tests.support.watching import agent_command, scripted_search


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("runs") / "kept", 40)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(arguments) == code
    said = capsys.readouterr()
    return said.out if code == 0 else said.err


def test_report_writes_the_page_beside_the_run_and_says_where(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "report", str(kept)).strip() == str(kept / "report.html")
    assert "</html>" in (kept / "report.html").read_text()


def test_report_gives_a_script_the_facts(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "report", str(kept), "--json"))
    assert found["headline"]["trial"] == tree.winner(see(kept).run).id


def test_several_runs_or_a_folder_of_them_become_one_page(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "suite" / "one", 5)
    write(tmp_path / "suite" / "two", 5)
    monkeypatch.chdir(tmp_path)
    assert printed(capsys, "report", str(kept), "suite").strip() == "comparison.html"
    assert len(json.loads(printed(capsys, "report", str(kept), "suite", "--json"))) == 3
    assert printed(capsys, "report", "suite", "-o", "all.html").strip() == "all.html"
    assert (tmp_path / "all.html").stat().st_size > 50_000


def test_a_suite_is_a_page_of_its_own_and_several_stand_side_by_side(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (write_suite(tmp_path / name, 4) for name in ("one", "other"))
    monkeypatch.chdir(tmp_path)
    assert printed(capsys, "report", str(one)).strip() == str(one / "report.html")
    assert printed(capsys, "report", str(one), str(other)).strip() == "comparison.html"
    found = json.loads(printed(capsys, "report", "one", "other", "--json"))
    assert [len(suite["rows"]) for suite in found["suites"]] == [4, 4] and len(found["against_first"]) == 1
    assert len(json.loads(printed(capsys, "report", "one", str(kept), "--json"))) == 3, "its runs beside another one"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("report", "nowhere"), "There is no folder nowhere"),
        (("report", "."), "There is no run in . and none below it"),
        (("watch", "nowhere"), "There is no folder nowhere"),
        (("show", "KEPT", "--diff", "zz"), "No trials of this run are named zz"),
        (("show", "KEPT", "--diff", "original"), "The original has no parent"),
        (("show", "KEPT", "--bind", "torch"), "--bind of `show` goes with --rewrite"),
    ],
)
def test_what_there_is_not_is_one_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    kept: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [str(kept) if word == "KEPT" else word for word in arguments]
    assert sentence in printed(capsys, *words, code=2)


def test_a_page_that_cannot_be_written_says_so(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot be written" in printed(capsys, "report", str(kept), "-o", str(kept / "no" / "x.html"), code=4)


def test_a_port_that_is_taken_is_one_sentence(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "choose another --port" in printed(capsys, "watch", str(kept), "--port", port, code=4)
    assert "a port is a number" in printed(capsys, "watch", str(kept), "--port", "99999", code=2)


def test_show_gives_a_script_the_results(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "show", str(kept), "--json"))
    assert (found["status"], found["trials"]) == ("improved", len(see(kept).run.trials) - 1)


def test_show_says_what_a_trial_changed(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = next(one for one in see(kept).run.trials.values() if one.tuned)
    rows = printed(capsys, "show", str(kept), "--diff", trial.id[:6]).splitlines()
    assert rows[0].startswith("--- ") and rows[1].startswith(f"+++ {trial.id[:4]}")
    assert f"+{trial.source.splitlines()[-1]}" in rows
    assert not [row for row in rows if row.startswith("-") and not row.startswith("---")]


def test_the_tree_in_text_leads_to_the_best_and_counts_the_rest(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = see(kept).run
    text = printed(capsys, "show", str(kept), "--tree")
    for trial in tree.lineage(run, tree.winner(run))[1:]:
        assert run.speedup(trial) is None or f"{run.speedup(trial):.2f}x  {trial.id[:4]}" in text
    assert text.splitlines()[0].endswith("the original")
    assert "swept" in text and ("wrong" in text or "error" in text)


def test_the_account_ends_with_the_path_of_the_kernel(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = printed(capsys, "show", str(kept)).strip().splitlines()
    assert rows[-1] == f"best kernel: {kept / 'best_kernel.py'}"
    assert rows[-2].startswith("look at it: ")
    assert sum(row.lstrip()[:2].strip().isdigit() for row in rows) <= 10 + 6, "ten rows of the ranking, and counts"


@pytest.mark.parametrize(("flag", "there"), [("--report", True), ("--no-report", False)])
def test_a_run_ends_with_its_page_unless_it_is_not_wanted(tmp_path: Path, flag: str, there: bool) -> None:
    with scripted_search(tmp_path, "kept", 0.0, flag, "--rounds", "1") as run:
        said = run.communicate()[0]
    assert run.returncode == 0, said
    assert (tmp_path / "kept" / "report.html").exists() is there
    if there:
        with agent_command("report", "kept", "--json", where=tmp_path) as asked:
            assert json.loads(asked.communicate()[0])["state"] == "finished"


async def test_a_page_that_fails_is_a_notice_and_the_run_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernel_agent import KernelAgent
    from kernel_agent.page import report
    from kernel_agent.run.events import Event, Notice

    def broken(*_: object, **__: object) -> Path:
        raise LookupError("no such part")

    monkeypatch.setattr(report, "written", broken)
    events: list[Event] = []
    server = f"python {BENCH} --log {tmp_path / 'log'}"
    given = {"provider": "templates", "retrieval": "lexical", "branching_factor": 1, "num_rounds": 1}
    found = KernelAgent(mcp_server_path=server, target="cpu", observe=events.append, **given)
    _, results = await found.generate_kernel(MODEL, name="relu", run_directory=tmp_path / "run")
    assert results["status"] in ("improved", "no_improvement")
    assert [one.message for one in events if isinstance(one, Notice) and "report.html" in one.message] == [
        "report.html is not written: no such part"
    ]
    assert (tmp_path / "run" / "results.json").exists() and not (tmp_path / "run" / "report.html").exists()
