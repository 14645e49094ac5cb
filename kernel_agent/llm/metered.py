"""A model whose every call fits the budget before it is made, and is charged when it is answered."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kernel_agent.errors import UsageError
from kernel_agent.llm.model import Answers, BrokenOff, Question, Reply, Usage
from kernel_agent.llm.prices import Price, price_of
from kernel_agent.run.budget import MOST_REPLY, Budget, Charge
from kernel_agent.settings import Settings

SPEAKER = 16
"""Tokens that a turn of a conversation may take beside its text."""


@dataclass(slots=True)
class Metered:
    """Answers under a budget. `most_reply` is the most tokens that a reply may take, as the endpoint was told."""

    answers: Answers
    model: str
    price: Price | None
    budget: Budget
    most_reply: int
    remedy: str

    async def answer(self, question: Question) -> Reply:
        """Raises BudgetSpent before the call where it may cost more than is left."""
        prompt = sum(len(text.encode()) + SPEAKER for _, text in question.talk)  # a token is a byte at least
        worst = self.price.of(prompt, self.most_reply) if self.price else 0.0
        async with self.budget.call(worst, prompt + self.most_reply) as charge:
            began = time.monotonic()

            def pay(used: Usage) -> None:
                tokens = used.prompt_tokens, used.completion_tokens
                dollars = self.price.of(*tokens) if self.price else None
                charge(Charge(question.role or "other", self.model, *tokens, dollars, time.monotonic() - began))

            try:
                with self.budget.clock.work():
                    reply = await self.answers.answer(question)
            except BrokenOff as fault:
                pay(fault.lost)
                raise
            pay(reply.usage)
            return reply

    async def close(self) -> None:
        await self.answers.close()


def metered(answers: Answers, model: str, settings: Settings, budget: Budget) -> Metered:
    """The model under the budget. Raises UsageError where dollars are limited and its price is not known."""
    price = price_of(model, settings.prices)
    if price is None and budget.limits.dollars is not None:
        raise UsageError(
            f"The price of {model} is not known, so --budget-dollars cannot be kept: give it in dollars for a million "
            f"tokens in and out, as --prices {model}=1.25/10."
        )
    return Metered(answers, model, price, budget, most_reply(settings) or MOST_REPLY, answers.remedy)


def most_reply(settings: Settings) -> int | None:
    """The most tokens of a reply that an endpoint is told: as set, else a bound where a budget needs one."""
    return settings.max_tokens or (MOST_REPLY if counted(settings) else None)


def counted(settings: Settings) -> bool:
    """Whether a budget counts what replies cost."""
    return settings.budget_dollars is not None or settings.budget_tokens is not None
