"""What a timed call gets: values of its own, in the range, the order and the columns that were drawn."""

import os

import pytest
import torch

from ncu_server.worker.tensors import write
from ncu_server.worker.timing.input_sets import ordered, sharper, symmetric
from ncu_server.worker.timing.mutation import BASE_BYTES, FEW, LEAST, PIECE, Draw, Factors, filled, wanders

FACTORS = Factors(10_000, "cpu")


def random(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def drawn(
    *tensors: torch.Tensor, still: tuple[int, ...] = (), kept: bool = False, bases: int = BASE_BYTES
) -> tuple[Draw, list[torch.Tensor]]:
    """A draw, and tensors of its layout in which it was laid."""
    fd = os.memfd_create("inputs")
    draw = Draw(list(tensors), write(fd, list(tensors)), "cpu", still, kept, bases)
    os.close(fd)
    return draw, [t.clone() for t in tensors]


def test_every_float_gets_nearer_to_zero_by_a_factor_of_its_own() -> None:
    first = random(300, 40)
    draw, (held,) = drawn(first)
    draw.fill([held], 12345)
    by = held / first
    assert LEAST <= float(by.min()) < 0.76 and 0.99 < float(by.max()) <= 1
    assert len(by.unique()) > 11_000
    draw.fill([held], 12346)
    assert int((held / first == by).sum()) < 10


def test_two_inputs_of_a_call_get_factors_of_their_own() -> None:
    draw, held = drawn(random(100, 100), random(100, 100))
    draw.fill(held, 99)
    assert int((held[0] == held[1]).sum()) < 10


def test_those_that_are_alike_differ_in_few_elements_and_all_others_throughout() -> None:
    first = [random(500, 400), torch.randint(0, 99, (40_000,), generator=torch.Generator().manual_seed(1))]
    draw, held = drawn(*first)
    made = []
    for nonce, alike in ((11 << 40, True), (13 << 40, True), (17 << 40, False)):
        draw.fill(held, nonce, alike)
        made.append([t.clone() for t in held])
    assert all(0 < int((a != b).sum()) < 3000 for a, b in zip(made[0], made[1], strict=True))
    assert all(int((a != b).sum()) > 0.9 * a.numel() for a, b in zip(made[0], made[2], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_infinities_and_nan_stay_where_they_are_in_sharper_inputs(dtype: torch.dtype) -> None:
    causal = torch.full((1024, 1024), -torch.inf, dtype=dtype).triu(1)
    mixed = torch.where(random(300, 300) > 1, torch.inf, random(300, 300)).to(dtype)
    mixed[5, 5] = torch.nan
    for drawn in (causal, torch.full((64,), -torch.inf, dtype=dtype), mixed):
        (made,) = sharper([drawn], torch.Generator().manual_seed(1))
        assert torch.equal(torch.isnan(made), torch.isnan(drawn))
        assert torch.equal(made == torch.inf, drawn == torch.inf)
        assert torch.equal(made == -torch.inf, drawn == -torch.inf)
    numbers = torch.isfinite(mixed)
    assert int((made[numbers] != mixed[numbers]).sum()) > 0.9 * int((mixed[numbers] != 0).sum())


def test_what_a_tensor_held_before_plays_no_part() -> None:
    first = [random(64, 64), torch.randint(0, 99, (500, 3), generator=torch.Generator().manual_seed(1)), random(7)]
    draw, held = drawn(*first, still=(2,), kept=True)
    other = [torch.full_like(t, 7) for t in first]
    for nonce in (3, 1 << 50, -(1 << 60), 3):
        draw.fill(held, nonce)
        draw.fill(other, nonce)
        assert all(torch.equal(a, b) for a, b in zip(held, other, strict=True))
    assert torch.equal(held[2], first[2])


@pytest.mark.parametrize("low", [1.0, -5.0])
def test_floats_stay_in_the_range_that_was_drawn(low: float) -> None:
    first = torch.randint(0, 5, (500, 40), generator=torch.Generator().manual_seed(5)).float() + low
    draw, (held,) = drawn(first)
    draw.fill([held], 12345)
    assert float(held.min()) >= low and float(held.max()) <= low + 4
    assert int((held != first).sum()) > 15_000


def test_a_tensor_longer_than_its_factors_gets_each_piece_from_another_place() -> None:
    draw, (held,) = drawn(
        torch.ones(2 * PIECE + 5).mul_(torch.tensor([1.0, -1.0, 1.0]).repeat(2 * PIECE)[: 2 * PIECE + 5])
    )
    draw.fill([held], 5)
    assert int((held[:PIECE].abs() == held[PIECE : 2 * PIECE].abs()).sum()) < PIECE // 1000


def test_of_a_giant_every_nth_value_changes_and_few_others_that_a_nonce_chooses() -> None:
    first = random(200, 200)
    draw, (held,) = drawn(first, bases=40_000)
    places = []
    for nonce in (8, 9):
        draw.fill([held], nonce)
        changed = (held != first).reshape(-1)
        assert bool(changed[::4].sum() > 9_990)
        changed[::4] = False
        places.append(changed.nonzero().reshape(-1))
        assert 900 < len(places[-1]) <= FEW
        assert torch.equal(held.reshape(-1)[places[-1]] * 2, first.reshape(-1)[places[-1]])
    assert len(set(places[0].tolist()) & set(places[1].tolist())) < 200
    draw.lay([held])
    assert torch.equal(held, first)


@pytest.mark.parametrize("shape", [(4000, 3), (4000, 1), (2, 4000), (64, 64), (5000,)])
def test_integers_stay_in_the_column_that_they_were_drawn_for(shape: tuple[int, ...]) -> None:
    first = torch.randint(0, 1000, shape, generator=torch.Generator().manual_seed(5))
    draw, (held,) = drawn(first)
    along, states = 0 if shape[0] >= shape[-1] else 1, set()
    for nonce in range(0, 1 << 34, 3 * 765432109):
        draw.fill([held], nonce)
        assert torch.equal(held.sort(dim=along).values, first.sort(dim=along).values)
        states.add(held.numpy().tobytes())
    assert len(states) == 8 and not draw.changes


@pytest.mark.parametrize(
    ("values", "moves"),
    [
        (torch.randint(0, 9, (64, 32)), True),
        (torch.randint(0, 2, (64, 32)).bool(), True),
        (torch.arange(640).reshape(20, 32), False),
        (torch.ones(8, 8).tril().bool(), False),
        (torch.zeros(64, dtype=torch.int32), False),
        (torch.randint(0, 9, (64, 32)).t(), True),
        (torch.arange(40).reshape(20, 2), False),
        (torch.tensor([[1, 1, 0, 0, 0]]), False),
        (torch.tensor(3), False),
    ],
)
def test_integers_move_along_the_longest_dimension_where_they_are_in_no_order(
    values: torch.Tensor, moves: bool
) -> None:
    assert wanders(values) == moves
    assert (filled(values, 0, FACTORS) is not None) == moves


@pytest.mark.parametrize(
    "dtype",
    [
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "complex64",
        "float8_e4m3fn",
        "float8_e5m2",
        "float16",
        "bfloat16",
        "float64",
    ],
)
def test_a_call_s_values_depend_on_its_nonce_in_every_dtype(dtype: str) -> None:
    first = (torch.rand(4, 8, generator=torch.Generator().manual_seed(5)) * 100).to(getattr(torch, dtype))
    draw, (held,) = drawn(first)
    few, many, seen = (10 << 16) + 1, (1000 << 16) + 2, []
    for nonce in (few, many, few):
        draw.fill([held], nonce)
        seen.append(held.clone().view(torch.uint8))
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])
    assert draw.changes == (first.is_floating_point() or first.is_complex())


def test_more_floats_than_elements_find_their_factors() -> None:
    numbers, room = torch.view_as_complex(random(600, 500, 2)), torch.empty(2, 600, 4000)
    padded, other = room[:, :, :500].copy_(random(2, 600, 500)).unbind()
    for tensor, held in ((numbers, numbers.clone()), (padded, other)):
        fd = os.memfd_create("inputs")
        draw = Draw([tensor.contiguous()], write(fd, [tensor]), "cpu", (), kept=False)
        os.close(fd)
        for nonce in range(0, 1 << 48, 1 << 43):
            draw.fill([held], nonce)
            assert int((held != tensor).sum()) > 290_000


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_a_tensor_that_is_not_contiguous_is_changed_all_the_same(layout: str) -> None:
    first = random(40, 50).t() if layout == "transposed" else random(40, 1).expand(40, 50)
    draw, _ = drawn(first)
    held = [t.clone() for t in draw._drawn]
    draw.fill(held, 4)
    assert int((held[0] != first).sum()) > 1900 and torch.equal(held[0].sign(), first.sign())


SORTED = torch.tensor([-2.0, -0.5, 0.25, 1.0])


@pytest.mark.parametrize(
    ("values", "stays"),
    [
        (SORTED, True),
        (SORTED.flip(0), True),
        (torch.arange(200.0), True),
        (torch.arange(200.0)[:, None].expand(200, 3), True),
        (torch.cat([torch.arange(100.0), torch.arange(100.0)]), False),
        (torch.rand(1 << 16, generator=torch.Generator().manual_seed(1)).sort().values, True),
        (torch.ones(64, 64).tril(), False),
        (torch.ones(64), True),
        (random(64, 4), False),
        (random(8, 8) + random(8, 8, seed=6).mT, False),
        ((lambda m: m + m.mT)(random(8, 8)), True),
        ((lambda m: m + m.mT)(random(3, 8, 8)), True),
        (torch.full((4, 4), 2.0), True),
    ],
)
def test_floats_in_order_constants_and_symmetric_matrices_stay_as_drawn(values: torch.Tensor, stays: bool) -> None:
    constant = bool((values == values.reshape(-1)[0]).all())
    assert (ordered(values) or symmetric(values) or constant) == stays
    assert (filled(values, 0, FACTORS) is None) == stays
    assert torch.equal(sharper([values], torch.Generator().manual_seed(2))[0], values) == stays
