"""Labels from what a profiler may have seen, and whose a kernel is by its name."""

from typing import Any

import pytest
import torch

from ncu_server.rules.authorship import Ownership, attribute, replaces, settle, unsettled, vendors
from ncu_server.targets import TARGETS
from ncu_server.worker.authorship.instrument import Own, Watch
from ncu_server.worker.authorship.profile import dependence, elements_of, join, profile_calls

CPU, CUDA = (TARGETS[name].hardware.evidence for name in ("cpu", "cuda"))
OWN = Ownership("", images=(b"..\0_ZN2my4gemmEPKf\0_Z4k_mmPKfS0_\0plain\0",))


def seen(**what: Any) -> dict[str, Any]:
    return {
        "calls": 10,
        "ops": {},
        "kernels": {},
        "own_us": 0.0,
        "own_ops_us": 0.0,
        "own_started": 0,
        "own_done": 0,
        "outside_us": 0.0,
        "overhead": {},
        "tiny_elements": 0.0,
    } | what


@pytest.mark.parametrize(
    ("own", "foreign", "label"),
    [(9600, 400, "custom"), (9400, 600, "hybrid"), (600, 9400, "hybrid"), (400, 9600, "library"), (0, 1, "library")],
)
def test_the_label_follows_the_share_of_computing_time(own: float, foreign: float, label: str) -> None:
    host = seen(ops={"aten::mm": foreign, "aten::copy_": 99999.0}, own_us=own, own_started=10, own_done=10)
    device = seen(kernels={"k_mm(float const*)": own, "ampere_sgemm_128x64_nn": foreign})
    assert attribute(host, CPU, OWN).label == label
    assert attribute(device, CUDA, OWN).label == label


TAIL = {"ampere_sgemm_128x64_nn": 9500.0, "void at::native::vectorized_elementwise_kernel<4, relu>()": 300.0}


@pytest.mark.parametrize(
    ("kernels", "replaced"),
    [
        ({"ampere_sgemm_128x64_nn": 9600.0, "k_mm(float)": 200.0}, True),
        ({**TAIL, "k_mm(float)": 200.0}, False),  # beside all of the reference
        ({"cutlass::gemm_relu": 8000.0, "k_mm(float)": 200.0}, False),  # behind another library's function
        ({"ampere_sgemm_128x64_nn": 19000.0, "k_mm(float)": 200.0}, False),  # behind twice the library's work
        ({"ampere_sgemm_128x64_nn": 9600.0}, False),  # with nothing of its own
        ({"ampere_sgemm_128x64_nn": 9500.0, "k_mm(float)": 900.0}, False),  # slower than what is gone by far
    ],
)
def test_a_small_tail_counts_where_the_rest_is_as_in_the_reference(kernels: dict[str, float], replaced: bool) -> None:
    reference = seen(kernels=TAIL)
    assert replaces(seen(kernels=kernels), reference, OWN) == replaced
    host = {f"aten::{name.split('(')[0][:8]}": us for name, us in kernels.items() if "k_mm" not in name}
    own = {"own_us": kernels.get("k_mm(float)", 0.0), "own_started": 10, "own_done": 10}
    whole = {f"aten::{name.split('(')[0][:8]}": us for name, us in TAIL.items()}
    assert replaces(seen(ops=host, **own), seen(ops=whole), OWN) == replaced


def test_a_tail_beside_vendor_functions_of_its_own_does_not_count() -> None:
    kernels = {"ampere_sgemm_128x64_nn": 9600.0, "k_mm(float)": 200.0}
    assert not replaces(seen(kernels=kernels), seen(kernels=TAIL), Ownership("", OWN.images, vendor=("cblas_sgemm",)))


def test_no_foreign_computing_is_custom_whatever_the_clock_says() -> None:
    assert attribute(seen(ops={"aten::empty": 500.0, "aten::copy_": 500.0}), CPU, OWN).label == "custom"
    assert attribute(seen(kernels={"Memcpy DtoD": 500.0, "k_mm(float)": 1.0}), CUDA, OWN).label == "custom"


def test_computing_on_the_host_behind_a_decoy_on_the_device_is_foreign() -> None:
    kernels = {"k_mm(float)": 20.0, "Memcpy DtoH": 900.0}
    assert attribute(seen(kernels=kernels, ops={"aten::mm": 50000.0}), CUDA, OWN).label == "library"
    assert attribute(seen(kernels=kernels, ops={"aten::mul": 50.0}), CUDA, OWN).label == "custom"


def test_where_the_device_cannot_be_traced_the_output_decides() -> None:
    author = attribute(seen(ops={"aten::mm": 900.0}, own_us=9.0, own_started=10, own_done=10), CUDA, OWN)
    assert author.doubtful
    assert (settle(author, 0.0).label, settle(author, 1.0).label) == ("library", "hybrid")


def test_kernels_that_raised_do_no_work() -> None:
    failed = seen(ops={"aten::mm": 5000.0}, own_us=5000.0, own_started=10, own_done=0, outside_us=9000.0)
    assert attribute(failed, CPU, OWN).label == "library"


def test_kernels_that_could_not_be_watched_count_by_the_time_outside_torch() -> None:
    assert attribute(seen(ops={"aten::relu": 900.0}, outside_us=9000.0), CPU, OWN).label == "custom"
    numpy = Ownership("", numeric=("numpy",))
    assert attribute(seen(outside_us=9000.0), CPU, numpy).label == "library"


def test_registered_operators_are_its_own_unless_numpy_may_hide_in_them() -> None:
    mixed = seen(ops={"mkl::_mkl_linear": 9e3}, own_ops_us=9e4)
    assert attribute(mixed, CPU, OWN).label == "hybrid"
    assert attribute(seen(own_ops_us=9e4), CPU, OWN).label == "custom"
    assert attribute(seen(own_ops_us=9e4), CPU, Ownership("", numeric=("numpy",))).label == "library"


def test_what_numpy_does_unseen_is_settled_by_the_output() -> None:
    author = attribute(seen(outside_us=90.0), CPU, Ownership("", numeric=("numpy",)))
    assert author.doubtful
    labels = [settle(author, decides).label for decides in (0.01, 0.5, 1.0)]
    assert labels == ["library", "hybrid", "custom"]
    assert not attribute(seen(outside_us=90.0), CPU, Ownership("")).doubtful


def share(x: torch.Tensor, full: torch.Tensor, mute: torch.Tensor, moves: bool) -> float:
    """What the kernels decide that make `full` of what is `mute` without them."""
    return dependence([full], lambda: lambda: mute, lambda outputs: None, Watch(), [x] if moves else None)


def test_what_is_left_as_it_was_is_nobodys_work_where_others_only_move_data() -> None:
    x = torch.linspace(-3, 3, 1000)
    clamped = x.clamp(max=2)
    assert share(x, clamped, x.clone(), moves=True) == 1.0
    assert share(x, clamped, x.clone(), moves=False) < 0.2
    assert share(x, torch.where(x > 2, x, 0.0), torch.zeros(1000), moves=True) == 1.0
    assert share(x, torch.where(x > 2.9, x, 0.0), torch.zeros(1000), moves=True) < 0.05  # or a mark would do
    assert share(x, x.flip(0), x.flip(0), moves=True) == share(x, x.clone(), x.clone(), moves=True) == 0.0
    assert share(x, 2 * x, 2 * x, moves=True) == 0.0
    assert share(x, 2 * x, torch.cat([3 * x[:300], 2 * x[300:]]), moves=True) == 0.3
    copied = seen(ops={"aten::copy_": 900.0}, own_us=50.0, own_started=10, own_done=10)
    assert attribute(copied, CPU, OWN).moves and attribute(copied, CPU, OWN).doubtful
    assert not attribute(copied, CPU, Ownership("", numeric=("numpy",))).moves
    assert not attribute(copied | {"ops": {"aten::relu": 9.0}}, CPU, OWN).moves


def test_two_profiles_show_most_of_others_work_and_least_of_its_own() -> None:
    first = seen(calls=4, ops={"aten::mm": 800.0}, outside_us=5.0)
    anew = seen(calls=2, ops={"aten::mm": 90.0, "aten::mul": 1.0}, own_us=900.0, own_started=2, own_done=2)
    both = join(first, anew)
    assert both["ops"] == {"aten::mm": 400.0, "aten::mul": 1.0}
    assert (both["own_us"], both["calls"]) == (10.0, 2)
    device = join(first | {"kernels": {"gemm": 8.0, "k": 2.0}}, anew | {"kernels": {"k": 9.0}})
    assert (device["kernels"], device["ops"]) == ({"gemm": 4.0, "k": 9.0}, anew["ops"])


def test_of_two_profiles_the_overhead_is_that_of_the_same_work() -> None:
    first = seen(calls=1, ops={"aten::mul_": 20.0, "aten::sin": 90.0}, overhead={"aten::mul_": 19.0})
    again = seen(calls=2, ops={"aten::mul_": 10.0, "aten::sin": 80.0}, overhead={"aten::mul_": 10.0})
    both = join(first, again)
    assert (both["ops"], both["overhead"]) == ({"aten::mul_": 40.0, "aten::sin": 180.0}, {"aten::mul_": 38.0})


@pytest.mark.parametrize(("evidence", "kind"), [(CPU, "ops"), (CUDA, "kernels")])
@pytest.mark.parametrize(("tiny", "share"), [(500.0, 1.0), (5000.0, 0.5)])
def test_what_tiny_calls_cost_whatever_they_compute_is_no_share_of_the_work(
    evidence: Any, kind: str, tiny: float, share: float
) -> None:
    rows = {"aten::mul_": 200.0, "aten::add_": 200.0} if kind == "ops" else {"at::mul": 400.0, "k_mm(float)": 400.0}
    overhead = {name: us for name, us in rows.items() if "k_mm" not in name}
    told = seen(own_us=400.0, own_started=10, own_done=10, overhead=overhead, tiny_elements=tiny, **{kind: rows})
    author = attribute(told, evidence, OWN, elements=20_000)
    assert (author.own, author.doubtful, author.moves) == (share, True, False)


def test_where_nothing_can_be_silenced_tiny_calls_count_in_full() -> None:
    unseen = seen(ops={"aten::mul_": 900.0}, overhead={"aten::mul_": 900.0}, outside_us=400.0)
    assert attribute(unseen, CPU, OWN, elements=20_000).own == attribute(unseen, CPU, OWN).own == 0.5263


def test_work_beyond_the_overhead_of_tiny_calls_is_work() -> None:
    told = seen(own_us=400.0, own_started=10, own_done=10, ops={"aten::inverse": 600.0}, tiny_elements=100.0)
    author = attribute(told | {"overhead": {"aten::inverse": 200.0}}, CPU, OWN, elements=20_000)
    assert (author.label, author.own) == ("hybrid", 0.5)


def test_behind_forgiven_calls_the_output_decides() -> None:
    alone = seen(ops={"aten::mul_": 90.0}, overhead={"aten::mul_": 90.0}, own_started=10, own_done=10)
    author = attribute(alone, CPU, OWN, elements=20_000)
    assert author.doubtful and (settle(author, 0.0).label, settle(author, 1.0).label) == ("library", "custom")


@pytest.mark.parametrize(
    ("shapes", "dtypes", "elements"),
    [
        ([[100], [], []], ["float", "double", "Scalar"], 100),
        ([[100, 1], [1, 100]], ["float", "float"], 10_000),
        ([[], []], ["long int", "Scalar"], 1),
        ([[32, 8], [8, 32]], ["float", "float"], None),
        ([[[100]], []], ["TensorList", "Scalar"], None),
        ([[], []], ["ScalarList", ""], None),
        ([], [], None),
    ],
)
def test_elements_of_an_operator_are_those_it_goes_over(
    shapes: list[Any], dtypes: list[str], elements: int | None
) -> None:
    assert elements_of(shapes, dtypes) == elements


def test_only_tiny_calls_have_their_overhead_told() -> None:
    small, large = torch.ones(100), torch.ones(100_000)

    def run() -> None:
        small.mul_(1.0).add_(small, alpha=0.0)
        large.sin()

    told = profile_calls(run, lambda: None, Watch(), launches=False)
    assert told["overhead"]["aten::add_"] == pytest.approx(min(told["ops"]["aten::add_"], 20 * 20.0))
    assert "aten::sin" not in told["overhead"]
    assert 200 <= told["tiny_elements"] <= 400


def test_a_silenced_function_answers_in_kind_and_without_values() -> None:
    watch, x = Watch(), torch.ones(2, 3)
    answers = [x + 1, x, (x.long(), 7), [x.t()], None, object(), 2.5]
    own = Own(lambda given, number: answers[number] if number != 1 else given, watch)
    for number in range(7):
        own(x, number)
    watch.silent = True
    watch.rewind()
    mute = [own(x, number) for number in range(8)]
    assert bool(mute[0].isnan().all()) and mute[0].shape == (2, 3)
    assert mute[1] is x
    assert mute[2][0].dtype is torch.int64 and mute[2][1] == 7
    assert mute[3][0].stride() == (1, 3)
    assert mute[4:] == [None, None, 2.5, None]


def test_torch_that_works_only_while_nobody_watches_is_library() -> None:
    watched = seen(own_us=9000.0, own_started=10, own_done=10)
    author = attribute(watched | {"concealed": {"aten::addmm": 180.0, "aten::empty": 900.0}}, CPU, OWN)
    assert author.label == "library"
    assert "aten::addmm" in (author.refusal(strict=False) or "")
    assert attribute(watched | {"concealed": {"aten::relu": 4.0, "aten::empty": 900.0}}, CPU, OWN).label == "custom"
    kernels = watched | {"kernels": {"k_mm(float)": 900.0}}
    assert attribute(kernels | {"concealed": {"nvjet_hsh_1": 50.0}}, CUDA, OWN).label == "library"
    assert attribute(kernels | {"concealed": {"k_mm(float)": 50.0}}, CUDA, OWN).label == "custom"


def test_a_function_asked_for_by_name_counts_like_one_that_is_linked() -> None:
    image = b"\0scipy_cblas_sgemm64_\0my_cblas_thing\0libopenblas.so\0cublasSgemm_v2\0a.sgemm_\0"
    assert vendors(("dlsym", "malloc"), image) == {"scipy_cblas_sgemm64_", "cublasSgemm_v2"}
    assert vendors(("malloc", "cblas_sgemm"), image) == {"cblas_sgemm"}


def test_a_library_that_ctypes_opens_may_do_all_that_nobody_sees() -> None:
    called = seen(own_us=900.0, own_started=10, own_done=10, outside_us=2000.0)
    assert attribute(called, CPU, OWN).label == "custom"
    author = attribute(called | {"opened": ["libopenblas.so"]}, CPU, OWN)
    assert (author.label, author.top) == ("hybrid", "libopenblas.so, outside torch and its kernels")
    assert attribute(called | {"own_us": 90.0, "opened": ["libopenblas.so"]}, CPU, OWN).label == "library"


def test_a_function_of_blas_that_ctypes_asks_for_is_told_however_short_its_call() -> None:
    short = seen(own_us=900.0, own_started=10, own_done=10) | {"named": ["scipy_cblas_sgemm64_", "plain"]}
    author = attribute(short, CPU, OWN)
    assert author.label == "hybrid" and "scipy_cblas_sgemm64_" in (author.refusal(strict=True) or "")
    mine = Ownership("", images=(b"\0sgemm_tiled\0",))
    assert attribute(short | {"named": ["sgemm_tiled"]}, CPU, mine).label == "custom"


def test_functions_of_torch_that_no_profiler_sees_count_as_a_librarys() -> None:
    hidden = "_ZN2at3cpu5addmmERKNS_6TensorES3_S3_RKN3c106ScalarES7_"
    assert vendors((hidden, "_ZN2at4_ops5empty4callEv", "_ZNK2at10TensorBase8data_ptrEv"), b"") == {hidden}


@pytest.mark.parametrize(("copied", "doubtful"), [(100.0, False), (5000.0, True)])
def test_where_torch_copies_longer_than_it_computes_the_output_decides(copied: float, doubtful: bool) -> None:
    host = attribute(seen(ops={"aten::copy_": copied}, own_us=900.0, own_started=10, own_done=10), CPU, OWN)
    device = attribute(seen(kernels={"Memcpy DtoD": copied, "k_mm(float)": 900.0}), CUDA, OWN)
    assert [(one.label, one.doubtful) for one in (host, device)] == [("custom", doubtful)] * 2
    assert settle(host, 0.0).label == "library" and settle(host, 1.0).label == "custom"


def test_short_times_are_no_evidence_and_the_output_decides() -> None:
    short = seen(ops={"aten::mm": 500.0}, own_us=500.0, own_started=10, own_done=10)
    author = attribute(short, CPU, OWN)
    assert author.doubtful
    assert (settle(author, 0.001).label, settle(author, 1.0).label) == ("library", "hybrid")


def test_what_cannot_be_made_anew_is_at_best_hybrid() -> None:
    moving = seen(ops={"aten::copy_": 5e3}, own_us=9.0, own_started=10, own_done=10)
    author = unsettled(attribute(moving, CPU, OWN), "it raises")
    assert (author.label, author.refusal(strict=False)) == ("hybrid", None)
    assert "it raises" in (author.refusal(strict=True) or "")
    little = seen(ops={"aten::mm": 1500.0}, own_us=9.0, own_started=10, own_done=10)
    assert unsettled(attribute(little, CPU, OWN), "it raises").label == "library"


def test_a_slow_decoy_shows_in_the_output_and_little_own_work_in_the_time() -> None:
    slow = attribute(seen(kernels={"k_mm(float)": 5e4, "nvjet_hsh_1": 5e4}, own_started=10, own_done=10), CUDA, OWN)
    assert (slow.label, slow.doubtful, settle(slow, 0.001).label) == ("hybrid", True, "library")
    little = attribute(seen(ops={"aten::mm": 50000.0}, own_us=500.0, own_started=10, own_done=10), CPU, OWN)
    assert (little.label, little.doubtful) == ("library", False)


def test_refusals_name_the_largest_foreign_part_and_its_share() -> None:
    author = attribute(seen(kernels={"k_mm(float)": 1e4, "nvjet_hsh_1": 3e4}), CUDA, OWN)
    assert author.refusal(strict=False) is None
    assert "nvjet_hsh_1 (75%)" in (author.refusal(strict=True) or "")


@pytest.mark.parametrize(
    ("kernel", "own"),
    [
        ("k_mm(float const*, float const*)", True),
        ("my::gemm(float const*)", True),
        ("void my::gemm<float>(float const*)", True),
        ("plain", True),
        ("whatever_jit_made(float*)", True),
        ("flash_fwd_mine", True),
        ("gemm_kernel(float*)", False),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>(int)", False),
        ("void at_cuda_detail::cub::DeviceScanKernel<int>(int)", False),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n", False),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(int)", False),
        ("nvjet_tst_128x64_64x6_1x2_h_bz_NNT", False),
        ("void gemmSN_NN_kernel<float, 256, 4>(int)", False),
        ("void cudnn::ops::nchwToNhwcKernel<float>(int)", False),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", False),
        ("triton_poi_fused_add_mul_0", False),
    ],
)
def test_a_kernel_s_owner_is_told_by_its_name(kernel: str, own: bool) -> None:
    jit = Ownership("@triton.jit\ndef flash_fwd_mine(x):\n    pass", images=OWN.images)
    assert jit.owns(kernel) == own
