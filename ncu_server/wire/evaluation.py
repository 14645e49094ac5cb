"""The wire: what the tools return. Numbers are floats in the unit that the name ends with; absent is null."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from ncu_server.wire.compilation import Diagnostic

Status = Literal["rejected", "build_error", "poor_build", "run_error", "timeout", "wrong", "suspect", "passed"]
Rules = Literal["default", "strict"]
MemoryMode = Literal["full", "lean"]
"""lean: where little memory is free, nothing lies there before it is needed, and extra draws are left out."""
Cache = Literal["cold", "resident"]
Arithmetic = Literal["exact", "float64", "float32", "tf32", "fp16", "bf16", "fp8"]
"""How exact values are: `tf32` is that of float16 operands, too; see docs/judging.md."""

LIMIT = "bytes, or the fastest exact products, at measured rates"

Inputs = Literal["as drawn", "hard", "far"]


class Interval(BaseModel):
    """A median with its 95 % confidence interval."""

    low: float
    median: float
    high: float


class Timing(BaseModel):
    """Time of one call in microseconds: median of block means, its 95 % interval, number of blocks."""

    median_us: float
    low_us: float
    high_us: float
    samples: int
    cache: Cache = Field(
        description="cold: a call's inputs come from memory (flushed, or rotated beyond the last-level cache); "
        "resident: kernels under 20 us whose rotating inputs fit in that cache"
    )
    warm_us: float = Field(description="median with the same inputs call after call and nothing flushed")


class Versus(BaseModel):
    """The candidate against one baseline, measured side by side."""

    baseline: str = Field(description="`eager` (the module as it is), or torch.compile: `compile` (default mode) etc.")
    timing: Timing
    speedup: Interval = Field(description="baseline's time over the candidate's, paired block by block")
    verdict: Literal["faster", "slower", "inconclusive"]


class ShapeResult(BaseModel):
    """The candidate on the inputs of one `get_inputs` function, where a problem has several."""

    inputs: str
    timing: Timing
    versus: list[Versus]
    limit_us: float


class Stages(BaseModel):
    """Where the time of this call went, in seconds; `held_s`, from open to attribute, had the device to itself. On a
    GPU prepare and build go on at the same time."""

    prepare_s: float = Field(default=0.0, description="until the problem's secret inputs and expected values are there")
    build_s: float = 0.0
    queue_s: float = Field(default=0.0, description="waiting for a core to build on and for the device")
    open_s: float = Field(default=0.0, description="starting the candidate's process, loading, its constructor")
    check_s: float = 0.0
    time_s: float = 0.0
    attribute_s: float = 0.0
    held_s: float = 0.0


class Memory(BaseModel):
    """What the constructor and a call take at their height beside the inputs, the candidate's and the reference's;
    `device_bytes` is null where the target is the host itself. What a candidate's process says of itself."""

    host_bytes: float
    reference_host_bytes: float
    device_bytes: float | None = None
    reference_device_bytes: float | None = None


class EvaluateResult(BaseModel):
    """The verdict on one candidate; `timing` is there exactly when it passed."""

    status: Status
    log: str = Field(default="", description="what the compiler, the run or the comparison said")
    diagnostics: list[Diagnostic] = Field(default=[], description="what compilers said in `log`, as data; errors first")
    warnings: list[str] = Field(
        default=[], description="things in the source, or of its memory, worth a look; none of them is a verdict"
    )
    leads: list[str] = Field(default=[], description="the name that `warnings` had")
    error: float | None = Field(
        default=None,
        description="error against float64 in units of the reference's own in full float32; of several, the one that "
        "is nearest to what is allowed",
    )
    allowed: float | None = Field(
        default=None,
        description="units that pass: 64, or 4 times what the reference errs as it runs, or what a "
        "plain float32 loop over a very long sum errs",
    )
    held: str = Field(default="", description="the output and inputs of `error`")
    arithmetic: Arithmetic | None = Field(
        default=None, description="the coarsest arithmetic whose rounding explains the errors; null too where none does"
    )
    precision: str = Field(default="", description="the same in a sentence")
    memory: Memory | None = Field(default=None, description="where it passed; of the input shape that takes most")
    memory_plan: MemoryMode | None = Field(default=None, description="how much of the device's memory judging took")
    timing: Timing | None = Field(default=None, description="the geometric mean where there are several input shapes")
    versus: list[Versus] = []
    shapes: list[ShapeResult] = Field(default=[], description="each input shape, where there are several")
    limit_us: float | None = Field(default=None, description=LIMIT)
    limit_rate: str | None = Field(default=None, description="the rate behind it")
    provenance: dict[str, str | float] = Field(
        default={},
        description="device, versions and protocol behind the numbers; label (custom, hybrid or library) with "
        "the shares of the computing that the candidate's own kernels and library code do",
    )
    notes: list[str] = []
    stages: Stages = Stages()


class Peaks(BaseModel):
    """What a device was measured to reach: a copy's bytes read plus written, square matrix products in TFLOP/s."""

    copy_gbps: float
    read_gbps: float | None = None
    last_cache_bytes: float
    fp32_tflops: float
    tf32_tflops: float | None = None
    bf16_tflops: float | None = None
    int8_tflops: float | None = None
    fp8_tflops: float | None = None
    l2_gbps: float | None = Field(default=None, description="bytes read plus written that stay in the L2 cache")

    @property
    def reading_gbps(self) -> float:
        """GB/s of reading: never less than a copy's, and that where it was not measured alone."""
        return max(self.read_gbps or 0.0, self.copy_gbps)

    @property
    def writing_gbps(self) -> float:
        """GB/s of writing, as a copy's other half: of its rate c and that of reading r, 2 / c = 1 / r + 1 / w."""
        return 1 / (2 / self.copy_gbps - 1 / self.reading_gbps)

    @property
    def cache(self) -> str:
        """The rate of the L2 cache in words; empty where it is not known."""
        return f"{self.l2_gbps:,.0f} GB/s within the L2 cache" if self.l2_gbps else ""

    @property
    def products(self) -> dict[str, float | None]:
        """TFLOP/s of matrix products by the format of their operands."""
        return {
            "fp32": self.fp32_tflops,
            "TF32": self.tf32_tflops,
            "bf16": self.bf16_tflops,
            "int8": self.int8_tflops,
            "fp8": self.fp8_tflops,
        }


class ChipResult(BaseModel):
    """As measured: how many clusters of 2, 4 and 8 blocks fit at once with an SM a block, a read of idle memory, the
    SMs' clock under a load of the tensor cores."""

    sms: int | None = None
    clusters: list[int] = []
    latency_ns: float | None = None
    tensor_mhz: float | None = None


class DeviceResult(BaseModel):
    """The device behind the numbers; `copy_gbps` is its measured copy bandwidth, bytes read plus bytes written."""

    target: str
    name: str
    uuid: str | None = None
    host: str = ""
    arch: str
    build_arch: str | None = Field(
        default=None, description="what CUDA kernels are built for, such as 9.0a; builds elsewhere have to ask for it"
    )
    threads: int = Field(description="CPU threads that both sides run with; 0 where the device is a GPU")
    copy_gbps: float | None = None
    peaks: Peaks
    chip: ChipResult = ChipResult()
    features: list[str] = Field(description="what a kernel's author should know of it, in words: caches, SMs, rates")
    compiles_beside: bool = Field(
        default=False, description="whether cores are left to time modes of torch.compile while other calls go on"
    )


class LaunchResult(BaseModel):
    """A kernel, copy or fill, and the microseconds that its launches take in a call."""

    name: str
    us: float
    launches: int


class BaselineResult(BaseModel):
    """PyTorch's own time; `speedup` is against eager."""

    name: str
    timing: Timing
    speedup: Interval | None = None
    kernels: list[str] = Field(
        default=[],
        description="what torch.compile launches, in order: kernels named after what they fuse, library calls",
    )
    launches: list[LaunchResult] = Field(
        default=[], description="the longest of what a profiled call launches, in order"
    )
    launches_left_out: LaunchResult | None = Field(default=None, description="all others")


class ModuleCheck(BaseModel):
    """One thing that was tried of a module; `ok` is null where it cannot be tried."""

    name: str
    ok: bool | None
    why: str = ""


class ModuleResult(BaseModel):
    """What was tried of a module alone, in order: builds, agrees (with the original, within 1 %), state_dict, to
    (another device and back), cuda_graph, second_gpu, compile (fullgraph). After a failed build nothing else is."""

    checks: list[ModuleCheck]
    torch: str
    seconds: float


class PrecisionResult(BaseModel):
    """How exact a float output has to be, and what its reference errs."""

    output: str
    inputs: Inputs
    unit: float = Field(description="one unit of error of the whole output, in the output's own values")
    rms: float = Field(description="root mean square of the output")
    reference: float = Field(description="largest error of the reference as it runs, in units")
    allowed: float = Field(description="units that pass")


class WayResult(BaseModel):
    """A way to compute the problem's float32 products."""

    name: str
    products: dict[str, int] = Field(description="how many of which format")
    error: float | None = Field(description="the largest predicted error, in units; null where values are out of range")
    fits: Literal["inside", "near", "outside"] = Field(description="near: within a factor of two of what is allowed")
    limit_us: float | None = Field(description="what no kernel by it goes below")
    output: str = Field(default="", description="the output that decides")
    inputs: Inputs = "as drawn"
    errors: dict[str, float | None] = Field(default={}, description="by output")


class DescribeResult(BaseModel):
    """What a problem is and costs, as PyTorch runs it."""

    problem_id: str
    target: str
    device: DeviceResult
    graph_uri: str | None = Field(description="resource that holds the whole traced graph as JSON")
    graph_error: str | None = Field(description="why the module could not be traced")
    contract_uri: str | None = Field(
        default=None, description="resource that holds, as JSON, what the problem's calls take and give"
    )
    graph: list[str] = Field(default=[], description="the traced graph in short, a node a line; all of it: graph_uri")
    arithmetic: Arithmetic | None = Field(
        default=None,
        description="the arithmetic that shows in the reference's own error: `tf32` where torch lets cuDNN use it for "
        "float32, and a kernel may as well; null where nothing but integers comes out",
    )
    precision: list[PrecisionResult] = []
    ways: list[WayResult] = Field(default=[], description="where a GPU's float32 products can be computed otherwise")
    operators: list[str]
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    parameters: list[dict[str, Any]]
    left_out: dict[str, int] = Field(default={}, description="how many of a list above are only in graph_uri")
    flops: float = Field(
        description="operations: matrix products and convolutions counted, one an element for the rest"
    )
    bytes: float = Field(description="what must be read of inputs and parameters, and outputs, each once")
    moving_us: float | None = Field(default=None, description="for these bytes")
    limit_us: float = Field(description=LIMIT)
    limit_rate: str | None = Field(default=None, description="the rate behind it")
    baselines: list[BaselineResult]
    fair_baseline: str = Field(description="the fastest of the baselines, which is the one to beat")
    memory_plan: MemoryMode | None = Field(default=None, description="as in a verdict")
    unmeasured: list[str] = Field(default=[], description="modes that were not asked for, nor kept")
    untimed: dict[str, str] = Field(default={}, description="modes that are not, and why")
    notes: list[str] = []


class TargetResult(BaseModel):
    """One target and whether this machine has it; where not, why and what to do."""

    name: str
    available: bool
    device: str
    arch: str
    threads: int
    compiler: str | None
    reason: str | None
    fix: str | None


class VersionResult(BaseModel):
    """A package whose private parts are used, and the versions tried."""

    package: str
    version: str | None
    tried: str
    note: str | None


class ToolResult(BaseModel):
    """One program that the server uses."""

    name: str
    path: str | None
    version: str | None
    fix: str | None


class WallResult(BaseModel):
    """One wall around candidates: whether it stands, and how, or why not."""

    name: str
    stands: bool
    why: str
    targets: list[str] = Field(description="where that is so")


class PlaceResult(BaseModel):
    """A folder that is written to; `why`: what was passed over for it, or why it cannot be used."""

    name: str
    path: str
    usable: bool
    why: str | None
    fix: str | None


class CountersResult(BaseModel):
    """Whether ncu may read counters; `unknown` where something else stood in the way."""

    state: Literal["allowed", "denied", "unknown"]
    why: str
    fix: str | None


class GpuResult(BaseModel):
    """A GPU that is seen; `busy`: who else is at work on it."""

    index: int
    name: str
    uuid: str
    memory_bytes: float
    busy: str


class EnvironmentResult(BaseModel):
    """What this machine can measure."""

    server: str
    python: str
    torch: str | None
    versions: list[VersionResult]
    targets: list[TargetResult]
    tools: list[ToolResult]
    walls: list[WallResult] = []
    places: list[PlaceResult] = []
    counters: CountersResult | None = Field(default=None, description="only where `probe_counters` asked for it")
    host: str = ""
    gpus: list[GpuResult] = []
