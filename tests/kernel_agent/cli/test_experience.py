"""`experience list|export|import|forget`, as a person types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_agent.cli.main import main
from rag.experience.ledger import Ledger, as_line, default_ledger
from tests.support.edits import edit
from tests.support.experiences import ROW, experience

SOME = (
    ROW,
    experience("tile", run="matmul-1", families=("gemm",), title="Tile it", verdict="wrong", why="off by one"),
    experience("pad", run="matmul-1", families=("gemm",), title="Pad the tile", bottleneck="smem", arch="sm_80"),
)


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RAG_CHROMA_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def known() -> set[str]:
    return {one.id for one in Ledger(default_ledger()).read().experiences}


def fill() -> None:
    Ledger(default_ledger()).add(SOME)


def test_where_nothing_was_measured_the_list_says_where_it_would_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experience", "list"]) == 0
    assert capsys.readouterr().out == f"0 experiences in {default_ledger()}\n"
    assert not default_ledger().exists()


def test_the_list_has_a_line_an_idea_and_the_runs(capsys: pytest.CaptureFixture[str]) -> None:
    fill()
    assert main(["experience", "list"]) == 0
    *rows, count, runs = capsys.readouterr().out.splitlines()
    assert len(rows) == 3 and all(row.startswith("on NVIDIA H100 80GB HBM3, ") for row in rows)
    assert count == f"3 experiences (2 faster, 1 wrong) in {default_ledger()}"
    assert runs == "runs: matmul-1, softmax-1"


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (["--run", "matmul-1"], {"tile", "pad"}),
        (["--family", "gemm", "--verdict", "wrong"], {"tile"}),
        (["--bottleneck", "smem"], {"pad"}),
        (["--arch", "sm_90", "--target", "cuda"], {"row", "tile"}),
        (["--problem", "softmax"], {"row", "tile", "pad"}),
        (["--target", "cpu"], set()),
    ],
)
def test_flags_pick_what_is_exported_and_forgotten(
    flags: list[str], left: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    fill()
    assert main(["experience", "export", "-", *flags]) == 0
    assert capsys.readouterr().out == "".join(
        f"{as_line(one)}\n" for one in sorted(SOME, key=lambda o: o.id) if one.id in left
    )
    assert main(["experience", "forget", *flags]) == 0
    assert capsys.readouterr().out.startswith(f"forgot {len(left)} experience")
    assert known() == {"row", "tile", "pad"} - left


def test_what_is_forgotten_is_said_by_run(capsys: pytest.CaptureFixture[str]) -> None:
    fill()
    assert main(["experience", "forget", "--all"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "forgot 3 experiences (2 faster, 1 wrong)",
        "    2 experiences (1 faster, 1 wrong) of matmul-1",
        "    1 experience (1 faster) of softmax-1",
    ]
    assert known() == set()


def test_an_export_is_taken_in_elsewhere_once(
    capsys: pytest.CaptureFixture[str], there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    assert main(["experience", "export", "mine.jsonl"]) == 0
    assert capsys.readouterr().out == "3 experiences (2 faster, 1 wrong) written to mine.jsonl\n"
    monkeypatch.setenv("XDG_DATA_HOME", str(there / "elsewhere"))
    for said in (
        "3 of 3 experiences (2 faster, 1 wrong) taken in\n",
        "0 of 3 experiences (2 faster, 1 wrong) taken in, 3 were known\n",
    ):
        assert main(["experience", "import", "mine.jsonl"]) == 0
        assert capsys.readouterr().out == said
    assert known() == {"row", "tile", "pad"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{as_line(ROW)}\n{{}}\n", "Line 2 of some.jsonl is no experience: id: Field required; nothing was taken in."),
        (edit(as_line(ROW), '"format": 1', '"format": 7'), "it has format 7, this version reads format 1"),
        (edit(as_line(ROW), "dram-bw", "weather"), "bottleneck: 'weather' is none of"),
        ("\n\n", "There is no experience in some.jsonl: `experience export` writes such a file."),
        (b"\xff", "some.jsonl is not text in UTF-8 (byte 0xff in line 1): save it as UTF-8."),
        (None, "There is no file some.jsonl."),
    ],
)
def test_a_file_that_is_none_is_one_sentence_and_nothing_is_taken_in(
    text: str | bytes | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        Path("some.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main(["experience", "import", "some.jsonl"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and words in said.err and said.err.count("\n") == 1
    assert known() == set()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["forget"], "Say what to forget: --all, or some of --run, "),
        (["forget", "--all", "--run", "x"], "Say what to forget"),
        (["export", "nowhere/mine.jsonl"], "nowhere/mine.jsonl cannot be written (No such file or directory)."),
        (["export"], "FILE"),
        (["burn"], "burn"),
        ([], "ACTION"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill()
    assert main(["experience", *command]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1 and len(known()) == 3


@pytest.mark.parametrize("command", [["list"], ["forget", "--all"], ["export", "-"], ["import", "mine.jsonl"]])
def test_a_broken_ledger_is_one_sentence(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.jsonl").write_text(as_line(ROW))
    default_ledger().parent.mkdir(parents=True)
    default_ledger().write_bytes(b"no database" * 100)
    assert main(["experience", *command]) == 4
    said = capsys.readouterr().err
    assert "is broken" in said and "move that file away to begin anew." in said and said.count("\n") == 1


def test_where_the_team_s_server_is_gone_nothing_is_forgotten(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("chromadb")
    fill()
    monkeypatch.setenv("RAG_CHROMA_URL", "http://127.0.0.1:9")
    assert main(["experience", "forget", "--all"]) == 4
    assert "The Chroma server http://127.0.0.1:9 did not let go of them" in capsys.readouterr().err
    assert len(known()) == 3
