"""The reference in full float32: which switches are off inside, and that all are as they were afterwards."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ncu_server.worker.checking.full_float32 import HOLDERS, Switches, Watch, _holder, full_float32  # noqa: E402


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    held = Switches.read()
    yield
    held.restore()


def seen() -> list[str]:
    return [_holder(name).fp32_precision for name in HOLDERS]


def as_torch_has_it() -> None:
    pass


def older() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = False


def coarse() -> None:
    torch.set_float32_matmul_precision("medium")


def one_for_all() -> None:
    torch.backends.fp32_precision = "tf32"


def one_by_one() -> None:
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    torch.backends.cudnn.rnn.fp32_precision = "tf32"
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"


@pytest.mark.parametrize("change", [as_torch_has_it, older, coarse, one_for_all, one_by_one])
def test_switches_are_off_inside_and_as_they_were_afterwards(change: Callable[[], None]) -> None:
    change()
    before, held = seen(), Switches.read()
    assert seen() == before, "to ask changes nothing"
    with full_float32() as full:
        assert seen() == ["ieee"] * len(HOLDERS)
        assert not torch.backends.cuda.matmul.allow_tf32 and torch.get_float32_matmul_precision() == "highest"
    assert full == [True]
    assert seen() == before and Switches.read() == held
    torch.backends.fp32_precision = "ieee"  # a holder that asked the one above it still does
    assert [_holder(name).fp32_precision for name, own in held.own.items() if own == "none"].count("ieee") >= 2


def test_switches_are_as_they_were_after_a_fault() -> None:
    before = seen()
    with pytest.raises(ZeroDivisionError), full_float32():
        _ = 1 / 0
    assert seen() == before


def test_a_model_that_moves_a_switch_by_itself_is_found_out() -> None:
    before = seen()
    with full_float32() as full:
        torch.backends.cudnn.allow_tf32 = True
    assert full == [False] and seen() == before


def test_autocast_does_nothing_inside_and_works_afterwards() -> None:
    a = torch.ones(4, 4)

    def product() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (a @ a).dtype

    with torch.autocast("cpu", dtype=torch.bfloat16), full_float32():
        assert product() is torch.float32
        assert torch.autocast("cpu", dtype=torch.bfloat16)(product)() is torch.float32
    assert product() is torch.bfloat16


def watched(call: Callable[[], Any], device: str = "cpu") -> Watch:
    watch = Watch(device)
    with watch.watching():
        call()
    return watch


def half() -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.nn.functional.linear(torch.ones(2, 300), torch.ones(5, 300))


@pytest.mark.parametrize(
    ("call", "device", "length", "narrow"),
    [
        (lambda: torch.ones(3, 70000).sum(1), "cpu", 70000, None),
        (lambda: torch.ones(3, 70000).mean(), "cuda", 210000, None),
        (lambda: torch.nn.functional.conv2d(torch.ones(1, 8, 9, 9), torch.ones(4, 4, 3, 3), groups=2), "cpu", 36, None),
        (lambda: torch.nn.functional.conv2d(torch.ones(1, 8, 9, 9), torch.ones(4, 8, 3, 3)), "cuda", 72, "tf32"),
        (lambda: torch.conv1d(torch.ones(1, 8, 9).bfloat16(), torch.ones(4, 8, 3).bfloat16()), "cuda", 24, None),
        (lambda: torch.ones(4, 300) @ torch.ones(300, 5), "cuda", 300, None),
        (lambda: torch.ones(5, 77).softmax(1), "cpu", 77, None),
        (lambda: torch.nn.functional.layer_norm(torch.ones(4, 300), (300,)), "cpu", 300, None),
        (half, "cuda", 300, "bf16"),
    ],
)
def test_a_call_shows_its_longest_sum_and_what_products_may_be_narrower(
    call: Callable[[], Any], device: str, length: int, narrow: str | None
) -> None:
    watch = watched(call, device)
    assert (watch.length, watch.narrow) == (length, narrow)


def test_a_switch_of_the_problem_s_own_counts() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    assert watched(lambda: torch.ones(4, 300) @ torch.ones(300, 5), "cuda").narrow == "tf32"


def test_terms_of_either_sign_are_told_from_such_of_one() -> None:
    x = torch.randn(64, 5000, generator=torch.Generator().manual_seed(1))
    assert watched(lambda: x.mean(1)).mixed == pytest.approx(1, abs=0.5)
    assert watched(lambda: x.abs().sum(1)).mixed < 1e-3


def test_the_largest_product_of_a_call_is_told_with_its_operands() -> None:
    generator = torch.Generator().manual_seed(1)
    small, a, b = (torch.randn(*shape, generator=generator) for shape in ((4, 8), (64, 300), (300, 128)))
    watch = watched(lambda: (small @ small.T, torch.addmm(torch.zeros(128), a, 8 * b), small @ small.T))
    assert watch.product is not None
    (one, other), mixed = watch.product["operands"], watch.product["mixed"]
    assert (watch.product["terms"], mixed) == (300, pytest.approx(1, abs=0.1))
    assert (one["rms"], other["rms"]) == (pytest.approx(1, abs=0.1), pytest.approx(8, abs=0.8))
    assert other["largest"] == float(8 * b.abs().max())
    rows = a.abs().amax(1).square().mean().sqrt() / a.square().mean().sqrt()
    assert one["peak"] == pytest.approx(float(rows), rel=1e-4)
    same = watched(lambda: torch.rand(64, 300, generator=generator) @ torch.rand(300, 128, generator=generator)).product
    assert same is not None and same["mixed"] < 0.01


def test_a_convolution_is_a_product_and_half_precision_or_none_is_not() -> None:
    x, w = torch.randn(2, 8, 9, 9), torch.randn(4, 8, 3, 3)
    found = watched(lambda: torch.nn.functional.conv2d(x, w)).product
    assert found is not None and found["terms"] == 72
    assert found["operands"][0]["peak"] == pytest.approx(float(x.abs().max() / x.square().mean().sqrt()), rel=1e-4)
    assert watched(lambda: x.relu()).product is None
    assert watched(lambda: torch.nn.functional.conv2d(x.bfloat16(), w.bfloat16())).product is None


@pytest.mark.gpu
def test_a_convolution_errs_less_in_full_float32_than_as_torch_runs_it() -> None:
    generator = torch.Generator("cuda").manual_seed(1)
    x, w = (torch.randn(*shape, device="cuda", generator=generator) for shape in ((8, 64, 32, 32), (64, 64, 3, 3)))
    exact = torch.conv2d(x.double(), w.double())
    runs = torch.conv2d(x, w)
    before = seen()
    with full_float32():
        full = torch.conv2d(x, w)
    assert seen() == before and torch.equal(torch.conv2d(x, w), runs)
    own, ran = ((one - exact).abs().max() for one in (full, runs))
    assert ran > 64 * own
