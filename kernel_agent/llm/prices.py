"""What models cost: the list prices that genai-prices ships, and the user's own where one is not known or has changed.

A name must be that of a model as its maker lists it: a model that only resembles one has no price, it must be given, or
a budget in dollars is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from kernel_agent.errors import UsageError

if TYPE_CHECKING:
    from genai_prices.types import TieredPrices


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens of a prompt and of a reply, what a model thinks included.

    Prompts of more than `above` tokens cost what `then` says, replies to them too.
    """

    prompt: float
    reply: float
    above: int | None = None
    then: Price | None = None

    def of(self, prompt_tokens: int, reply_tokens: int) -> float:
        if self.above is not None and self.then is not None and prompt_tokens > self.above:
            return self.then.of(prompt_tokens, reply_tokens)
        return (self.prompt * prompt_tokens + self.reply * reply_tokens) / 1e6


MAKERS = ("openai", "google", "anthropic")
"""Whose own names and prices count, as genai-prices calls them; resellers and clouds ask others for the same model."""


def price_of(model: str, overrides: str | None = None) -> Price | None:
    """The price of a model by its name, that of the overrides first; without its date, and its maker before a slash.

    An override may name the provider too, as a setting does: `PROVIDER:NAME`.
    """
    own = read_prices(overrides or "")
    if given := own.get(model) or next((own[name] for name in own if name.partition(":")[2] == model), None):
        return given
    return _listed(re.sub(r"-\d{4}-?\d{2}-?\d{2}$", "", model.rpartition("/")[2]).replace(".", "-"))


def _listed(name: str) -> Price | None:
    """Today's list price of a model whose name has "-" for "."; None also where it is not counted in tokens of text."""
    from genai_prices.data import providers  # heavy: only runs that ask a model pay for it

    models = (model for provider in providers if provider.id in MAKERS for model in provider.models)
    found = next((model for model in models if model.id.replace(".", "-") == name), None)
    listed = found.get_prices(datetime.now(UTC)) if found else None
    if listed is None or listed.input_mtok is None or listed.output_mtok is None:
        return None
    return _stepped(listed.input_mtok, listed.output_mtok)


def _stepped(prompt: Decimal | TieredPrices, reply: Decimal | TieredPrices) -> Price:
    """A price and, behind it, that of each length of prompt from which either one changes."""
    starts = {tier.start for side in (prompt, reply) if not isinstance(side, Decimal) for tier in side.tiers}
    price, above = None, None
    for start in sorted({0, *starts}, reverse=True):
        price, above = Price(_from(prompt, start), _from(reply, start), above, price), start
    assert price
    return price


def _from(side: Decimal | TieredPrices, start: int) -> float:
    """Dollars for a million tokens where the prompt has more than `start`."""
    if isinstance(side, Decimal):
        return float(side)
    return float(next((tier.price for tier in reversed(side.tiers) if tier.start <= start), side.base))


def read_prices(text: str) -> dict[str, Price]:
    """`NAME=PROMPT/REPLY, ...` as prices. Raises UsageError for anything else."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"(\S+)\s*=\s*\$?(\d+(?:\.\d+)?)\s*/\s*\$?(\d+(?:\.\d+)?)", part)
        if match is None:
            raise UsageError(f"The setting `prices` cannot be used: {part!r} is not NAME=DOLLARS_IN/DOLLARS_OUT.")
        found[match[1]] = Price(float(match[2]), float(match[3]))
    return found
