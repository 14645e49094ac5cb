"""What models cost: list prices of those that are known, and the user's own where they are not or have changed.

Every row stands on its maker's price list, under whose address it is given with the day on which it was read; where the
page itself was not at hand, as litellm 1.110.2 transcribes it, which names that page as its source. A model of which no
such row was found has none: its price must be given, or a budget in dollars is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_agent.errors import UsageError


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


OPENAI: Mapping[str, Price] = {
    "gpt-6.1-sol": Price(2, 10, 272_000, Price(4, 15)),
    "gpt-6.1-terra": Price(1, 5, 272_000, Price(2, 7.5)),
    "gpt-6-astra": Price(10, 50, 272_000, Price(20, 75)),
    "gpt-6-sol": Price(2, 10, 272_000, Price(4, 15)),
    "gpt-6-luna": Price(0.1, 0.5, 272_000, Price(0.2, 0.75)),
    "gpt-5.6-sol": Price(4, 20, 272_000, Price(8, 30)),
    "gpt-5.6-terra": Price(2, 12, 272_000, Price(4, 18)),
    "gpt-5.6-luna": Price(0.2, 1.2, 272_000, Price(0.4, 1.8)),
    "gpt-5.5": Price(5, 30, 272_000, Price(10, 45)),
    "gpt-5.4": Price(2.5, 15, 272_000, Price(5, 22.5)),
    "gpt-5.4-mini": Price(0.75, 4.5),
    "gpt-5.4-nano": Price(0.2, 1.25),
    "gpt-5.2": Price(1.75, 14),
    "gpt-5.1": Price(1.25, 10),
    "gpt-5": Price(1.25, 10),
    "gpt-5-mini": Price(0.25, 2),
    "gpt-5-nano": Price(0.05, 0.4),
    "gpt-4.1": Price(2, 8),
    "gpt-4.1-mini": Price(0.4, 1.6),
    "gpt-4o": Price(2.5, 10),
    "gpt-4o-mini": Price(0.15, 0.6),
    "o3": Price(2, 8),
}
"""https://developers.openai.com/api/docs/pricing by litellm 1.110.2, 2026-11-28. Read on the maker's own pages:
gpt-5-nano. gpt-5, gpt-5-mini, gpt-5-nano and o3 go on 2026-12-11; o4-mini went on 2026-10-23 and has no row."""

GEMINI: Mapping[str, Price] = {
    "gemini-3.8-flash": Price(1.5, 7.5),
    "gemini-3.5-flash": Price(1.5, 9),
    "gemini-3.5-flash-lite": Price(0.3, 2.5),
    "gemini-3.1-pro-preview": Price(2, 12, 200_000, Price(4, 18)),
    "gemini-3.1-flash-lite": Price(0.25, 1.5),
    "gemini-2.5-pro": Price(1.25, 10, 200_000, Price(2.5, 15)),
    "gemini-2.5-flash": Price(0.3, 2.5),
    "gemini-2.5-flash-lite": Price(0.1, 0.4),
}
"""https://ai.google.dev/gemini-api/docs/pricing: 3.8 Flash, 3.5 Flash, 3.1 Pro, the prompts of 2.5 Pro and Flash and
the replies of 2.5 Flash-Lite as api-evangelist/gemini quotes the page of 2026-09-20, all of them by litellm 1.110.2,
2026-11-28. 3.8 Flash costs half of this through 2026-12-31. 2.5 Pro and Flash go on 2026-12-01."""

ANTHROPIC: Mapping[str, Price] = {
    "claude-fable-5-1": Price(10, 50),
    "claude-fable-5": Price(10, 50),
    "claude-opus-5-5": Price(4, 20),
    "claude-opus-5": Price(5, 25),
    "claude-opus-4-8": Price(5, 25),
    "claude-opus-4-7": Price(5, 25),
    "claude-opus-4-6": Price(5, 25),
    "claude-opus-4-5": Price(5, 25),
    "claude-sonnet-5-5": Price(2, 10),
    "claude-sonnet-5": Price(2, 10),
    "claude-sonnet-4-6": Price(3, 15),
    "claude-sonnet-4-5": Price(3, 15),
    "claude-haiku-5-5": Price(0.1, 0.5, 100_000, Price(0.5, 2.5)),
    "claude-haiku-4-5": Price(1, 5),
}
"""https://platform.claude.com/docs/en/about-claude/pricing by litellm 1.110.2, 2026-11-28, and the same on the maker's
pages of each model (.../about-claude/models, .../models/sonnet-5/overview) for Fable 5.1, Opus 5.5, 5, 4.6 and 4.5,
Sonnet 5.5, 5, 4.6 and 4.5, Haiku 5.5 and 4.5. Sonnet 4.5 goes on 2026-11-30; Opus 4.1 and Sonnet 4 stand in no list of
today and have no row."""

PRICES: Mapping[str, Price] = {**OPENAI, **GEMINI, **ANTHROPIC}


def price_of(model: str, overrides: str | None = None) -> Price | None:
    """The price of a model by its name, that of the overrides first; without its date, and its maker before a slash.

    An override may name the provider too, as a setting does: `PROVIDER:NAME`.
    """
    own = read_prices(overrides or "")
    if given := own.get(model) or next((own[name] for name in own if name.partition(":")[2] == model), None):
        return given
    plain = re.sub(r"-\d{4}-?\d{2}-?\d{2}$", "", model.rpartition("/")[2]).replace(".", "-")
    known = {name.replace(".", "-"): price for name, price in PRICES.items()}
    return known.get(plain)


def read_prices(text: str) -> dict[str, Price]:
    """`NAME=PROMPT/REPLY, ...` as prices. Raises UsageError for anything else."""
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"(\S+)\s*=\s*\$?(\d+(?:\.\d+)?)\s*/\s*\$?(\d+(?:\.\d+)?)", part)
        if match is None:
            raise UsageError(f"The setting `prices` cannot be used: {part!r} is not NAME=DOLLARS_IN/DOLLARS_OUT.")
        found[match[1]] = Price(float(match[2]), float(match[3]))
    return found
