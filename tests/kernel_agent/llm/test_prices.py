"""What a model costs by its name, and what a call of it comes to."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kernel_agent.llm.prices import Price, _stepped, price_of, read_prices
from kernel_agent.providers import PROVIDERS


@pytest.mark.parametrize(
    ("name", "price"),
    [
        ("gpt-5", Price(1.25, 10)),
        ("gpt-5-2025-08-07", Price(1.25, 10)),
        ("openai/gpt-5-mini", Price(0.25, 2)),
        ("anthropic/claude-sonnet-4.5", Price(3, 15, 200_000, Price(6, 22.5))),
        ("claude-haiku-4-5-20251001", Price(1, 5)),
        ("gpt-5-turbo-max", None),
        ("claude-sonnet-4-20250514", None),
        ("o4-mini", Price(1.1, 4.4)),
        ("mine", Price(1, 2)),
    ],
)
def test_a_price_is_found_by_the_model_s_name(name: str, price: Price | None) -> None:
    assert price_of(name, "mine=1/2, other=$3.5/4") == price


def test_a_price_that_is_given_wins() -> None:
    assert price_of("gpt-5", "gpt-5=0/0") == Price(0, 0)
    assert price_of("gpt-5", "openai:gpt-5=0/3, gpt-5-mini=1/1") == Price(0, 3)
    assert price_of("llama3:8b", "ollama:llama3:8b=0/3") == price_of("llama3:8b", "llama3:8b=0/3") == Price(0, 3)
    assert read_prices("") == {}


@pytest.mark.parametrize("row", [row for row in PROVIDERS.values() if row.model], ids=lambda row: row.name)
def test_the_model_that_a_provider_takes_by_itself_has_a_price(row: Any) -> None:
    assert price_of(row.model)


def test_a_long_prompt_costs_more_from_its_own_length_on() -> None:
    price = price_of("gemini-2.5-pro")
    assert price and price.above == 200_000
    assert price.of(200_000, 1000) == pytest.approx(0.25 + 0.01)
    assert price.of(200_001, 1000) == pytest.approx(0.5000025 + 0.015)


@pytest.mark.parametrize("name", ["gemini-3.8-flash-mine", "gpt-5-mine", "whisper-1", "gemma-3", "llama3.1-8b"])
def test_a_model_not_listed_by_its_very_name_has_no_price(name: str) -> None:
    assert price_of(name) is None


def test_both_sides_of_a_price_change_where_either_does() -> None:
    from genai_prices.types import Tier, TieredPrices

    prompt = TieredPrices(Decimal(1), [Tier(100, Decimal(2)), Tier(300, Decimal(4))])
    reply = TieredPrices(Decimal(10), [Tier(200, Decimal(20))])
    paid = [_stepped(prompt, reply).of(tokens, 0) * 1e6 / tokens for tokens in (100, 101, 300, 301)]
    assert paid == pytest.approx([1, 2, 2, 4])
    assert [_stepped(prompt, reply).of(tokens, 10**6) for tokens in (200, 201)] == pytest.approx([10.0004, 20.000402])
    assert _stepped(Decimal(1), Decimal(3)) == Price(1, 3)
