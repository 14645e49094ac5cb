"""The digests of reports that were recorded on a GPU by benchmarks.diseases, read with NVIDIA's own reader."""

import lzma
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.diseases import DISEASES, Disease
from ncu_server.machine import toolkit
from ncu_server.profiler.digest import digest
from ncu_server.profiler.facts import ReportFacts
from ncu_server.profiler.render import longest
from ncu_server.profiler.reports import open_report
from tests.support.paths import NSIGHT, ROOT

RECORDED = NSIGHT / "recorded"

INLINED = ("instruction_cache", "inlined_header")
"""What is to blame was inlined, which without nvdisasm is told at the line that calls it."""


needs_reader = pytest.mark.skipif(find_spec("ncu_report") is None, reason="needs the package ncu-report")
READ = """
import sys
from ncu_server.profiler.report_reader import main
options, files = sys.argv[1].split(), sys.argv[2:]
for file in files:
    main([*options, file])
    print()
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The recorded reports by the name of their disease."""
    place = tmp_path_factory.mktemp("reports")
    for packed in RECORDED.iterdir():
        (place / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    return {path.name.split(".")[0]: path for path in place.iterdir()}


@pytest.fixture(scope="module")
def facts(reports: dict[str, Path]) -> dict[str, ReportFacts]:
    """What one process reads off all of them: to load the reader takes a second."""
    nvdisasm = toolkit.there_is("nvdisasm")
    options = f"--nvdisasm {nvdisasm}" if nvdisasm else ""
    command = [sys.executable, "-c", READ, options, *map(str, reports.values())]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    rows = map(ReportFacts.model_validate_json, done.stdout.splitlines())
    return dict(zip(reports, rows, strict=True))


@needs_reader
@pytest.mark.parametrize("disease", DISEASES, ids=lambda disease: disease.name)
def test_a_recorded_report_names_the_disease_and_the_line(disease: Disease, facts: dict[str, ReportFacts]) -> None:
    if disease.name in INLINED and not toolkit.there_is("nvdisasm"):
        pytest.skip("needs nvdisasm")
    kernels = facts[disease.name].kernels
    found = digest(kernels[longest(kernels)], source=disease.candidate)
    assert disease.faults(found.model_dump(mode="json")) == []
    assert found.hot_lines[0].file and not found.missing


@needs_reader
async def test_a_report_is_opened_in_a_process_of_its_own(
    reports: dict[str, Path], facts: dict[str, ReportFacts]
) -> None:
    found, writer = await open_report(reports["healthy"])
    assert writer and found == facts["healthy"]


def test_each_recorded_report_is_of_a_kernel_that_can_be_profiled_again() -> None:
    assert {path.name.split(".")[0] for path in RECORDED.iterdir()} <= {disease.name for disease in DISEASES}
