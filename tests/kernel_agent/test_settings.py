"""Settings: where they come from, how they are refused, and that keys stay hidden."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_agent.errors import UsageError
from kernel_agent.providers import KEYS
from kernel_agent.settings import PREFIX, Settings, is_key, load_settings, models_of, resumed_settings, rows
from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No `.env` and none of our variables."""
    monkeypatch.chdir(tmp_path)
    for row in rows():
        monkeypatch.delenv(row.variable, raising=False)
        monkeypatch.delenv(PREFIX + row.name.upper(), raising=False)


def test_arguments_win_over_environment_over_dotenv_over_defaults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("KERNEL_AGENT_NUM_ROUNDS=5\nKERNEL_AGENT_BRANCHING_FACTOR=5\n")
    monkeypatch.setenv("KERNEL_AGENT_NUM_ROUNDS", "6")
    settings = load_settings(max_repairs=7)
    assert (settings.branching_factor, settings.num_rounds, settings.max_repairs) == (5, 6, 7)
    assert settings.selection_percentage == 0.25


def test_an_argument_that_is_none_leaves_the_setting_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_AGENT_TARGET", "cuda")
    assert load_settings(target=None).target == "cuda"


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "KERNEL_AGENT_OPENAI_API_KEY"])
def test_keys_are_read_but_never_shown_or_stored(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "sk-secret")
    settings = load_settings(gemini_api_key="g-secret")
    assert settings.openai_api_key and settings.openai_api_key.get_secret_value() == "sk-secret"
    assert "secret" not in f"{settings!r} {settings} {settings.keyless()} {settings.model_dump_json()}"
    assert not any(is_key(name) for name in settings.keyless())


def test_stored_settings_are_read_back_unchanged() -> None:
    settings = load_settings(num_rounds=9, target="cpu", runs_dir="elsewhere")
    assert load_settings(**settings.keyless()) == settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"branching_factor": 0}, "`branching_factor`"),
        ({"selection_percentage": 1.5}, "`selection_percentage`"),
        ({"provider": "nobody"}, "'nobody'"),
        ({"rounds": 3}, "no setting `rounds`"),
    ],
)
def test_a_bad_setting_is_one_sentence_that_names_it(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=r"^[^\n]*\.$") as caught:
        load_settings(**given)
    assert words in str(caught.value)


def test_a_bad_variable_is_named_by_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_AGENT_NUM_ROUNDS", "many")
    with pytest.raises(UsageError, match=r"`num_rounds`.*'many'"):
        load_settings()


def test_a_bad_key_is_refused_without_being_quoted() -> None:
    with pytest.raises(UsageError) as caught:
        load_settings(openai_api_key=["sk-secret"])
    assert "openai_api_key" in str(caught.value) and "sk-secret" not in str(caught.value)


def test_every_setting_has_its_sentence_and_its_variable() -> None:
    table = list(rows())
    assert [row.name for row in table] == list(Settings.model_fields)
    assert all(row.sentence.endswith(".") and row.variable.isupper() and row.type for row in table)
    assert {row.variable for row in table if is_key(row.name)} >= {"OPENAI_API_KEY", "GEMINI_API_KEY"}


def test_the_keys_of_providers_are_settings_by_their_rows_and_all_are_secret() -> None:
    table = {row.name: (row.variable, row.sentence) for row in rows()}
    assert len(KEYS) >= 5 and all(table[key.setting] == (key.variable, key.sentence) for key in KEYS)
    assert {name for name in table if is_key(name)} == {*(key.setting for key in KEYS), "ncu_server_token"}


def test_the_example_environment_file_names_every_setting() -> None:
    text = (ROOT / ".env.example").read_text()
    assert all(f"{row.variable}=" in text and row.sentence in text for row in rows())


GONE_ON = {
    "provider": "custom",
    "base_url": "http://here/v1",
    "model_name": "tiny",
    "helper_model": "small:8b",
    "escalation_model": "openai:gpt-5",
    "num_rounds": 7,
}


def test_another_provider_leaves_the_former_s_address_and_models_behind() -> None:
    kept = load_settings(**GONE_ON)
    settings, left = resumed_settings(kept, {"provider": "openai", "openai_api_key": "sk"})
    assert left == ("base_url", "model_name", "helper_model")
    assert [getattr(settings, name) for name in left] == [None] * 3
    assert (settings.escalation_model, settings.num_rounds) == ("openai:gpt-5", 7)
    settings, left = resumed_settings(kept, {"provider": "openai", "base_url": "http://there/v1"})
    assert settings.base_url == "http://there/v1" and left == ("model_name", "helper_model")


@pytest.mark.parametrize("given", [{}, {"provider": "custom"}, {"provider": "auto"}, {"num_rounds": 9}])
def test_the_same_provider_keeps_its_address_and_models(given: dict[str, object]) -> None:
    settings, left = resumed_settings(load_settings(**GONE_ON), given)
    assert not left and (settings.base_url, settings.model_name) == ("http://here/v1", "tiny")


def test_several_models_of_a_setting_stand_apart_by_commas() -> None:
    assert models_of("gpt-5, openai:gpt-5-mini,gpt-5") == ("gpt-5", "openai:gpt-5-mini")
    assert models_of(None) == models_of(" , ") == ()


def test_another_provider_leaves_models_behind_unless_each_names_its_own() -> None:
    kept = load_settings(provider="custom", code_model="openai:a, gemini:b", ideas_model="openai:a, b")
    settings, left = resumed_settings(kept, {"provider": "anthropic"})
    assert left == ("ideas_model",) and settings.code_model == "openai:a, gemini:b"
