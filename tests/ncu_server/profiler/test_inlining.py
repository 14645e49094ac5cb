"""The line of the kernel's own file that an inlined instruction comes from."""

import lzma

import pytest

from ncu_server.machine import toolkit
from ncu_server.profiler.inlining import callers, callers_in, cubins
from tests.support.paths import NSIGHT

LISTING = """
\t.section\t.text._Z4sumsPKfPf,"ax",@progbits
\t//## File "/b/k.cu", line 7
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/cuda/fp16.hpp", line 90 inlined at "/cuda/fp16.hpp", line 40
\t//## File "/cuda/fp16.hpp", line 40 inlined at "/b/k.cu", line 12
\t//## File "/b/k.cu", line 12 inlined at "/b/k.cu", line 30
\t//## File "/b/k.cu", line 30
        /*0010*/                   HFMA2 R2, R2, R3, R4 ;
        /*0020*/              @!P0 BRA `(.L_x_3) ;
.L_x_3:
\t//## File "/b/k.cu", line 12 inlined at "/b/k.cu", line 30
\t//## File "/b/k.cu", line 30
        /*0030*/                   EXIT ;
\t.section\t.text.other,"ax",@progbits
        /*0000*/                   EXIT ;
"""


def test_what_was_inlined_is_of_the_innermost_line_of_the_kernel_s_file() -> None:
    found = callers_in(LISTING)
    assert found == {"_Z4sumsPKfPf": dict.fromkeys((0x10, 0x20, 0x30), ("/b/k.cu", 12)), "other": {}}


def test_the_cubin_of_a_recorded_report_is_found_and_listed() -> None:
    report = lzma.decompress((NSIGHT / "recorded" / "healthy.ncu-rep.xz").read_bytes())
    (cubin,) = cubins(report)
    assert b".debug_line" in cubin and b".text._Z5scalePK6float4PS_l" in cubin
    if nvdisasm := toolkit.there_is("nvdisasm"):
        assert callers(report, nvdisasm) == {"_Z5scalePK6float4PS_l": {}}


@pytest.mark.parametrize("report", [b"", b"\x7fELF\x02", b"\x7fELF\x02" + bytes(80), b"\x7fELF\x02" + b"\xff" * 80])
def test_what_is_no_cubin_is_passed_over(report: bytes) -> None:
    assert list(cubins(report)) == []
