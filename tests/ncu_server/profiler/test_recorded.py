"""The digests of reports that were recorded on a GPU by benchmarks.profiling, read with NVIDIA's own reader."""

import lzma
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.diseases import DISEASES, Disease
from ncu_server.profiler.digest import digest
from ncu_server.profiler.render import longest
from ncu_server.profiler.reports import open_report
from tests.support.paths import NSIGHT

RECORDED = NSIGHT / "recorded"


@pytest.mark.skipif(find_spec("ncu_report") is None, reason="needs the package ncu-report")
@pytest.mark.parametrize("disease", DISEASES, ids=lambda disease: disease.name)
async def test_a_recorded_report_names_the_disease_and_the_line(disease: Disease, tmp_path: Path) -> None:
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(lzma.decompress((RECORDED / f"{disease.name}.ncu-rep.xz").read_bytes()))
    facts, writer = await open_report(report)
    found = digest(facts.kernels[longest(facts.kernels)], source=disease.candidate)
    troubles = {finding.trouble: finding for finding in found.findings}
    assert writer and found.bound in disease.bounds
    assert (disease.trouble in troubles) if disease.trouble else not troubles
    if disease.line and disease.trouble:
        place = troubles[disease.trouble].place
        assert place and place.candidate_line == disease.line
