"""For all tests: signals as a person's shell leaves them, whatever started pytest (nohup and `&` have some ignored);
device queues of their own, so that no server of this machine is waited for; no experience but a test's own."""

import os
import signal
import tempfile
from pathlib import Path

import pytest

from tests.support.fast import Guard, is_fast

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
LEASES = tempfile.TemporaryDirectory(prefix="leases-")
os.environ["NCU_SERVER_LEASES"] = LEASES.name
DATA = tempfile.TemporaryDirectory(prefix="data-")
os.environ["XDG_DATA_HOME"] = DATA.name


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Guard())


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_fast(item.path, getattr(item, "originalname", item.name)):
        item.add_marker("fast")


@pytest.fixture(autouse=True)
def inexperienced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def whole_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    """tvm_ffi builds for sm_90, which has no wgmma; sm_90a has."""
    import torch

    major, minor = torch.cuda.get_device_capability()
    monkeypatch.setenv("TVM_FFI_CUDA_ARCH_LIST", f"{major}.{minor}{'a' if major >= 9 else ''}")
