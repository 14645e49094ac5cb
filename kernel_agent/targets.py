"""What a kernel can be written for: a row for each target.

Beside its row a target has prompts/target_NAME.md.j2 and, where templates write for it, a row in
proposers/templates/targets.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One target. `language` is what its kernels are written in, `pages` the language of pages that are of use for it.

    `noise` is the share of a ratio of times that is noise there, used where the server did not compare.
    """

    name: str
    language: str
    pages: str
    noise: float = 0.01
    on_gpu: bool = True


TARGETS = {
    row.name: row
    for row in (
        Target("cpu", "C++", "cpp", noise=0.06, on_gpu=False),
        Target("cuda", "CUDA C++", "cuda"),
        Target("triton", "Triton", "cuda"),
    )
}


def target_of(name: str) -> Target:
    """The row of a target; one that has none is taken for a GPU whose language has its name."""
    return TARGETS.get(name) or Target(name, name, name)
