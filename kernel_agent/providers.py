"""Who can be the model, and how its settings make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_agent.cassette import Replay, read
from kernel_agent.endpoint import Endpoint
from kernel_agent.errors import ProviderError, UsageError
from kernel_agent.journal import MANUAL
from kernel_agent.llm import Calls, Model
from kernel_agent.manual import Manual
from kernel_agent.settings import Settings

if TYPE_CHECKING:
    from pydantic import SecretStr

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"


@dataclass(frozen=True, slots=True)
class Provider:
    """Who can be the model: its OpenAI-compatible address, the setting with its key, the model where none is named.

    No address: --base-url must give it. No key setting: it needs no key.
    """

    name: str
    base_url: str | None = None
    key: str | None = None
    model: str | None = None


PROVIDERS: Mapping[str, Provider] = {
    row.name: row
    for row in (
        Provider("openai", "https://api.openai.com/v1", "openai_api_key", "gpt-5"),
        Provider("gemini", GEMINI_URL, "gemini_api_key", "gemini-2.5-pro"),
        Provider("anthropic", "https://api.anthropic.com/v1/", "anthropic_api_key", "claude-sonnet-4-5"),
        Provider("openrouter", "https://openrouter.ai/api/v1", "openrouter_api_key"),
        Provider("ollama", "http://localhost:11434/v1"),
        Provider("vllm", "http://localhost:8000/v1"),
        Provider("custom"),
        Provider("manual"),
        Provider("replay"),
    )
}


def open_model(
    provider: str, settings: Settings, calls: Calls, run_dir: Path, say: Callable[[str], None] | None = None
) -> Model:
    """The model of a run by its provider's name (a row of PROVIDERS; `auto` is settled by the caller).

    Raises UsageError for an unknown provider or a missing model name or address, ProviderError for a missing key.
    """
    row = PROVIDERS.get(provider)
    if row is None:
        raise UsageError(f"There is no provider {provider}: choose one of {', '.join(PROVIDERS)}.")
    if provider == "manual":
        return Model(Manual(run_dir / MANUAL, say, wait=settings.wait), calls)
    if provider == "replay":
        return Model(Replay(read(settings.cassette).calls if settings.cassette else ()), calls)
    name = settings.model_name or row.model
    if name is None:
        raise UsageError(f"Provider {provider} needs the name of a model: give --model-name.")
    url = settings.base_url or row.base_url
    if url is None:
        raise UsageError(f"Provider {provider} has no address of its own: give --base-url.")
    secret: SecretStr | None = (
        getattr(settings, row.key or "openai_api_key") if row.key or provider == "custom" else None
    )
    key = secret.get_secret_value().strip() if secret else ""
    if row.key and not key:
        raise ProviderError(f"Provider {provider} needs a key: set {row.key.upper()} in the environment or in .env.")
    return Model(Endpoint(provider, name, url, key=key or None, concurrency=settings.max_concurrent_calls), calls)
