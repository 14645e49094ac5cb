"""KernelBench's own script on the kernels of `suite export`, where packages are missing that it does not need for that.

    python -m benchmarks.kernelbench_script CHECKOUT KERNELS ARGUMENT ...

KERNELS is a level's folder, such as `level1`, which gets the results as eval_results.json. The script sees the problems
alone that it has kernels for: four seconds of a GPU go to each that has none. Each ARGUMENT is one of those that
`suite export` prints after `runs_dir=`. The script wants torch with a GPU, numpy, pydantic and pydra-config; what talks
to models, to Modal or to Hugging Face may be missing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.kernelbench_one import UNUSED
from benchmarks.serving import ended, need, shown

STAND_IN = '''"""Whatever is asked of it is nothing."""


class Nothing:
    def __call__(self, *_, **__):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __getattr__(self, name):
        return self


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Nothing()
'''


def stand_ins(folder: Path, names: Iterable[str] = UNUSED) -> list[str]:
    """Write an empty package for each that is missing, for the script and the processes it starts; their names."""
    missing = sorted({name for name in names if importlib.util.find_spec(name.split(".")[0]) is None})
    for name in missing:
        place = folder
        for part in name.split("."):
            place /= part
            place.mkdir(exist_ok=True)
            (place / "__init__.py").write_text(STAND_IN)
    return missing


def narrowed(checkout: Path, kernels: Path, copy: Path) -> Path:
    """Write a copy of the checkout whose level has the problems of these kernels; the copy."""
    level = f"KernelBench/{kernels.name}"
    for part in filter(lambda part: (checkout / part).is_dir(), ("scripts", "src", level)):
        shutil.copytree(checkout / part, copy / part)
    numbers = {path.name.split("_")[3] for path in kernels.glob("level_*_problem_*_kernel.py")}
    for path in (copy / level).glob("*.py"):
        if path.name.split("_")[0] not in numbers:
            path.unlink()
    return copy


async def scored(checkout: Path, kernels: Path, words: Iterable[str]) -> int:
    """Run the script on a level's folder; its exit code."""
    with TemporaryDirectory() as folder:
        if missing := stand_ins(Path(folder)):
            print(f"empty packages stand in for {', '.join(missing)}", flush=True)
        checkout = narrowed(checkout, kernels, Path(folder) / "KernelBench")
        path = [str(checkout / "src"), folder, *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [sys.executable, str(checkout / "scripts" / "eval_from_generations.py")]
        command += [f"run_name={kernels.name}", f"runs_dir={kernels.parent}", *words]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
        return (await ended(command, checkout, environment, heard=shown)).code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", metavar="CHECKOUT", type=Path)
    parser.add_argument("kernels", metavar="KERNELS", type=Path)
    parser.add_argument("words", metavar="ARGUMENT", nargs="*")
    given = parser.parse_args()
    need("cuda")
    return asyncio.run(scored(given.checkout.resolve(), given.kernels.resolve(), given.words))


if __name__ == "__main__":
    sys.exit(main())
