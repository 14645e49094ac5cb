"""Who can be the model: a row for each provider, its keys in it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A secret: its setting, what people read of that, the variable that it comes from, and `also` other variables."""

    setting: str
    sentence: str
    variable: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Provider:
    """Who can be the model: its OpenAI-compatible address, its keys, the model where none is named.

    No address: --base-url must give it. Of its keys the first that is set is used; where it needs one, `auto` takes it
    for the first. `limit_name` is what it calls the most tokens of a reply.
    """

    name: str
    base_url: str | None = None
    keys: tuple[Key, ...] = ()
    model: str | None = None
    needs_key: bool = True
    limit_name: str = "max_tokens"


OPENAI = Key("openai_api_key", "Key for the openai provider.", "OPENAI_API_KEY")
GATEWAY = Key(
    "gateway_api_key",
    "Key for the custom and vllm providers; without it, custom takes that of openai.",
    "LLM_GATEWAY_KEY",
)

PROVIDERS: dict[str, Provider] = {
    row.name: row
    for row in (
        Provider("openai", "https://api.openai.com/v1", (OPENAI,), "gpt-6.1-sol", limit_name="max_completion_tokens"),
        Provider(
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            (
                Key(
                    "gemini_api_key",
                    "Key for the gemini provider; GOOGLE_API_KEY is read too.",
                    "GEMINI_API_KEY",
                    ("GOOGLE_API_KEY",),
                ),
            ),
            "gemini-3.8-flash",
        ),
        Provider(
            "anthropic",
            "https://api.anthropic.com/v1/",
            (Key("anthropic_api_key", "Key for the anthropic provider.", "ANTHROPIC_API_KEY"),),
            "claude-sonnet-5-5",
        ),
        Provider(
            "openrouter",
            "https://openrouter.ai/api/v1",
            (Key("openrouter_api_key", "Key for the openrouter provider.", "OPENROUTER_API_KEY"),),
        ),
        Provider("ollama", "http://localhost:11434/v1", needs_key=False),
        Provider("vllm", "http://localhost:8000/v1", (GATEWAY,), needs_key=False),
        Provider("custom", None, (GATEWAY, OPENAI), needs_key=False),
        Provider("manual", needs_key=False),
        Provider("replay", needs_key=False),
    )
}
"""In the order in which `auto` tries those that need a key."""

NAMES = ("auto", "templates", *PROVIDERS)
"""What the setting `provider` may be: the first whose key is set, templates without a model, or one of the rows."""

KEYS = tuple(dict.fromkeys(key for row in PROVIDERS.values() for key in row.keys))
"""Each key once."""
