"""Kernels that are each made to have one disease, with the problem that each is for and what a digest should say of it.

A kernel is a file of `kernels/`. Those called healthy are good ones; what is wrong with the others is marked with
`// here` where a line is to blame, at its end or alone above it. `python -m benchmarks.diseases` profiles them on
a card.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
MARK = "// here"

PROBLEM = """
import torch, torch.nn as nn

class Model(nn.Module):
    def forward(self, {names}):
        return {result}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

CANDIDATE = '''
import torch, torch.nn as nn, tvm_ffi.cpp
SOURCE = r"""
using Tensor = tvm::ffi::TensorView;
template <typename T>
T* data(Tensor tensor) {{ return static_cast<T*>(tensor.data_ptr()); }}
cudaStream_t stream(Tensor tensor) {{
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, tensor.device().device_id));
}}

{kernel}
"""
built = tvm_ffi.cpp.load_inline("{name}", cuda_sources=SOURCE, functions=["run"], extra_cuda_cflags=["-O3"])

class ModelNew(nn.Module):
    def forward(self, {names}):
        out = torch.empty({shape}, dtype=x.dtype, device=x.device)
        built.run({names}, out)
        return out
'''


@dataclass(frozen=True, slots=True)
class Disease:
    """One kernel. `trouble` is None where there is none; `bounds` are those that a digest may give.

    `inlined` says that hot lines stand in a header, and that the marked line calls the hottest of them.
    """

    name: str
    trouble: str | None
    bounds: tuple[str, ...]
    result: str
    inputs: str
    shape: str
    names: tuple[str, ...] = ("x",)
    inlined: bool = False

    @property
    def problem(self) -> str:
        return PROBLEM.format(names=", ".join(self.names), result=self.result, inputs=self.inputs)

    @property
    def candidate(self) -> str:
        kernel = (KERNELS / f"{self.name}.cu").read_text().strip()
        names = ", ".join(self.names)
        return CANDIDATE.format(kernel=kernel, name=self.name, names=names, shape=self.shape)

    @property
    def line(self) -> int | None:
        """The line of the candidate that is to blame."""
        lines = enumerate(self.candidate.splitlines(), 1)
        return next((n + (text.strip() == MARK) for n, text in lines if text.endswith(MARK)), None)

    def faults(self, digest: dict[str, object]) -> list[str]:
        """What a digest (as JSON) says otherwise than it should, a sentence each."""
        found = _by_trouble(digest)
        said = []
        if digest["bound"] not in self.bounds:
            said.append(f"bound is {digest['bound']!r}, none of {self.bounds}")
        if self.trouble is None and not self.inlined and found:
            said.append(f"a healthy kernel has {sorted(map(str, found))}")
        if self.trouble is not None and self.trouble not in found:
            said.append(f"{self.trouble} is not among {sorted(map(str, found))}")
        if self.line and self.trouble in found and (blamed := found[self.trouble]) != self.line:
            said.append(f"the candidate's line {blamed} is blamed, {self.line} is to blame")
        if self.inlined and (caller := _hottest_caller(digest)) != self.line:
            said.append(f"the hottest line of a header is called from {caller}, not from {self.line}")
        return said


def _by_trouble(digest: dict[str, object]) -> dict[str | None, int | None]:
    """The candidate's line that each finding blames."""
    findings = digest["findings"]
    assert isinstance(findings, list)
    return {f["trouble"]: (f.get("place") or {}).get("candidate_line") for f in findings}


def _hottest_caller(digest: dict[str, object]) -> int | None:
    """The candidate's line that calls the hottest line of a header; None where no header's line is hot."""
    lines = digest["hot_lines"]
    assert isinstance(lines, list)
    of_headers = (one.get("called_from") or {} for one in lines if one["candidate_line"] is None)
    line = next(of_headers, {}).get("candidate_line")
    return line if isinstance(line, int) else None


FLOATS = "torch.randn(1 << 24)"
BUSY, WAITING = ("near the limit", "memory", "compute"), ("latency", "memory", "compute")

DISEASES = (
    Disease("healthy", None, ("near the limit", "memory"), "x * 2 + 1", "torch.randn(16384, 4096)", "16384, 4096"),
    Disease(
        "healthy_double",
        None,
        BUSY,
        "x.clone()",
        "torch.rand(1 << 22, dtype=torch.float64)",
        "1 << 22",
    ),
    Disease("healthy_reduction", None, BUSY, "x.sum().reshape(1)", "torch.ones(1 << 27)", "1"),
    Disease("uncoalesced", "uncoalesced", WAITING, "x.t().contiguous()", "torch.randn(8192, 8192)", "8192, 8192"),
    Disease("strided_stores", "uncoalesced", WAITING, "x.t().contiguous()", "torch.randn(8192, 8192)", "8192, 8192"),
    Disease(
        "bank_conflicts",
        "bank_conflicts",
        (*BUSY, "latency"),
        "x.sum(-1)",
        "torch.randn(65536, 32, 32)",
        "65536, 32",
    ),
    Disease("spills", "spills", WAITING, "x.cumsum(0).sum(0)", "torch.randn(96, 1 << 18)", "1 << 18"),
    Disease("local_array", "spills", WAITING, "x.amax(0)", "torch.rand(256, 1 << 17)", "1 << 17"),
    Disease(
        "low_occupancy",
        "low_occupancy",
        ("latency", "memory", "launch"),
        "x * 0 + 1",
        "torch.rand(4096, 4096)",
        "4096, 4096",
    ),
    Disease(
        "tensor_idle",
        "tensor_idle",
        (*BUSY, "latency"),
        "x @ y",
        "torch.randn(2048, 2048), torch.randn(2048, 2048)",
        "2048, 2048",
        ("x", "y"),
    ),
    Disease("small_grid", "small_grid", ("launch",), "x.sum(-1)", "torch.randn(4, 65536)", "4"),
    Disease("divergence", "divergence", WAITING, "x.clone()", FLOATS, "1 << 24"),
    Disease("barriers", "barriers", WAITING, "x.clone()", "torch.rand(1 << 22)", "1 << 22"),
    Disease("global_atomics", "global_atomics", WAITING, "x.view(-1, 4).sum(0)", FLOATS, "4"),
    Disease("shared_atomics", "shared_atomics", WAITING, "x.view(-1, 4).sum(0)", FLOATS, "4"),
    Disease("double_arithmetic", "double_arithmetic", WAITING, "x.clone()", FLOATS, "1 << 24"),
    Disease(
        "narrow_access",
        "narrow_access",
        WAITING,
        "255 - x",
        "torch.randint(0, 255, (1 << 27,), dtype=torch.uint8)",
        "1 << 27",
    ),
    Disease(
        "redundant_loads",
        "redundant_loads",
        WAITING,
        "x.unfold(-1, 65, 1).sum(-1)",
        "torch.randn((1 << 25) + 64)",
        "1 << 25",
    ),
    Disease("instruction_cache", "instruction_cache", WAITING, "x.clone()", "torch.rand(1 << 18)", "1 << 18"),
    Disease("tail", "tail", WAITING, "x.clone()", "torch.rand(1110 * 256)", "1110 * 256"),
    Disease(
        "integer_division",
        "integer_division",
        WAITING,
        "x + y[:256].view(-1, 1, 1) + y[:56]",
        "torch.ones(64, 256, 56, 56), torch.ones(256)",
        "64, 256, 56, 56",
        ("x", "y"),
    ),
    Disease(
        "few_eligible",
        "few_eligible",
        ("latency", "memory"),
        "x.clone()",
        "torch.randint(0, 1 << 20, (1 << 20,), dtype=torch.int32)",
        "1 << 20",
    ),
    Disease(
        "uneven_sms",
        "uneven_sms",
        ("latency", "memory", "launch"),
        "torch.stack([row[:n].sum() for row, n in zip(x, y.tolist())])",
        "torch.ones(1056, 65536), torch.tensor([65536] * 8 + [512] * 1048, dtype=torch.int32)",
        "1056",
        ("x", "y"),
    ),
    Disease(
        "inlined_header",
        None,
        (*BUSY, "latency"),
        "x.clone()",
        "torch.rand(1 << 24).half()",
        "1 << 24",
        inlined=True,
    ),
)
"""`tail` counts on a card of 132 SMs."""
