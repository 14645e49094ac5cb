"""ncu's command line and its words, which come in dots and in any pieces."""

from pathlib import Path

import pytest

from ncu_server.errors import Code, Refusal
from ncu_server.profiler.ncu import Heard, Selection, command

TALK = b"""==PROF== Connected to process 77 (/usr/bin/python3.11)
the program's own line
==PROF== Profiling "softmax<float, 4>" - 0: 0%....50%....100% - 38 passes
==PROF== Profiling "gemm" - 1 (2/5): 0%....50%....100% - 9 passes
==PROF== Disconnected from process 77
"""


@pytest.mark.parametrize("size", [1, 3, 64, 4096])
def test_progress_is_read_from_pieces_of_any_size(size: int) -> None:
    heard = Heard()
    said = [heard.feed(TALK[i : i + size]) for i in range(0, len(TALK), size)]
    heard.end()
    assert heard.connected and not heard.errors
    assert heard.kernels == [("softmax<float, 4>", 38), ("gemm", 9)]
    if size < 64:
        assert "profiling softmax<float, 4>: 50 %" in said
    assert "the program's own line" in heard.log


def test_the_kernels_that_were_seen_instead_are_listed() -> None:
    heard = Heard()
    heard.feed(
        b"==PROF== Connected to process 1 (x)\n==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. a\n2. b\n"
    )
    assert heard.nothing and heard.seen == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", Code.COUNTERS_DENIED),
        (b"==ERROR== Profiling failed because a driver resource was unavailable. Ensure that", Code.COUNTERS_BUSY),
        (b"==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock. Please", Code.LOCKED),
        (b"==ERROR== something else", None),
        (b"a program that prints ERR_NVGPUCTRPERM", None),
    ],
)
def test_a_refusal_is_known_by_the_line_in_which_ncu_says_it(line: bytes, code: Code | None) -> None:
    heard = Heard()
    heard.feed(line + b"\n")
    refusal = heard.refusal()
    assert (refusal.code if refusal else None) == code
    assert refusal is None or "; " in refusal.sentence


def test_endless_output_without_a_line_is_not_kept() -> None:
    heard = Heard()
    for _ in range(100):
        heard.feed(b"x" * 65536)
    assert len(heard._rest) <= 4096


def test_the_command_asks_for_sections_and_keeps_the_program_apart() -> None:
    line = command("ncu", Selection("Occupancy, LaunchStats", "soft.*", 2, 5, "none"), Path("r"), ["a", "--set"], False)
    split = line.index("--")
    assert line[split + 1 :] == ["a", "--set"]
    assert [line[i + 1] for i, word in enumerate(line[:split]) if word == "--section"] == ["Occupancy", "LaunchStats"]
    assert line[line.index("--kernel-name") + 1] == "regex:soft.*"
    assert line[line.index("--profile-from-start") + 1] == "off"


@pytest.mark.parametrize("given", [{"detail": "--evil"}, {"detail": "a b"}, {"kernel": "("}])
def test_what_is_no_section_or_no_expression_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(Refusal) as refusal:
        command("ncu", Selection(**given), Path("r"), ["a"], True)
    assert refusal.value.code == Code.BAD_ARGUMENT
