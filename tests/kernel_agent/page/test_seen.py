"""Which runs are seen below a folder."""

from pathlib import Path

from kernel_agent.page.seen import runs_below
from kernel_agent.run.journal import FILE


def test_runs_of_suites_are_seen_below_the_folder_that_holds_the_suites(tmp_path: Path) -> None:
    places = ("run", "suite/problems/softmax", "suite/problems/level1/19_ReLU")
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / FILE).touch()
    assert {path.relative_to(tmp_path).as_posix() for path in runs_below(tmp_path)} == set(places)
