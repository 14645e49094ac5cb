from types import ModuleType

import pytest

from ncu_server.worker.tracing.inductor import launched, launches

# As torch 2.11 writes it for CUDA, shortened.
CODE = """
triton_poi_fused_add_0 = async_compile.triton('triton_poi_fused_add_0', 'the source')

def call(args):
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((4, 4), (4, 1), torch.float32)
        # Topologically Sorted Source Nodes: [y], Original ATen: [aten.mm]
        extern_kernels.mm(arg0_1, arg1_1, out=buf0)
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_0.run(buf1, arg2_1, 16, stream=stream0)
        buf5 = torch.ops.aten._scaled_dot_product_flash_attention.default(buf2, buf3)
        triton_tem_fused_addmm_1.run(buf1, stream=stream0)
        buf2 = extern_kernels.convolution(buf1, arg3_1, stride=(1, 1))
"""


def test_generated_kernels_and_library_calls_are_listed_as_they_are_launched() -> None:
    assert launched(CODE) == [
        "extern_kernels.mm",
        "triton_poi_fused_add_0",
        "torch.ops.aten._scaled_dot_product_flash_attention.default",
        "triton_tem_fused_addmm_1",
        "extern_kernels.convolution",
    ]
    assert launched("import torch") == []


def test_code_that_is_no_longer_kept_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.codecache import PyCodeCache

    gone = ModuleType("gone")
    for place in ("/nowhere/gone.py", None):
        gone.__file__ = place
        monkeypatch.setattr(PyCodeCache, "modules", [gone])
        assert launches() == []
    monkeypatch.delattr(PyCodeCache, "modules")
    assert launches() == []
