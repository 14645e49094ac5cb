"""What a candidate takes of the memory, beside what the reference takes."""

from __future__ import annotations

from collections.abc import Iterator

from ncu_server.judge.candidate import TIMES, Attempt
from ncu_server.judge.input_set import InputSet
from ncu_server.wire import evaluation
from ncu_server.worker import answers

SLACK_BYTES = 32 << 20  # that a library, its threads and what a driver loads for it may take beside
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def beside(taken: answers.Memory, input_set: InputSet, attempt: Attempt) -> evaluation.Memory:
    """Both sides' on an input set."""
    reference = input_set.memory or answers.Memory(host_bytes=0, device_bytes=0)
    gpu = not attempt.prepared.target.hardware.is_host
    return evaluation.Memory(
        host_bytes=taken["host_bytes"],
        reference_host_bytes=reference["host_bytes"],
        device_bytes=taken["device_bytes"] if gpu else None,
        reference_device_bytes=reference["device_bytes"] if gpu else None,
    )


def larger(one: evaluation.Memory | None, other: evaluation.Memory) -> evaluation.Memory:
    """That of the input set for which the candidate takes more."""
    return max(filter(None, (one, other)), key=lambda m: (m.device_bytes or 0.0, m.host_bytes))


def warnings(memory: evaluation.Memory | None) -> list[str]:
    """A sentence for each kind of memory of which the candidate takes far more than the reference."""
    return list(_warnings(memory)) if memory else []


def _warnings(memory: evaluation.Memory) -> Iterator[str]:
    kinds = (
        ("host", memory.host_bytes, memory.reference_host_bytes),
        ("device", memory.device_bytes or 0.0, memory.reference_device_bytes or 0.0),
    )
    for name, taken, reference in kinds:
        if taken >= TIMES * reference and taken - reference >= SLACK_BYTES:
            beside = f"{taken / reference:.1f} times the reference's" if reference else "the reference's is"
            beside += f" {_size(reference)}"
            yield f"memory: takes {_size(taken)} of the {name}'s memory, {beside}"


def _size(count: float) -> str:
    unit, name = next(((unit, name) for unit, name in UNITS if count >= unit), (1, "bytes"))
    return f"{count / unit:.3g} {name}"
