"""What the server measured beside times: of a GPU, and of what PyTorch launches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """What plans for a GPU hang on: its SMs, how many clusters of 2, 4 and 8 blocks fit at once with an SM for each
    block, nanoseconds of a read of idle memory, MHz of the SMs under a load of the tensor cores."""

    sms: int | None = None
    clusters: tuple[int, ...] = ()
    latency_ns: float | None = None
    tensor_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel, copy or fill of PyTorch's, and the microseconds that its launches take in a call."""

    name: str
    us: float
    launches: int
