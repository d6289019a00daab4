"""The lists of models in docs/threads.md: each provider answers as documented, and the client receives the list of the
page.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast
from urllib.parse import urlsplit

import anyio
import pytest

from app_server.engine.auth.credentials import AuthMethod, Credentials
from app_server.engine.client_context import ActiveClient, ClientContext
from app_server.engine.config.config_values import Config
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.http.interface import HttpRequest
from app_server.engine.model.discovery import Discovery
from app_server.engine.model.known_models import KnownModels
from app_server.engine.model.model_facts import ModelFacts
from app_server.engine.model.served_models import ModelsUnknown, ServedModels
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.v2.handlers import models
from app_server_protocol.encoding import Json
from app_server_protocol.v2.models import MODEL_LIST
from tests.docs.markdown_blocks import ROOT
from tests.engine.model.scripted import IDENTITY, ScriptedAnswer, refused
from tests.support.callers import some_caller

PAGE: Final = ROOT / "docs" / "threads.md"

LOGINS: Final[Mapping[str, Credentials]] = {
    "OpenAI, with a key": Credentials("sk-mine", None, AuthMethod.API_KEY),
    "OpenAI, with a ChatGPT login": Credentials("token", "account", AuthMethod.CHATGPT),
}

KEYS: Final = {"OPENROUTER_API_KEY": "sk-or"}

FRESH_USERS: Final = (*LOGINS, "Ollama", "LM Studio", "llama.cpp")
"""Providers at which a user without a configured model gets one."""


class Documented:
    """One provider of the page: its settings, its answers, and the answer to `model/list`."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        settings, *parts = re.split(r"(?m)^((?:GET|POST) \S+|model/list)\n", text)
        self.settings = settings
        said = {head: json.loads(body) for head, body in zip(parts[::2], parts[1::2], strict=True)}
        self.shown: Json = said.pop("model/list")
        self.answers: Mapping[str, Json] = said
        self.asked: list[str] = []

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[ScriptedAnswer]:
        asked = f"{request.method} {urlsplit(request.url).path}"
        self.asked.append(asked)
        body = self.answers.get(asked)
        yield refused(404, {}) if body is None else ScriptedAnswer((json.dumps(body).encode(),), 200, {})


def documented() -> list[Documented]:
    blocks = re.findall(
        r"(?ms)^\*\*([^*\n]+)\*\*[^\n]*\n\n"
        r"<!-- run by tests/docs/test_documented_model_lists\.py -->\n```text\n(.*?)^```",
        PAGE.read_text(encoding="utf-8"),
    )
    return [Documented(name, text) for name, text in blocks]


@asynccontextmanager
async def known(provider: Documented, home: Path) -> AsyncIterator[KnownModels]:
    login = LOGINS.get(provider.name)

    async def ask(config: Config, caller: ActiveClient) -> ServedModels | ModelsUnknown:
        return await Discovery(config.provider, provider, env=KEYS, identity=IDENTITY, login=login).ask(
            config.thread.model
        )

    async with anyio.create_task_group() as group:
        yield KnownModels(home, ask, lambda config, caller: "", group, lambda: 1e9)


def source(provider: Documented, home: Path) -> UserSettings:
    (home / "config.toml").write_text(provider.settings)
    return UserSettings(home=home, cwd=home, environment={})


async def listed(provider: Documented, home: Path) -> Json:
    """Return the answer of `model/list` to a client of a server with this provider."""
    async with known(provider, home) as lists:

        async def served(config: Config, caller: ClientContext) -> ModelFacts:
            return await lists.listed(config, ActiveClient(caller, {}))

        services = SimpleNamespace(
            config=source(provider, home),
            engine=SimpleNamespace(models=served),
            client=SimpleNamespace(caller=some_caller()),
        )
        answer = await models.model_list(cast("ConnectionContext", services), MODEL_LIST.parse({}))
        return answer.to_value()


@pytest.mark.parametrize("provider", documented(), ids=lambda provider: provider.name)
async def test_a_provider_is_listed_as_the_page_shows(provider: Documented, tmp_path: Path) -> None:
    answer = await listed(provider, tmp_path)
    shown = provider.shown["data"]
    assert [each["model"] for each in answer["data"]] == [each["model"] for each in shown]
    for found, expected in zip(answer["data"], shown, strict=True):
        assert {key: found[key] for key in expected} == expected
    assert set(provider.answers) <= set(provider.asked)


@pytest.mark.parametrize("provider", documented(), ids=lambda provider: provider.name)
async def test_who_names_no_model_gets_one_that_exists_or_is_told_which_there_are(
    provider: Documented, tmp_path: Path
) -> None:
    config = source(provider, tmp_path).load()
    shown = provider.shown["data"]
    async with known(provider, tmp_path) as lists:
        caller = ActiveClient(some_caller(), {})
        await lists.asked(config, caller, 1.0)
        if provider.name in FRESH_USERS:
            chosen = (await lists.with_model(config, caller)).thread.model
            assert [each["model"] for each in shown if each["isDefault"]] == [chosen]
        else:
            with pytest.raises(Exception, match=f"offers {re.escape(shown[0]['model'])}"):
                await lists.with_model(config, caller)
        gone = await lists.offer(config, caller, "gpt-5-codex")
        assert gone.startswith(f"It offers {shown[0]['model']}")
        assert "(model/list)" in gone


def test_every_kind_of_provider_is_shown() -> None:
    names = {each.name for each in documented()}
    assert names == {*FRESH_USERS, "OpenRouter"}
