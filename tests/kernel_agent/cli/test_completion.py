"""Completion, by the shell itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_agent.cli import flags
from kernel_agent.cli.completion import script
from kernel_agent.cli.main import COMMANDS

ASK = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kernel_agent; echo "${COMPREPLY[@]}"'


def completed(tmp_path: Path, *words: str) -> set[str]:
    """What bash makes of the words typed so far, the last one unfinished."""
    file = tmp_path / "completion"
    file.write_text(script("bash", flags.parser(COMMANDS)))
    command = ["bash", "-c", ASK, "bash", str(file), "kernel-agent", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_the_first_word_is_a_command(tmp_path: Path) -> None:
    assert completed(tmp_path, "") == set(COMMANDS)
    assert completed(tmp_path, "re") == {"resume", "report"}


def test_flags_are_those_of_the_command(tmp_path: Path) -> None:
    assert {"--rounds", "--target", "--no-report"} <= completed(tmp_path, "run", "x.py", "--")
    assert completed(tmp_path, "report", "--op") == {"--open"}


def test_a_flag_s_values_are_its_choices_or_its_setting_s(tmp_path: Path) -> None:
    assert completed(tmp_path, "show", "--bind", "") == {"tvm_ffi", "torch"}
    assert {"cpu", "cuda", "triton"} <= completed(tmp_path, "run", "x.py", "--target", "")


def test_actions_are_words_and_files_are_left_to_the_shell(tmp_path: Path) -> None:
    assert completed(tmp_path, "experience", "") == {"list", "export", "import", "forget"}
    assert completed(tmp_path, "run", "") == set()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_understand_what_is_written_for_them(tmp_path: Path, shell: str) -> None:
    text = script(shell, flags.parser(COMMANDS))
    assert all(name in text for name in COMMANDS)
    if program := shutil.which(shell):
        (tmp_path / "text").write_text(text)
        done = subprocess.run([program, "-n", str(tmp_path / "text")], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
