"""What single calls launch, and how long it takes."""

import pytest
import torch

from ncu_server.worker.timing.devices import Cpu
from ncu_server.worker.tracing.launch_times import CALLS, launch_times, outermost, summed

SPANS = [
    [("mm", 0.0, 4.0), ("add", 5.0, 6.0), ("add", 7.0, 8.0)],
    [("mm", 10.0, 16.0), ("add", 17.0, 18.0), ("add", 19.0, 21.0)],
    [("add", 37.0, 37.5), ("mm", 30.0, 35.0), ("add", 38.0, 38.5)],
]


def test_launches_of_one_name_are_summed_and_the_quietest_call_counts() -> None:
    assert summed(SPANS) == [
        {"name": "mm", "us": 4.0, "launches": 1},
        {"name": "add", "us": 1.0, "launches": 2},
    ]
    assert summed([]) == []


def test_what_lies_in_another_is_no_launch_of_its_own() -> None:
    spans = [("aten::t", 0.0, 1.0), ("aten::mm", 2.0, 9.0), ("aten::empty", 2.0, 3.0), ("aten::copy_", 9.0, 10.0)]
    assert [name for name, _, _ in outermost(spans)] == ["aten::t", "aten::mm", "aten::copy_"]


def test_each_call_begins_with_what_it_changes_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(torch.get_num_threads()))
    total, seen = torch.zeros(1), []

    def call() -> torch.Tensor:
        seen.append(total.item())
        return torch.cat([total.add_(1.0), total])

    found = launch_times(call, Cpu(), total.zero_)
    assert [row["name"] for row in found] == ["aten::item", "aten::add_", "aten::cat"] and seen == [0.0] * CALLS


@pytest.mark.gpu
def test_on_a_gpu_kernels_have_their_own_names_and_times() -> None:
    from ncu_server.worker.timing.devices import Cuda

    x = torch.randn(4096, 4096, device="cuda")
    found = launch_times(lambda: torch.mm(x, x).add_(x).add_(x), Cuda(), lambda: None)
    product, added = found
    assert "elementwise" in added["name"] and added["launches"] == 2
    assert product["us"] > added["us"] > 10 and not any("spin" in one["name"] for one in found)
