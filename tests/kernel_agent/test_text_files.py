"""Texts as editors and shells save them: read, or refused in one sentence that names the file."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import rag.text_files
from kernel_agent.errors import MistypedSetting, UsageError
from kernel_agent.llm import cassette
from kernel_agent.problem.from_python import source_of
from kernel_agent.prompts import advice
from kernel_agent.settings import load_settings, mistyped
from rag import text_files
from tests.support.experiences import experience
from tests.support.measuring import ROOT

TEXT = "# für Jürgen\nmodel = 'gpt'\n"
SAVED = {
    "utf-8": TEXT.encode(),
    "utf-8 with a mark": codecs.BOM_UTF8 + TEXT.encode(),
    "utf-16 little": codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
    "utf-16 big": codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
    "utf-16 little, no mark": TEXT.encode("utf-16-le"),
    "utf-16 big, no mark": TEXT.encode("utf-16-be"),
    "utf-32": codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"),
    "crlf": TEXT.replace("\n", "\r\n").encode(),
    "cr": TEXT.replace("\n", "\r").encode(),
    "utf-16, crlf": codecs.BOM_UTF16_LE + TEXT.replace("\n", "\r\n").encode("utf-16-le"),
}
LATIN = TEXT.encode("latin-1")


@pytest.mark.parametrize("saved", SAVED)
def test_a_text_is_the_same_however_it_was_saved(saved: str) -> None:
    assert text_files.decoded(SAVED[saved]) == rag.text_files.decoded(SAVED[saved]) == TEXT


@pytest.mark.parametrize("line", [1, 2])
def test_a_source_is_read_in_the_encoding_that_it_declares(line: int) -> None:
    source = "\n" * (line - 1) + "# -*- coding: latin-1 -*-\nNAME = 'Jürgen'\n"
    assert text_files.decoded(source.encode("latin-1")) == source
    with pytest.raises(text_files.NotText, match="declares the encoding klingon"):
        text_files.decoded(source.replace("latin-1", "klingon").encode())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a = 1\n\xfc = 2\n", r"UTF-8 \(byte 0xfc in line 2\): save it as UTF-8"),
        (codecs.BOM_UTF16_LE + b"a", "UTF-16"),
        (b"a\0b" * 999, "zero byte in line 1"),
        (b"\x7fELF\x02\x01\x01" + bytes(200), "is not text"),
        (bytes(64), "is not text"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(data: bytes, words: str) -> None:
    for reader in (text_files, rag.text_files):
        with pytest.raises(reader.NotText, match=words):
            reader.decoded(data)


def test_what_may_be_in_another_encoding_is_read_in_it() -> None:
    assert text_files.decoded(LATIN, otherwise="cp1252") == TEXT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KERNEL_AGENT_NUM_ROUNDS", raising=False)
    return tmp_path


@pytest.mark.parametrize("saved", ["utf-8 with a mark", "utf-16 little", "utf-16 big", "latin-1", "crlf", "cr"])
def test_dotenv_is_read_however_it_was_saved(folder: Path, saved: str) -> None:
    text = "# für Jürgen\nKERNEL_AGENT_NUM_ROUNDS=7\nKERNEL_AGENT_MODEL_NAME='a b'\n"
    encoding = {"utf-8 with a mark": "utf-8-sig", "utf-16 little": "utf-16"}.get(saved, "utf-8")
    data = text.encode("latin-1" if saved == "latin-1" else encoding)
    if saved == "utf-16 big":
        data = codecs.BOM_UTF16_BE + text.encode("utf-16-be")
    ends = {"crlf": b"\r\n", "cr": b"\r"}.get(saved, b"\n")
    (folder / ".env").write_bytes(data.replace(b"\n", ends) if len(ends) > 1 or ends == b"\r" else data)
    settings = load_settings()
    assert (settings.num_rounds, settings.model_name) == (7, "a b")


def test_a_dotenv_that_is_no_text_is_named(folder: Path) -> None:
    (folder / ".env").write_bytes(bytes(range(256)) * 9)
    with pytest.raises(UsageError, match=rf"^{folder}/\.env is not text.*\.$"):
        load_settings()


def test_a_dotenv_is_read_by_nobody_else(folder: Path) -> None:
    (folder / ".env").write_bytes(LATIN)
    code = (
        "from pathlib import Path; from rag.index.chroma import *; Store(VectorStorePath(Path('store'), 'a')).close()"
    )
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_problem_and_rules_and_a_cassette_are_read_however_they_were_saved(folder: Path) -> None:
    for data in SAVED.values():
        (folder / "problem.py").write_bytes(data)
        assert source_of(folder / "problem.py").code == TEXT
    assert source_of(TEXT.replace("\n", "\r\n")).code == source_of("\ufeff" + TEXT).code == TEXT
    rules = '# ü\n[[rule]]\noperators = "mm"\nadvice = "Use tensor cores."\n'
    for data in (rules.encode("utf-16"), rules.encode("utf-8-sig"), rules.replace("\n", "\r\n").encode()):
        (folder / "rules.toml").write_bytes(data)
        assert advice.rules(folder / "rules.toml")[0].advice == "Use tensor cores."


def test_each_that_is_no_text_is_refused_by_its_name(folder: Path) -> None:
    (file := folder / "file.toml").write_bytes(LATIN)
    for read in (source_of, advice.rules, cassette.read):
        with pytest.raises(UsageError) as refused:
            read(file)
        assert str(file) in str(refused.value) and "byte 0xfc in line 1" in str(refused.value)


def test_standard_input_is_read_as_a_file_is(folder: Path) -> None:
    from rag.experience.ledger import as_line

    row = as_line(experience())
    for data in (f"{row}\r\n".encode("utf-16"), f"\ufeff{row}\n".encode()):
        done = _command(folder, "experience", "import", "-", stdin=data)
        assert done.returncode == 0, done.stderr
    done = _command(folder, "experience", "import", "-", stdin=LATIN)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: Standard input is not text in UTF-8 (byte 0xfc in line 1)")


@pytest.mark.parametrize(
    ("variable", "near"),
    [
        ("KERNEL_AGENT_MODLE_NAME", "KERNEL_AGENT_MODEL_NAME"),
        ("KERNEL_AGENT_ROUNDS", "KERNEL_AGENT_NUM_ROUNDS"),
        ("kernel_agent_budget_dolars", "KERNEL_AGENT_BUDGET_DOLLARS"),
        ("KERNELAGENT_NUM_ROUNDS", "KERNEL_AGENT_NUM_ROUNDS"),
        ("OPENAI_API_KYE", "OPENAI_API_KEY"),
        ("RAG_MODLE", "RAG_MODEL"),
    ],
)
def test_a_mistyped_setting_is_named_with_the_nearest(variable: str, near: str) -> None:
    assert list(mistyped({variable})) == [f"{variable} is no setting and is ignored; did you mean {near}?"]


def test_settings_of_ours_and_of_others_are_not_called_mistyped() -> None:
    ours = {"KERNEL_AGENT_NUM_ROUNDS", "OPENAI_API_KEY", "kernel_agent_target", "RAG_MODEL", "RAG_SERVE_TOKEN"}
    others = {
        "PATH",
        "HOME",
        "OPENAI_BASE_URL",
        "OPENAI_ORG_ID",
        "NCU_SERVER_LEASES",
        "RAG_DATABASE",
        "TARGET",
        "MODEL",
    }
    assert not list(mistyped(ours | others))


def test_a_mistyped_setting_is_named_once_and_the_command_runs(folder: Path) -> None:
    (folder / ".env").write_text("KERNEL_AGENT_MODLE_NAME=gpt\n")
    done = _command(folder, "evaluate", "no.py", "--problem", "no.py")
    notice, error = done.stderr.splitlines()
    assert notice == (
        "notice: KERNEL_AGENT_MODLE_NAME is no setting and is ignored; did you mean KERNEL_AGENT_MODEL_NAME?"
    )
    assert error == "error: There is no file no.py."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_settings()
        load_settings()
    assert [one.category for one in caught] == [MistypedSetting]


def test_a_mistyped_flag_or_argument_names_the_nearest(folder: Path) -> None:
    done = _command(folder, "run", "no.py", "--modle", "gpt")
    assert "Unrecognized arguments: --modle gpt; did you mean --model?" in done.stderr
    with pytest.raises(UsageError, match=r"no setting `modle_name`; `model_name` is nearest"):
        load_settings(modle_name="gpt")


def _command(folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "kernel_agent", *arguments],
        input=stdin,
        capture_output=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_text_is_written_whole_or_the_one_before_stays(tmp_path: Path) -> None:
    text_files.write_whole(tmp_path / "kept.md", TEXT)
    (tmp_path / "kept.md.half").mkdir()
    with pytest.raises(OSError):
        text_files.write_whole(tmp_path / "kept.md", "other")
    assert (tmp_path / "kept.md").read_text("utf-8") == TEXT
