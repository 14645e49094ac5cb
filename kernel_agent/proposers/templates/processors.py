"""What blocks find on a GPU, as NVIDIA's CUDA Programming Guide has it ("Compute Capabilities")."""

from __future__ import annotations

from kernel_agent.run.types import Device

PROCESSORS = 132  # multiprocessors that a large device has: what fills them fills a smaller one
SHARED = {80: 163 << 10, 87: 163 << 10, 90: 227 << 10, 100: 227 << 10, 103: 227 << 10}  # by sm
LEAST = 99 << 10  # of all others from sm_86 on


def shared_bytes(device: Device) -> int:
    """Bytes of shared memory that a block may have."""
    digits = device.arch.removeprefix("sm_").rstrip("af")
    return SHARED.get(int(digits), LEAST) if digits.isdigit() else LEAST
