"""The device's facts that plans hang on, told where a plan hangs on them."""

from dataclasses import replace

import pytest

from kernel_agent.prompts.chip import chip_facts
from kernel_agent.run.measured import Chip
from kernel_agent.run.types import JSON, Description, Device, Problem, Timing

CHIP = Chip(sms=132, clusters=(66, 32, 16), latency_ns=600.0, tensor_mhz=1410.0)


def known(operator: str, bytes_us: float, target: str = "cuda", arch: str = "sm_90", chip: Chip = CHIP) -> Description:
    """A module of one operator whose limit is 100 us and whose bytes take `bytes_us` of it."""
    node = {"name": "y", "op": f"aten.{operator}.default", "args": [], "kwargs": {}, "outputs": []}
    graph: JSON = {"inputs": [], "parameters": [], "nodes": [node], "outputs": ["y"]}
    device = Device(target, "a GPU", arch, 0, 3000.0, chip=chip)
    timing = Timing(200.0, 199.0, 201.0, 20)
    return Description(device, graph, None, 1e9, bytes_us * 3e6, 100.0, {"eager": timing})


def told(description: Description) -> list[str]:
    return list(chip_facts(Problem("p", "", description.device.target), description))


def test_a_product_is_told_the_clock_and_the_clusters_that_fit() -> None:
    assert told(known("mm", 10.0)) == [
        "registers come by 8 a thread; a block's shared memory costs 1 KiB more",
        "the SMs' clock under a load of the tensor cores: 1,410 MHz",
        "clusters that run at once, an SM a block: 66 of 2, 32 of 4, 16 of 8",
    ]


def test_what_memory_bounds_is_told_the_bytes_in_flight_by_littles_law() -> None:
    units, _, flight, clusters = told(known("softmax", 100.0))
    assert units == "an SM's results a cycle: 128 FMA, 64 integer, 16 ex2, lg2, rcp, rsqrt, sin, tanh"
    assert pytest.approx(13.3, abs=0.05) == 3000e9 * 600e-9 / 132 / 1024
    assert flight.startswith("a read of idle memory takes 600 ns: for a copy's rate an SM needs 13 KiB in flight")
    assert not [row for row in told(known("mm", 10.0)) if "in flight" in row]
    assert clusters.startswith("clusters that run at once") and len(told(known("exp", 100.0))) == 3


def test_what_nothing_hangs_on_or_nobody_knows_is_not_told() -> None:
    assert len(told(known("add", 100.0))) == 2, "no special functions"
    assert told(known("add", 100.0, chip=Chip()))[0].startswith("registers come")
    assert told(known("mm", 100.0, arch="sm_75", chip=Chip())) == []
    assert told(replace(known("softmax", 100.0), device=Device("cpu", "a CPU", "x86_64", 4, 20.0))) == []
    triton = told(known("mm", 10.0, target="triton"))
    assert triton == ["the SMs' clock under a load of the tensor cores: 1,410 MHz"]


@pytest.mark.parametrize(("arch", "fma"), [("sm_80", 64), ("sm_89", 128), ("sm_90", 128)])
def test_published_rates_are_those_of_the_architecture(arch: str, fma: int) -> None:
    assert f"{fma} FMA, 64 integer, 16 ex2" in told(known("exp", 100.0, arch=arch))[0]
