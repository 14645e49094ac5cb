"""What a device does all the time, by what calls tell of themselves."""

from __future__ import annotations

from kernel_agent.bench.occupancy import Occupancy
from kernel_agent.interfaces import Stage, ignore
from kernel_agent.run.devices import as_json, since, total
from kernel_agent.run.occupancy import DeviceTime


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


def test_a_device_is_busy_while_a_call_holds_it_and_else_waits() -> None:
    clock = Clock()
    occupancy = Occupancy(clock)
    clock.passes(100)  # before it is open
    occupancy.open(True)
    clock.passes(1)
    with occupancy.call(ignore) as first, occupancy.call(ignore) as second:
        clock.passes(2)
        first(Stage("building", at="building"))
        clock.passes(4)
        second(Stage("timing", at="device"))
        clock.passes(8)
        second(Stage("attributing"))  # a word without a stage changes nothing
        clock.passes(16)
        second(Stage("queued behind 1", 1, "waiting"))
        first(Stage("queued behind 1", 1, "waiting"))
        clock.passes(32)
    clock.passes(64)
    occupancy.open(False)
    clock.passes(1000)
    read = occupancy.read()
    assert (read.busy_s, read.waited_s) == (24, {"building": 4, "preparing": 2, "waiting": 32, "proposer": 65})
    assert read.seconds == 127 and as_json(read)["busy_share"] == round(24 / 127, 4)


def test_what_is_told_is_passed_on_and_a_call_that_fails_ends() -> None:
    clock, told = Clock(), list[Stage]()
    occupancy = Occupancy(clock)
    occupancy.open(True)
    try:
        with occupancy.call(told.append) as hear:
            hear(Stage("timing", at="device"))
            clock.passes(3)
            raise ValueError
    except ValueError:
        clock.passes(5)
    assert told == [Stage("timing", at="device")]
    assert (occupancy.read().busy_s, occupancy.read().waited_s) == (3, {"proposer": 5})


def test_a_device_is_named_by_the_last_who_told_of_it() -> None:
    occupancy = Occupancy(Clock())
    occupancy.seen_on("H200", "GPU-1", "a")
    occupancy.seen_on("", None, None)
    assert occupancy.read() == DeviceTime("H200", "GPU-1", "a", 0.0, {})


def test_readings_are_subtracted_in_order_and_summed_by_device() -> None:
    one = DeviceTime("H200", "GPU-1", "a", 1.0, {"proposer": 2.0})
    later = DeviceTime("H200", "GPU-1", "a", 4.0, {"proposer": 2.5, "building": 1.0})
    other = DeviceTime("H200", "GPU-2", "a", 5.0)
    assert since([later, other], [one]) == (
        DeviceTime("H200", "GPU-1", "a", 3.0, {"proposer": 0.5, "building": 1.0}),
        other,
    )
    assert total([one, other, one]) == (DeviceTime("H200", "GPU-1", "a", 2.0, {"proposer": 4.0}), other)
