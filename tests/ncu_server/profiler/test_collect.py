"""A run of ncu, by a stand-in, and the device that it is alone on."""

from pathlib import Path

import pytest

from ncu_server.machine.lease import Lease
from ncu_server.profiler import collect, ncu, reports
from ncu_server.profiler.facts import ReportFacts
from ncu_server.sandbox.supervisor import Supervisor
from tests.support.nsight import HERE


async def told(message: str, ahead: int = 0) -> None:
    assert not ahead, message


async def test_the_device_is_free_while_a_report_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(HERE / "bin"), prepend=":")
    monkeypatch.syspath_prepend(str(HERE / "reader"))
    lease, read = Lease(1), reports.open_report

    async def reading(report: Path) -> tuple[ReportFacts, str | None]:
        async with lease.alone(told):
            return await read(report)

    monkeypatch.setattr(reports, "open_report", reading)
    line = ("/bin/true", "launches")
    got = await collect.collect(Supervisor(), lease, ncu.Selection(), line, tmp_path, True, 60.0, told)
    assert got.kernels and got.heard.connected
