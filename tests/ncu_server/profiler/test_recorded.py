"""The digests of reports that were recorded on a GPU by benchmarks.diseases, read with NVIDIA's own reader."""

import lzma
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.diseases import DISEASES, Disease
from ncu_server.machine import toolkit
from ncu_server.profiler.digest import digest
from ncu_server.profiler.render import longest
from ncu_server.profiler.reports import open_report
from tests.support.paths import NSIGHT

RECORDED = NSIGHT / "recorded"

INLINED = ("instruction_cache", "inlined_header")
"""What is to blame was inlined, which without nvdisasm is told at the line that calls it."""


@pytest.mark.skipif(find_spec("ncu_report") is None, reason="needs the package ncu-report")
@pytest.mark.parametrize("disease", DISEASES, ids=lambda disease: disease.name)
async def test_a_recorded_report_names_the_disease_and_the_line(disease: Disease, tmp_path: Path) -> None:
    if disease.name in INLINED and not toolkit.there_is("nvdisasm"):
        pytest.skip("needs nvdisasm")
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(lzma.decompress((RECORDED / f"{disease.name}.ncu-rep.xz").read_bytes()))
    facts, writer = await open_report(report)
    found = digest(facts.kernels[longest(facts.kernels)], source=disease.candidate)
    assert writer and disease.faults(found.model_dump(mode="json")) == []
    assert found.hot_lines[0].file and not found.missing


def test_each_recorded_report_is_of_a_kernel_that_can_be_profiled_again() -> None:
    assert {path.name.split(".")[0] for path in RECORDED.iterdir()} <= {disease.name for disease in DISEASES}
