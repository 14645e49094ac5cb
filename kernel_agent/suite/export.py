"""A suite's kernels in the layout of KernelBench's runs, so that its own script scores them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_agent.delivery import BEST, delivered
from kernel_agent.errors import UsageError
from kernel_agent.run import tree
from kernel_agent.run.journal import read
from kernel_agent.suite.kernels import LEVEL, name_of
from kernel_agent.suite.rows import rows_of
from kernel_agent.suite.store import Suite
from kernel_agent.suite.types import PROBLEMS, Row
from rag import text_files

BACKENDS = {"cuda": "cuda", "triton": "triton"}
"""What KernelBench calls our targets; it scores on a GPU alone."""

ARCHITECTURES = {
    "5": "Maxwell",
    "6": "Pascal",
    "7": "Volta",
    "8": "Ampere",
    "9": "Hopper",
    "10": "Blackwell",
    "12": "Blackwell",
}
EXCEPTIONS = {"75": "Turing", "89": "Ada"}
"""KernelBench's names of architectures, by the major number of a compute capability or by all of it."""


@dataclass(frozen=True, slots=True)
class ExportedLevel:
    """A run of KernelBench's: `folder` holds the kernels of these problems of one level, for one target."""

    folder: Path
    level: int
    numbers: tuple[int, ...]
    target: str
    arch: str

    @property
    def command(self) -> str | None:
        """What scores it, typed in a checkout of KernelBench; None where it has no backend for the target."""
        if self.target not in BACKENDS:
            return None
        named = architecture(self.arch)
        words = (
            "python scripts/eval_from_generations.py",
            f"run_name={self.folder.name} runs_dir={self.folder.parent.resolve()}",
            f"dataset_src=local level={self.level} subset='({min(self.numbers)}, {max(self.numbers)})'",
            f"backend={BACKENDS[self.target]}",
            *([f"gpu_arch='[\"{named}\"]'"] if named else []),
        )
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written; `left_out` says of a problem why it was not, `as_it_lay` are kernels that are bound as the
    suite delivered them, since the other binding cannot take them."""

    levels: tuple[ExportedLevel, ...]
    left_out: dict[str, str]
    as_it_lay: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A kernel's place in the layout."""

    level: int
    number: int

    def file(self, directory: Path) -> Path:
        return directory / f"level{self.level}" / f"level_{self.level}_problem_{self.number}_sample_0_kernel.py"


def export(suite: Suite, directory: Path, bind: str = "torch", level: int | None = None) -> Exported:
    """Write each delivered kernel to `directory`/level<L>/level_<L>_problem_<P>_sample_0_kernel.py, bound by `bind`.

    `level` is that of problems whose ids do not say it. Originals are no kernels: they are left out. Raises UsageError
    where nothing can be written, or a folder of the layout holds something: KernelBench would score that too.
    """
    rows = {row.problem: row for row in rows_of(suite)}
    places, left_out = _places(suite, rows, level)
    if not places:
        raise UsageError(f"No kernel of {suite.directory} can be exported: {next(iter(left_out.values()))}.")
    for folder in sorted({place.file(directory).parent for place in places.values()}):
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise UsageError(f"{folder} is not empty: choose another folder for the kernels.")
    as_it_lay = []
    groups: dict[tuple[int, str, str], list[int]] = {}
    for problem, place in places.items():
        kernel = _kernel(suite, problem, bind)
        file = place.file(directory)
        with _writing(file):
            text_files.write_whole(file, kernel.text)
        as_it_lay += [] if kernel.is_bound else [problem]
        groups.setdefault((place.level, rows[problem].target or "", kernel.arch), []).append(place.number)
    levels = [
        ExportedLevel(directory / f"level{at}", at, tuple(sorted(numbers)), target, arch)
        for (at, target, arch), numbers in groups.items()
    ]
    return Exported(tuple(levels), left_out, tuple(as_it_lay))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}): choose another folder.") from None


def _places(suite: Suite, rows: Mapping[str, Row], level: int | None) -> tuple[dict[str, Place], dict[str, str]]:
    """Where each problem's kernel goes, and why others go nowhere."""
    places: dict[str, Place] = {}
    left_out: dict[str, str] = {}
    source = LEVEL.fullmatch(Path(suite.plan.source).name)
    for problem, row in rows.items():
        name = name_of(problem)
        at = name.level if name.level is not None else int(source[1]) if source else level
        if not row.correct:
            left_out[problem] = f"{problem} has no kernel ({row.status.replace('_', ' ')})"
        elif name.number is None:
            left_out[problem] = f"{problem} has no number, by which KernelBench finds its problem"
        elif at is None:
            left_out[problem] = f"{problem} says no level: name it with --level"
        elif Place(at, name.number) in places.values():
            left_out[problem] = f"{problem} has the number of another problem of its level"
        else:
            places[problem] = Place(at, name.number)
    return places, left_out


@dataclass(frozen=True, slots=True)
class _Kernel:
    text: str
    arch: str
    is_bound: bool = True


def _kernel(suite: Suite, problem: str, bind: str) -> _Kernel:
    """A problem's kernel with the binding that is asked for; one made elsewhere as it came."""
    directory = suite.directory / PROBLEMS / problem
    lay = (directory / BEST).read_text("utf-8")
    if verdict := suite.verdicts.get(problem):
        return _Kernel(lay, verdict.description.device.arch)
    run = read(directory)
    winner, arch = tree.winner(run), run.description.device.arch
    try:
        return _Kernel(delivered(winner.source, run.problem, run.description, bind) if winner.idea else lay, arch)
    except UsageError:
        return _Kernel(lay, arch, is_bound=False)


def architecture(arch: str) -> str | None:
    """KernelBench's name of an architecture such as `sm_90`; None where it has none."""
    digits = arch.removeprefix("sm_").rstrip("af")
    return EXCEPTIONS.get(digits) or ARCHITECTURES.get(digits[:-1])
