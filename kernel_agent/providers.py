"""Who can be the model: a row for each provider, and nothing else to write but the setting of a key of its own."""

from __future__ import annotations

from dataclasses import dataclass

GEMINI_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"


@dataclass(frozen=True, slots=True)
class Provider:
    """Who can be the model: its OpenAI-compatible address, the settings with its key, the model where none is named.

    No address: --base-url must give it. `keys` are names of settings; where it needs one, `auto` takes it for the first
    of its keys. `limit_name` is what it calls the most tokens of a reply.
    """

    name: str
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    model: str | None = None
    needs_key: bool = True
    limit_name: str = "max_tokens"


PROVIDERS: dict[str, Provider] = {
    row.name: row
    for row in (
        Provider(
            "openai",
            "https://api.openai.com/v1",
            ("openai_api_key",),
            "gpt-6.1-sol",
            limit_name="max_completion_tokens",
        ),
        Provider("gemini", GEMINI_URL, ("gemini_api_key",), "gemini-3.8-flash"),
        Provider("anthropic", "https://api.anthropic.com/v1/", ("anthropic_api_key",), "claude-sonnet-5-5"),
        Provider("openrouter", "https://openrouter.ai/api/v1", ("openrouter_api_key",)),
        Provider("ollama", "http://localhost:11434/v1", needs_key=False),
        Provider("vllm", "http://localhost:8000/v1", ("gateway_api_key",), needs_key=False),
        Provider("custom", None, ("gateway_api_key", "openai_api_key"), needs_key=False),
        Provider("manual", needs_key=False),
        Provider("replay", needs_key=False),
    )
}
"""In the order in which `auto` tries those that need a key."""

NAMES = ("auto", "templates", *PROVIDERS)
"""What the setting `provider` may be: the first whose key is set, templates without a model, or one of the rows."""
