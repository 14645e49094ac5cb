"""Every setting, with the sentence that explains it. Arguments win over the environment, `.env`, then defaults."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import AliasChoices, Field, SecretStr, ValidationError, create_model
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from kernel_agent.env_file import DotEnv, dotenv
from kernel_agent.errors import MistypedSetting, UsageError, meant, nearest
from kernel_agent.providers import KEYS, NAMES, PROVIDERS

PREFIX = "KERNEL_AGENT_"
OTHERS = (
    "RAG_MODEL",
    "RAG_EMBEDDINGS_URL",
    "RAG_EMBEDDINGS_KEY",
    "RAG_CHROMA_URL",
    "RAG_CHROMA_TOKEN",
    "RAG_SERVE_TOKEN",
)
"""Variables that the library reads."""

if TYPE_CHECKING:
    ProviderName = str
else:
    ProviderName = Literal[NAMES]


def _key(variable: str, sentence: str, *also: str) -> Any:
    names = AliasChoices(PREFIX + variable, *also, variable)
    return Field(default=None, repr=False, validation_alias=names, description=sentence)


if TYPE_CHECKING:
    ProviderKeys = BaseSettings
else:
    ProviderKeys = create_model(
        "ProviderKeys",
        __base__=BaseSettings,
        **{key.setting: (SecretStr | None, _key(key.variable, key.sentence, *key.also)) for key in KEYS},
    )


class Settings(ProviderKeys):
    """The settings of one run; keys are never shown and never stored."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        protected_namespaces=(),
    )

    provider: ProviderName = Field(
        default="auto",
        description="Who proposes kernels: a model's provider, or `templates` (no key, no network); "
        "`auto` takes the first provider whose key is set, else templates.",
    )
    base_url: str | None = Field(
        default=None,
        description="Address of an OpenAI-compatible endpoint, where it is not the provider's own.",
    )
    model_name: str | None = Field(
        default=None,
        description="Name of the model; unset, the provider's default is used. `PROVIDER:NAME` takes one of another "
        "provider. Of several, such as `gpt-5, gpt-5-mini`, a bandit chooses for each call by what each gained for "
        "its cost.",
    )
    ideas_model: str | None = Field(
        default=None, description="The model that has the ideas, where it is another one; a name as in `model_name`."
    )
    code_model: str | None = Field(
        default=None, description="The model that writes and repairs code, where it is another one."
    )
    temperature: float | None = Field(
        default=None, ge=0, le=2, description="Sampling temperature; unset, and where it is refused, the model's own."
    )
    max_tokens: int | None = Field(default=None, ge=1, description="Most tokens that one reply may take.")
    reasoning_effort: str | None = Field(
        default=None, description="How long a reasoning model thinks, such as `low` or `high`; unset, as it likes."
    )
    call_timeout_s: float = Field(default=600.0, gt=0, le=7200, description="Seconds that one model call may take.")
    mcp_server_path: str = Field(
        default="python -m ncu_server",
        min_length=1,
        description="Command that starts the measuring server, or the http(s) address of one that runs; "
        "a command that begins with `python` runs in this interpreter.",
    )
    ncu_server_token: SecretStr | None = _key(
        "NCU_SERVER_TOKEN",
        "Token of a measuring server at an http(s) address; of several, one for all or one for each in their order, "
        "apart by commas.",
    )
    pool: str = Field(
        default="local",
        min_length=1,
        description="Which servers measure: `local` (`mcp_server_path`, once for each visible GPU), http(s) addresses "
        "apart by commas, `ray` (one on each GPU of a Ray that is started here, or at RAY_ADDRESS), or `ray:ADDRESS`.",
    )
    gpus: int | None = Field(
        default=None, ge=1, le=1024, description="Most GPUs of a `local` or `ray` pool that are used; unset, all."
    )
    branching_factor: int = Field(default=8, ge=1, le=256, description="Ideas a round, shared over the parents.")
    num_rounds: int = Field(default=3, ge=1, le=100, description="Rounds of ideas.")
    selection_percentage: float = Field(
        default=0.25, gt=0, le=1, description="Share of a round's passed kernels that become parents of the next round."
    )
    stop_share: float = Field(
        default=0.95, gt=0, le=2, description="Share of the limit at which the search ends before its last round."
    )
    flat_rounds: int = Field(
        default=3, ge=0, le=100, description="Rounds without a faster kernel after which the search ends; 0 never."
    )
    implementations_per_idea: int = Field(default=2, ge=1, le=32, description="Implementations written for each idea.")
    target: str | None = Field(
        default=None,
        description="What to write for: `cuda`, `triton` or `cpu`; "
        "unset, cuda where the server sees a device, else cpu.",
    )
    prompt_rules: Path | None = Field(
        default=None,
        description="A TOML file with rules of your own: advice that prompts give for operators that match; "
        "`kernel_agent/prompts/rules.toml` shows how.",
    )
    max_repairs: int = Field(default=5, ge=0, le=20, description="Repairs tried on an implementation that fails.")
    helper_model: str | None = Field(
        default=None,
        description="A model, named as in `model_name`, that says what is wrong with a kernel before it is repaired; "
        "a cheap one will do. Unset, the repair begins with the log.",
    )
    escalation_model: str | None = Field(
        default=None,
        description="A model, named as in `model_name`, that gets one try at a kernel whose repairs are spent.",
    )
    seeds: bool = Field(
        default=True,
        description="Whether templates that cover the module give the model its first parents, in a short round of "
        "their own; `--no-seeds` begins with the model.",
    )
    compile_times: Literal["auto", "first", "beside"] = Field(
        default="auto",
        description="When the modes of torch.compile are timed: `first`, before anything is asked, `beside` the "
        "search, whose first prompts then compare with eager PyTorch alone, or `auto`: beside it from four cores on.",
    )
    sweep_evaluations: int = Field(
        default=8,
        ge=0,
        le=256,
        description="Evaluations that each of a round's two fastest kernels gets for a sweep of its declared tunables; "
        "no model is asked.",
    )
    bind: Literal["tvm_ffi", "torch"] = Field(
        default="tvm_ffi",
        description="What binds the delivered kernel: tvm_ffi, which builds in seconds, or torch's own load_inline, "
        "which needs nothing but torch.",
    )
    retrieval: Literal["auto", "lexical", "hybrid"] = Field(
        default="auto",
        description="How passages are found: by words alone (lexical), by words and embeddings (hybrid), "
        "or whichever this machine can do (auto).",
    )
    report: bool = Field(
        default=True,
        description="Whether a run ends with a profile of its winner, which may take the device as long as the kernels "
        "did, and with report.html, a page of all that was tried, in its directory.",
    )
    experience: bool = Field(
        default=True,
        description="Whether a run is told what this user's earlier runs measured, and is remembered for later "
        "ones; switched off, experience is neither read nor written.",
    )
    wait: bool = Field(
        default=True,
        description="Whether the manual provider waits for replies; without (`--no-wait`) all that can go on goes on, "
        "then the run ends with exit code 4 and the prompts that wait, and `resume` takes it from there.",
    )
    record: Path | None = Field(
        default=None,
        description="File, or folder (a name without a suffix), to which the model's replies are written as a "
        "cassette when the run ends.",
    )
    cassette: Path | None = Field(
        default=None,
        description="What the replay provider answers from: a cassette or a run's directory; "
        "unset, the run's own journal.",
    )
    budget_dollars: float | None = Field(
        default=None,
        ge=0,
        description="Most dollars that model calls may cost; a call that might cost more than is left is not made, and "
        "the best so far is delivered.",
    )
    budget_tokens: int | None = Field(
        default=None, ge=0, description="Most tokens, of prompts and replies, that model calls may take."
    )
    budget_minutes: float | None = Field(
        default=None,
        gt=0,
        description="Minutes that describing the problem and searching may take; waiting for the device is not "
        "counted, and time to judge the best again is kept back.",
    )
    prices: str | None = Field(
        default=None,
        description="Dollars for a million tokens in and out of models whose price is not known or has changed, such "
        "as `mine=1.25/10, other=0.1/0.4`.",
    )
    runs_dir: Path = Field(default=Path("runs"), description="Directory that holds a directory for each run.")
    max_concurrent_calls: int = Field(default=4, ge=1, le=256, description="Model calls that may be under way at once.")
    evaluation_timeout_s: float = Field(
        default=120.0, gt=0, le=3600, description="Seconds that building, checking and timing one kernel may take."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, DotEnv(settings_cls)

    def keyless(self) -> dict[str, Any]:
        """The settings as JSON values without the keys: what a journal stores."""
        return self.model_dump(mode="json", exclude={name for name in type(self).model_fields if is_key(name)})


def models_of(text: str | None) -> tuple[str, ...]:
    """The names of models, apart by commas, in a setting; each once."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, (text or "").split(",")))))


def is_key(name: str) -> bool:
    """Whether the setting of this name is secret."""
    field = Settings.model_fields.get(name)
    return field is not None and SecretStr in get_args(field.annotation)


def secret_variables() -> frozenset[str]:
    """The environment variables that hold a secret of ours."""
    ours = (choice for name in Settings.model_fields if is_key(name) for choice in _choices(name))
    return frozenset([*ours, *(name for name in OTHERS if name.endswith(("KEY", "TOKEN")))])


def variable_of(name: str) -> str:
    """The environment variable that a setting is documented under."""
    alias = Settings.model_fields[name].validation_alias
    return str(alias.choices[-1]) if isinstance(alias, AliasChoices) else PREFIX + name.upper()


def load_settings(**given: Any) -> Settings:
    """Settings from the arguments that are not None, then the environment and `.env`, then defaults.

    Raises UsageError with one sentence for the first setting that cannot be used.
    """
    unknown = sorted(set(given) - set(Settings.model_fields))
    if unknown:
        near = nearest(unknown[0], Settings.model_fields, NEAR)
        others = f"; `{near}` is nearest." if near else "; the settings are " + ", ".join(Settings.model_fields) + "."
        raise UsageError(f"There is no setting `{unknown[0]}`{others}")
    for sentence in _mistyped(frozenset({**dotenv(), **os.environ})):
        if sentence not in _named:
            _named.add(sentence)
            warnings.warn(sentence, MistypedSetting, stacklevel=2)
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise UsageError(_sentence(error)) from None


@lru_cache(maxsize=8)
def _mistyped(variables: frozenset[str]) -> tuple[str, ...]:
    return tuple(mistyped(variables))


_named: set[str] = set()
"""What was said of mistyped settings: each is named once."""

NEAR, NEARER = 0.6, 0.85
"""How much alike a name is that may be meant: one that begins as ours do, and any other."""


def mistyped(variables: Iterable[str]) -> Iterator[str]:
    """A sentence for each variable that begins as our settings do and is none, or is all but the name of one."""
    known = {choice.upper() for setting in Settings.model_fields for choice in _choices(setting)} | set(OTHERS)
    for variable in sorted(variables):
        if (name := variable.upper()) in known:
            continue
        ours = name.startswith(PREFIX)
        near = nearest(name, known, NEAR if ours else NEARER)
        if near or ours:
            meant = f"; did you mean {near}?" if near else "; `python -m kernel_agent run --help` lists them."
            yield f"{variable} is no setting and is ignored{meant}"


def provider_of(settings: Settings) -> str:
    """The provider that the settings name or, by `auto`, the first whose key is set; templates where none is."""
    if settings.provider != "auto":
        return settings.provider
    if settings.cassette is not None:
        return "replay"
    for row in PROVIDERS.values():
        if row.needs_key and getattr(settings, row.keys[0].setting) is not None:
            return row.name
    return "custom" if settings.base_url else "templates"


OF_A_PROVIDER = ("base_url", "model_name", "ideas_model", "code_model", "helper_model", "escalation_model")
"""Settings that say something of one provider; models' names may say of which."""


def resumed_settings(kept: Settings, given: dict[str, Any]) -> tuple[Settings, tuple[str, ...]]:
    """The settings of a run with those given in place of what it kept, and the names of what it leaves behind.

    Another provider is asked at its own address, for models of its own, and its key is sent nowhere else.
    """
    before = kept.keyless()
    settings = load_settings(**(before | given))
    if provider_of(settings) == provider_of(kept):
        return settings, ()
    left = [name for name in OF_A_PROVIDER if {one.partition(":")[0] for one in models_of(before[name])} - {*NAMES}]
    settings = load_settings(**(before | dict.fromkeys(left) | given))
    return settings, tuple(name for name in left if name not in given)


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = str(first["loc"][0]) if first["loc"] else "settings"
    name = next((n for n in Settings.model_fields if place.casefold() in _names(n)), place)
    got = "" if is_key(name) else f", not {first['input']!r}"
    message = first["msg"]
    known = NAMES if name == "provider" else ()
    question = meant(str(first["input"]), known)
    return f"The setting `{name}` cannot be used: {message[:1].lower()}{message[1:]}{got}.{question}"


def _names(name: str) -> set[str]:
    return {name, *(choice.casefold() for choice in _choices(name))}


def _choices(name: str) -> list[str]:
    """The variables that a setting is read from."""
    alias = Settings.model_fields[name].validation_alias
    return list(map(str, alias.choices)) if isinstance(alias, AliasChoices) else [PREFIX + name]


@dataclass(frozen=True, slots=True)
class Row:
    """A setting as a table shows it."""

    name: str
    type: str
    default: str
    variable: str
    sentence: str


def rows() -> Iterator[Row]:
    """Every setting in the order of its declaration, for `--help` and the pages."""
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else str(field.default)
        yield Row(name, _type(field.annotation), default, variable_of(name), field.description or "")


def _type(annotation: Any) -> str:
    parts = [part for part in get_args(annotation) if part is not type(None)]
    if parts and all(isinstance(part, str) for part in parts):
        return ", ".join(parts)
    kind = parts[0] if parts else annotation
    return {
        "SecretStr": "key",
        "Path": "path",
        "str": "text",
        "int": "integer",
        "float": "number",
        "bool": "yes or no",
    }[kind.__name__]
