"""Quirks of providers: the row that applies, its overrides, and what refusals teach."""

import msgspec
import pytest

from app_server.engine.config.config_values import ProviderConfig
from app_server.engine.model.quirks import Lessons, Quirks, provider_row, provider_rows, quirks_of
from app_server_protocol.encoding import Json


def provider(id: str = "mine", url: str | None = None, **fields: Json) -> ProviderConfig:
    return ProviderConfig(id=id, name=id, base_url=url, **fields)


@pytest.mark.parametrize("row", provider_rows(), ids=lambda row: row.id or row.models[0])
def test_every_row_has_known_quirks(row: Json) -> None:
    flags = {
        name: False
        if isinstance(value, str)
        and name in ("custom_tools", "web_search", "cache_control", "responses_only")
        else value
        for name, value in row.quirks.items()
    }
    msgspec.convert(flags, Quirks)


@pytest.mark.parametrize(
    ("given", "row"),
    [
        (provider("openai"), "openai"),
        (provider("x", "https://api.openai.com/v1"), "openai"),
        (provider("x", "https://me.openai.azure.com/openai/v1"), "azure"),
        (provider("x", "https://openrouter.ai/api/v1"), "openrouter"),
        (provider("x", "https://api.deepseek.com"), "deepseek"),
        (provider("x", "https://notdeepseek.com"), None),
        (provider("ollama", "http://192.168.1.5:11434/v1"), "ollama"),
        (provider("x", "http://localhost:11434/v1"), "ollama"),
        (provider("x", "http://127.0.0.1:1234/v1"), "lmstudio"),
        (provider("x", "http://127.0.0.1:8000/v1"), "loopback"),
        (provider("x", "http://[::1]:8000/v1"), "loopback"),
        (provider("x", "https://example.com/v1"), None),
        (provider("x", "http://[bad"), None),
    ],
)
def test_a_provider_finds_its_row(given: ProviderConfig, row: str | None) -> None:
    found = provider_row(given)
    assert (None if found is None else found.id) == row


def test_quirks_of_a_model_hold_at_every_provider() -> None:
    assert quirks_of(provider("x", "https://example.com"), "mistralai/devstral-small").tool_ids == "nine"
    assert quirks_of(provider("x", "https://example.com"), "qwen3").tool_ids == "plain"
    at_openrouter = provider("x", "https://openrouter.ai/api/v1")
    assert quirks_of(at_openrouter, "openai/gpt-6-sol").custom_tools
    assert not quirks_of(at_openrouter, "qwen/qwen3").custom_tools


def test_the_users_quirks_stand_over_what_was_learnt() -> None:
    lessons = Lessons()
    mine = provider("mine", "https://example.com", quirks={"role": "developer"})
    lessons.learn(mine, "m", {"role": "system", "omit": ["store"]})
    lessons.learn(mine, "m", {"omit": ["strict", "store"]})
    found = quirks_of(mine, "m", lessons.of(mine, "m"))
    assert found.role == "developer"
    assert found.omit == ("store", "strict")
    assert lessons.of(mine, "other") == {}
