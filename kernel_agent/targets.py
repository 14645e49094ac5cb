"""What a kernel can be written for: a row for each target.

Beside its row a target has prompts/target_NAME.md.j2 and, where templates write for it, a row in
proposers/templates/targets.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """One target. `language` is what its kernels are written in, `pages` the language of pages that are of use for it.

    `noise` is the share of a ratio of times that is noise there, used where the server did not compare. `device` is
    what torch calls the kind of device. A delivered file needs torch, what binds it, and `builder`; `arch_list` says
    that its build has to be told the GPU's architecture.
    """

    name: str
    language: str
    pages: str
    noise: float = 0.01
    device: str = "cuda"
    builder: str | None = None
    arch_list: bool = False

    @property
    def on_gpu(self) -> bool:
        """Whether kernels are launched on a device of its own."""
        return self.device != "cpu"


TARGETS = {
    row.name: row
    for row in (
        Target("cpu", "C++", "cpp", noise=0.06, device="cpu", builder="a C++ compiler"),
        Target("cuda", "CUDA C++", "cuda", builder="CUDA's nvcc", arch_list=True),
        Target("triton", "Triton", "cuda"),
    )
}

USUAL = ("cuda", "cpu")
"""Where no target is named, the first that the server has, else the last."""


def target_of(name: str) -> Target:
    """The row of a target; one that has none is taken for a GPU whose language has its name."""
    return TARGETS.get(name) or Target(name, name, name)
