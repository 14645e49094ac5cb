"""Dtypes that torch has little arithmetic for: as inputs they are sharpened, as outputs they are compared."""

import os

import pytest

from tests.support.measuring import QUICK, SCALE_ADD, Server

torch = pytest.importorskip("torch")

from ncu_server.worker import comparer, tensors  # noqa: E402
from ncu_server.worker.checking import tolerance  # noqa: E402
from ncu_server.worker.timing import input_sets  # noqa: E402
from tests.support.edits import edit  # noqa: E402

NARROW = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
COMPLEX = ["complex64", "complex128"]


def drawn(dtype: str) -> "torch.Tensor":
    made = getattr(torch, dtype)
    values = torch.randn(64, 32, generator=torch.Generator().manual_seed(1)) * 4
    return torch.view_as_complex(values.reshape(64, 16, 2)).to(made) if made.is_complex else values.to(made)


@pytest.mark.parametrize("dtype", [*NARROW, *COMPLEX, "bfloat16"])
def test_floats_of_every_width_and_complex_are_sharpened_in_their_range(dtype: str) -> None:
    before = drawn(dtype)
    (after,) = input_sets.sharper([before], torch.Generator().manual_seed(2))
    was, now = (tensors.real(t).float() for t in (before, after))
    assert after.dtype == before.dtype and after.shape == before.shape
    assert now.abs().max() <= was.abs().max() and now.abs().mean() < 0.5 * was.abs().mean()


@pytest.mark.parametrize("dtype", [*NARROW, *COMPLEX])
def test_inputs_out_of_the_drawn_range_and_without_numbers_can_be_made_of_them(dtype: str) -> None:
    (far,) = input_sets.stretched([drawn(dtype)])
    assert tensors.real(far).float().abs().max() > 16 and tolerance.finite([tensors.real(far)])
    (holed,) = input_sets.holed([drawn(dtype)], torch.Generator().manual_seed(3))
    assert not tolerance.finite([tensors.real(holed)])


def test_only_floats_of_both_signs_go_far_beyond_what_was_drawn() -> None:
    signed, positive, whole = torch.tensor([-1.0, 2.0]), torch.tensor([0.25, 1.0]), torch.tensor([-3, 3])
    far = input_sets.far([signed, positive, whole, drawn("float8_e5m2"), signed], [4])
    assert far is not None
    assert far[0].tolist() == [-32.0, 64.0] and torch.equal(far[4], signed)
    assert torch.equal(far[1], positive) and torch.equal(far[2], whole)
    assert far[3].float().abs().max() > 64


def test_where_nothing_goes_far_or_only_to_infinity_there_is_no_such_set() -> None:
    assert input_sets.far([torch.tensor([0.25, 1.0]), torch.tensor([-3, 3])], []) is None
    assert input_sets.far([torch.tensor([-1.0, 2.0])], [0]) is None
    assert input_sets.far([torch.tensor([-1.0, 3000.0]).half()], []) is None
    assert input_sets.far([torch.tensor([-1.0, -torch.inf, 2.0])], []) is None


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64", "bool", "int8"])
def test_integers_stay_as_drawn(dtype: str) -> None:
    before = (torch.arange(64) % 7).to(getattr(torch, dtype))
    assert torch.equal(input_sets.sharper([before], torch.Generator())[0], before)


@pytest.mark.parametrize("dtype", NARROW)
def test_floats_of_one_byte_have_an_error_budget(dtype: str) -> None:
    got = drawn(dtype)
    assert tolerance.finite([got])
    units = tolerance.units(got, tolerance.truth(got, got.double()))
    assert units is not None and units["levels"][0][1] > 0


def test_a_complex_number_off_in_its_imaginary_part_is_off() -> None:
    want = drawn("complex64")
    have = want.clone()
    have[3, 5] += 1j
    (result,) = compared(want, have)
    assert (result["outside"], result["index"]) == (1, (3 * 16 + 5) * 2 + 1)
    assert compared(want, want.conj().clone().conj())[0]["outside"] == 0


def compared(want: "torch.Tensor", have: "torch.Tensor") -> list[dict[str, object]]:
    """Through shared memory, as the judge sees them."""
    fds = [os.memfd_create(name) for name in ("want", "have")]
    specs = [tensors.write(fd, [tensor]) for fd, tensor in zip(fds, (want, have), strict=True)]
    try:
        return comparer.Judge().compare(fds, specs[0], specs[1], [{"grain": 0.0, "levels": [[1e308, 1e-6]]}], 64.0)
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("output", "status"),
    [("torch.complex(out, out).conj()", "passed"), ("torch.complex(out, out)", "wrong")],
)
async def test_a_complex_output_is_compared_within_the_rounding_of_its_parts(
    server: Server, output: str, status: str
) -> None:
    problem = edit(
        SCALE_ADD,
        "return x * self.scale + y + self.bias",
        "out = x * self.scale + y + self.bias\n        return torch.complex(out, -out)",
    )
    result = await server.evaluate(edit(QUICK, "return out", f"return {output}"), problem=problem)
    assert result["status"] == status, result["log"]
