"""The model of a run, opened as its settings name it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.errors import ProviderError, UsageError
from kernel_agent.interfaces import OnNotice, ignore
from kernel_agent.llm.cassette import Replay, read
from kernel_agent.llm.ensemble import Ensemble, Past
from kernel_agent.llm.manual import ManualModel
from kernel_agent.llm.metered import Metered, counted, metered, most_reply
from kernel_agent.llm.model import Answers, Model, Question, Reply, Role
from kernel_agent.llm.openai_compatible import Endpoint, Extras
from kernel_agent.providers import PROVIDERS, Provider
from kernel_agent.run.budget import Budget
from kernel_agent.run.journal import MANUAL
from kernel_agent.settings import Settings, models_of

if TYPE_CHECKING:
    from pydantic import SecretStr


def open_model(
    provider: str,
    settings: Settings,
    calls: Past,
    run_dir: Path,
    on_notice: OnNotice = ignore,
    budget: Budget | None = None,
) -> Model:
    """The model of a run by its provider's name (a row of PROVIDERS; `auto` is settled by the caller).

    Raises UsageError for an unknown provider or a missing model name or address, ProviderError for a missing key.
    """
    row = PROVIDERS.get(provider)
    if row is None:
        raise UsageError(f"There is no provider {provider}: choose one of {', '.join(PROVIDERS)}.")
    if provider == "manual":
        return Model(ManualModel(run_dir / MANUAL, on_notice, wait=settings.wait), calls)
    if provider == "replay":
        return Model(Replay(read(settings.cassette).calls if settings.cassette else ()), calls)
    by_role: dict[Role, str | None] = {
        "ideas": settings.ideas_model,
        "code": settings.code_model,
        "helper": settings.helper_model,
        "escalation": settings.escalation_model,
    }
    budget = budget or Budget()

    def answers(names: str | None) -> Answers:
        models = {name: _endpoint(row, name, settings, on_notice, budget) for name in models_of(names) or ("",)}
        return Ensemble(models, calls) if len(models) > 1 else next(iter(models.values()))

    named = {role: answers(names) for role, names in by_role.items() if names}
    if "code" in named:
        named["repair"] = named["code"]
    general = None if {"ideas", "code"} <= set(named) else answers(settings.model_name)
    return Model(ByRole(general or named["code"], named), calls, settings.max_concurrent_calls, on_notice)


class ByRole:
    """Asks a role's own endpoint or ensemble where it has one, else the general one."""

    def __init__(self, general: Answers, by_role: Mapping[Role, Answers]) -> None:
        self._general, self._by_role = general, by_role
        self.remedy = general.remedy

    async def answer(self, question: Question) -> Reply:
        asked = self._by_role.get(question.role, self._general) if question.role else self._general
        return await asked.answer(question)

    async def close(self) -> None:
        for answers in {id(one): one for one in (self._general, *self._by_role.values())}.values():
            await answers.close()


def _endpoint(row: Provider, name: str | None, settings: Settings, on_notice: OnNotice, budget: Budget) -> Metered:
    """The endpoint of a model by its name, `PROVIDER:NAME` where it is another provider's."""
    url = settings.base_url
    if name and (other := PROVIDERS.get(name.partition(":")[0])) and other is not row and ":" in name:
        row, name, url = other, name.partition(":")[2], None
    name = name or row.model
    if name is None:
        raise UsageError(f"Provider {row.name} needs the name of a model: give --model-name.")
    url = url or row.base_url
    if url is None:
        raise UsageError(f"Provider {row.name} has no address of its own: give --base-url.")
    bounded = counted(settings)
    extras = Extras(settings.temperature, most_reply(settings), settings.reasoning_effort, row.limit_name, bounded)
    endpoint = Endpoint(
        row.name,
        name,
        url,
        key=_key(row, settings),
        timeout_s=settings.call_timeout_s,
        extras=extras,
        on_notice=on_notice,
    )
    return metered(endpoint, name, settings, budget)


def _key(row: Provider, settings: Settings) -> str | None:
    """The first of the provider's keys that is set; None where it needs none."""
    for each in row.keys:
        secret: SecretStr | None = getattr(settings, each.setting)
        if key := secret.get_secret_value().strip() if secret else "":
            return key
    if row.needs_key:
        raise ProviderError(
            f"Provider {row.name} needs a key: set {row.keys[0].variable} in the environment or in .env."
        )
    return None
