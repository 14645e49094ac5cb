"""Ten level 2 problems of KernelBench, every fifth, scaled down so that two cores take milliseconds for a call.

python -m benchmarks.kernelbench_scaled CHECKOUT FOLDER && python -m benchmarks.examples FOLDER/*.py --out FOLDER

Batches and the sizes of images, and of the matrix, are smaller; channels, kernels and all else stay what they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

SIZES: Mapping[int, Mapping[str, int]] = {
    1: {"batch_size": 2, "height": 64, "width": 64},
    6: {"batch_size": 8},
    11: {"batch_size": 4, "height": 24, "width": 24},
    16: {"batch_size": 2, "height": 64, "width": 64},
    21: {"batch_size": 2, "height": 128, "width": 128},
    26: {"batch_size": 1},
    31: {"batch_size": 2, "height": 64, "width": 64},
    36: {"batch_size": 1, "height": 64, "width": 64},
    41: {"batch_size": 256, "in_features": 1024, "out_features": 1024},
    46: {"batch_size": 2, "height": 64, "width": 64},
}
"""What is assigned anew at the end of a problem's file, by its number: its functions read these names when called."""


def scaled(source: str, sizes: Mapping[str, int]) -> str:
    """The problem with these sizes."""
    lines = [f"{name} = {value}" for name, value in sizes.items()]
    return "\n".join([source.rstrip(), "", "", "# Scaled down.", *lines, ""])


def main() -> None:
    """Write the ten files; prints their paths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for number, sizes in SIZES.items():
        [path] = (arguments.checkout / "KernelBench" / "level2").glob(f"{number}_*.py")
        target = arguments.folder / path.name
        target.write_text(scaled(path.read_text(), sizes))
        print(target)


if __name__ == "__main__":
    main()
