"""Providers that answer differently than requested: over the other API, with another model, with another list of
models, or not at all because no user is logged in.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from app_server.engine.config.config_values import WireApi
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.http.interface import HttpRequest
from app_server.engine.model.available_providers import other_providers
from app_server.engine.model.catalogue import is_other_model
from app_server.engine.model.known_models import KnownModels
from app_server.engine.model.model_client import ModelClient
from app_server.engine.model.prompt import Completed, Rerouted
from app_server.engine.model.quirks import Lessons
from app_server.engine.model.served_models import ServedModel, ServedModels
from app_server.engine.support.engine_errors import ModelError
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace
from tests.engine.model.scripted import (
    COMPLETED,
    IDENTITY,
    SETTINGS,
    ScriptedAnswer,
    ScriptedHttp,
    answer,
    ask,
    client_for,
    message_done,
    refused,
)
from tests.engine.model.test_discovery import CALLER, Asked, config_of, custom, knowing

CHAT = {"wire_api": WireApi.CHAT}


def paths(http: ScriptedHttp) -> list[str]:
    return [urlsplit(each.url).path for each in http.requests]


# --- the other API
@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_provider_without_chat_completions_is_asked_over_the_responses_api(status: int) -> None:
    lessons = Lessons()
    http = ScriptedHttp(refused(status, "404 page not found"), answer(message_done("hi"), COMPLETED))
    events = await ask(_with(http, lessons, **CHAT))
    assert isinstance(events[-1], Completed)
    assert paths(http) == ["/v1/chat/completions", "/v1/responses"]
    again = ScriptedHttp(answer(message_done("hi"), COMPLETED))
    await ask(_with(again, lessons, **CHAT))
    assert paths(again) == ["/v1/responses"]


async def test_a_provider_that_serves_neither_api_is_reported_by_its_first_answer() -> None:
    lessons = Lessons()
    for _ in range(2):
        http = ScriptedHttp(refused(404, "no chat here"), refused(404, "no responses here"))
        with pytest.raises(ModelError, match="no chat here"):
            await ask(_with(http, lessons, **CHAT))
        assert paths(http) == ["/v1/chat/completions", "/v1/responses"]


async def test_an_api_that_somebody_chose_and_a_model_that_is_gone_change_no_api() -> None:
    chosen = ScriptedHttp(refused(404, "no chat here"))
    with pytest.raises(ModelError, match="no chat here"):
        await ask(_with(chosen, Lessons(), says_wire=True, **CHAT))
    gone = ScriptedHttp(refused(404, {"error": {"message": "no", "code": "model_not_found"}}))
    with pytest.raises(ModelError, match="does not offer the model"):
        await ask(_with(gone, Lessons(), **CHAT))
    assert (len(chosen.requests), len(gone.requests)) == (1, 1)


def _with(http: ScriptedHttp, lessons: Lessons, **provider: Json) -> ModelClient:
    return client_for(http, lessons=lessons, **provider)


# --- the other model
@pytest.mark.parametrize(
    ("asked", "answered", "other"),
    [
        ("gpt-6.2-sol", "gpt-6.2-sol", False),
        ("gpt-6.2-sol", "GPT-6.2-Sol", False),
        ("gpt-6.2-sol", "gpt-6.2-sol-2026-11-20", False),
        ("gpt-6.2-sol", "gpt-6-luna", True),
        ("some-model", "some-model", False),
        ("some-model", "another-model", True),
    ],
)
def test_a_version_of_a_model_is_no_other_one(asked: str, answered: str, *, other: bool) -> None:
    assert is_other_model(asked, answered) is other


@pytest.mark.parametrize(("provider", "expected"), [("openai", [Rerouted("gpt-6-luna")]), ("mock", [])])
async def test_only_openai_says_by_a_header_that_another_model_answers(
    provider: str, expected: list[Rerouted]
) -> None:
    http = ScriptedHttp(answer(message_done("hi"), COMPLETED, openai_model="gpt-6-luna"))
    events = await ask(client_for(http, id=provider), replace(SETTINGS, model="gpt-6.2-sol"))
    assert [each for each in events if isinstance(each, Rerouted)] == expected


# --- another list
async def test_an_answer_that_names_another_version_of_the_list_has_it_asked_for_once(tmp_path: Path) -> None:
    asked = Asked(ServedModels(kind="chatgpt", models=_models("a"), etag="one"))
    config = config_of(custom(), "a", tmp_path)
    async with knowing(tmp_path, asked) as known:
        known.saw_list(config, CALLER, "two")
        assert asked.count == 0  # nothing is known yet: the list is requested at the end of the first turn
        await known.asked(config, CALLER, 1.0)
        known.saw_list(config, CALLER, "one")
        await anyio.wait_all_tasks_blocked()
        assert asked.count == 1
        asked.answer = ServedModels(kind="chatgpt", models=_models("a", "b"), etag="one")
        known.saw_list(config, CALLER, "two")
        known.saw_list(config, CALLER, "two")
        while asked.count < 2 or not known.facts(config, CALLER).is_served("b"):
            await anyio.wait_all_tasks_blocked()
        known.saw_list(config, CALLER, "two")  # the provider's own list keeps another version
        await anyio.wait_all_tasks_blocked()
        assert asked.count == 2


async def test_a_window_that_was_learnt_counts_until_the_server_says_it(tmp_path: Path) -> None:
    config, lessons = config_of(custom(), "a", tmp_path), Lessons()
    asked = Asked(ServedModels(kind="ollama", models=_models("a", "b")))
    async with anyio.create_task_group() as group:
        known = KnownModels(tmp_path, asked.ask, lambda *_: "", group, lambda: 1e9, lessons)
        for name in ("a", "b"):
            known.learn_window(config, name, 4096)
        row = (await known.asked(config, CALLER, 1.0)).row("a")
        assert row.context_window == 4096, "the list says nothing of it"
        loaded = ServedModel(row=ModelRow(slug="a", context_window=65_536), loaded=True)
        asked.answer = ServedModels(kind="ollama", models=(loaded, *_models("b")))
        facts = await known.asked(config, CALLER, 1.0)
        assert [facts.row(name).context_window for name in ("a", "b")] == [65_536, 4096]


def _models(*names: str) -> tuple[ServedModel, ...]:
    return tuple(ServedModel(row=ModelRow(slug=name)) for name in names)


async def test_the_version_of_a_list_comes_with_an_answer() -> None:
    class Known:
        def __init__(self) -> None:
            self.seen: list[str] = []

        async def offer(self, model: str) -> str:
            return ""

        async def elsewhere(self) -> str:
            return "Ollama runs here with 1 model."

        def saw_list(self, etag: str) -> None:
            self.seen.append(etag)

    client = client_for(
        ScriptedHttp(answer(message_done("hi"), COMPLETED, x_models_etag='W/"7"'), refused(401))
    )
    client.known = known = Known()
    await ask(client)
    assert known.seen == ['W/"7"']


# --- addresses of Azure
@pytest.mark.parametrize("base", ["https://me.openai.azure.com/openai", "https://me.openai.azure.com/v1"])
async def test_an_unknown_address_of_azure_is_told_how_one_ends(base: str) -> None:
    body = {"error": {"code": "404", "message": "Resource not found"}}
    with pytest.raises(ModelError, match="the address of Azure ends in `/openai/v1`"):
        await ask(client_for(ScriptedHttp(refused(404, body)), base_url=base))


# --- no user is logged in
class Machine:
    """Local servers of a machine, by port."""

    def __init__(self, answers: dict[str, Json], *, hangs: bool = False) -> None:
        self.answers, self.hangs = answers, hangs

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[ScriptedAnswer]:
        if self.hangs:
            await anyio.sleep_forever()
        parts = urlsplit(request.url)
        body = self.answers.get(f"{parts.port}{parts.path}")
        yield refused(404, {}) if body is None else ScriptedAnswer((json.dumps(body).encode(),), 200, {})


OLLAMA = {"models": [{"name": "qwen3-coder:30b"}, {"name": "gpt-oss:20b"}]}
LM_STUDIO = {"models": [{"key": "a/b", "type": "llm"}]}


@pytest.mark.parametrize(
    ("answers", "env", "expected"),
    [
        ({}, {}, ""),
        (
            {"11434/api/tags": OLLAMA},
            {},
            'Ollama runs here with 2 models: set `model_provider = "ollama"`.',
        ),
        (
            {"1234/api/v1/models": LM_STUDIO},
            {"ANTHROPIC_API_KEY": "k"},
            'LM Studio runs here with 1 model: set `model_provider = "lmstudio"`.'
            ' ANTHROPIC_API_KEY is set: for Claude, set `model_provider = "anthropic"`.',
        ),
        ({"11434/api/tags": {"models": []}}, {"ANTHROPIC_API_KEY": " "}, ""),
    ],
)
async def test_who_has_no_key_is_told_of_what_runs_here(
    answers: dict[str, Json], env: dict[str, str], expected: str
) -> None:
    assert await other_providers(Machine(answers), env, IDENTITY) == expected


async def test_local_servers_that_hang_are_not_waited_for() -> None:
    with anyio.fail_after(5):
        assert await other_providers(Machine({}, hangs=True), {}, IDENTITY) == ""
