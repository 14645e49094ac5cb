"""Device memory that processes share by descriptor, on a machine that has a device (`-m gpu`)."""

import os
import subprocess
import sys

import pytest
import torch

from ncu_server.worker import device_memory
from ncu_server.worker.driver import DriverError

pytestmark = pytest.mark.gpu
SIZE = 5_000_000
OTHER = """
import sys
from ncu_server.worker import device_memory
room = device_memory.opened(int(sys.argv[1]), 5_000_000)
print(int(room[0]), int(room[-1]))
room.fill_(9)
"""


def test_another_process_maps_what_a_descriptor_stands_for() -> None:
    descriptor, room = device_memory.make(SIZE)
    room.fill_(7)
    torch.cuda.synchronize()
    command = [sys.executable, "-c", OTHER, str(descriptor)]
    done = subprocess.run(command, pass_fds=[descriptor], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), int(room[12]), device_memory.is_shared(descriptor)) == (["7", "7"], 9, True)
    os.close(descriptor)


def test_memory_goes_with_its_last_descriptor_and_mapping() -> None:
    torch.cuda.init()
    before = torch.cuda.mem_get_info()[0]
    descriptor, room = device_memory.make(1 << 30)
    os.close(descriptor)
    assert torch.cuda.mem_get_info()[0] <= before - (1 << 30)
    del room
    assert torch.cuda.mem_get_info()[0] > before - (1 << 30)


def test_a_mapping_is_no_larger_than_its_memory() -> None:
    descriptor, _ = device_memory.make(100)
    with pytest.raises(DriverError):
        device_memory.opened(descriptor, SIZE)
    os.close(descriptor)


def test_more_than_the_device_has_is_torchs_own_fault() -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError, match="out of memory"):
        device_memory.make(torch.cuda.get_device_properties(0).total_memory + 1)
