"""Facts about models from each kind of server, and the model that a conversation gets from them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import anyio
import pytest

from app_server.engine.auth.credentials import AuthMethod, Credentials
from app_server.engine.client_context import ActiveClient
from app_server.engine.config.config_values import Config, ProviderConfig, WireApi
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.config.model_tables import ModelSettings, ModelTables
from app_server.engine.config.providers import built_in_providers
from app_server.engine.http.interface import Fault, HttpFailure, HttpRequest
from app_server.engine.model.discovery import Discovery
from app_server.engine.model.known_models import FILE_NAME, KnownModels
from app_server.engine.model.model_facts import LOCAL_WINDOW, ModelFacts, wire_settled
from app_server.engine.model.served_models import ModelsUnknown, ServedModel, ServedModels
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.values import replace
from tests.engine.model.scripted import IDENTITY, ScriptedAnswer, refused
from tests.support.callers import some_caller


class Server:
    """Server that answers requests by method and path, and everything else with a 404."""

    def __init__(self, answers: Mapping[str, Json], headers: Mapping[str, str] | None = None) -> None:
        self.answers, self.headers = answers, headers or {}
        self.requests: list[HttpRequest] = []

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[ScriptedAnswer]:
        self.requests.append(request)
        path = urlsplit(request.url).path
        body = self.answers.get(f"{request.method} {path}")
        if body is None:
            yield refused(404, "404 page not found")
        else:
            yield ScriptedAnswer((json.dumps(body).encode(),), 200, {**self.headers})

    @property
    def asked(self) -> list[str]:
        return [urlsplit(each.url).path for each in self.requests]


def config_of(provider: ProviderConfig, model: str = "", home: Path = Path("/h"), **fields: Json) -> Config:
    return Config(
        home=home,
        thread=ThreadSettings(cwd=str(home), model=model),
        model=ModelSettings(**fields),
        provider=provider,
        providers={provider.id: provider},
    )


def custom(id: str = "mine", url: str = "http://models.test/v1") -> ProviderConfig:
    return ProviderConfig(id=id, name=id, base_url=url)


async def learn(
    provider: ProviderConfig, server: Server, model: str = "", login: Credentials | None = None
) -> ServedModels:
    found = await Discovery(provider, server, env={}, identity=IDENTITY, login=login).ask(model)
    assert isinstance(found, ServedModels), found
    return found


def window(served: ServedModels, name: str, provider: ProviderConfig) -> int | None:
    return ModelFacts(config_of(provider), served).row(name).context_window


BUILT_IN = built_in_providers({})

OLLAMA = Server(
    {
        "GET /api/tags": {
            "models": [
                {"name": "old:7b", "modified_at": "2025-01-01T00:00:00Z"},
                {"name": "qwen3-coder:30b", "modified_at": "2026-05-01T00:00:00Z"},
                {"name": "embed:latest", "modified_at": "2026-06-01T00:00:00Z"},
            ]
        },
        "GET /api/ps": {"models": [{"name": "qwen3-coder:30b", "context_length": 4096}]},
        "POST /api/show": {
            "capabilities": ["completion", "tools"],
            "model_info": {"qwen3.context_length": 262144},
        },
    }
)


async def test_ollama_says_the_window_of_the_model_that_is_loaded() -> None:
    ollama = BUILT_IN["ollama"]
    served = await learn(ollama, OLLAMA, "qwen3-coder:30b")
    facts = ModelFacts(config_of(ollama), served)
    assert facts.row("qwen3-coder:30b").context_window == 4096
    assert not facts.row("qwen3-coder:30b").sees_images
    assert facts.default() == "qwen3-coder:30b"
    assert facts.names() == ["embed:latest", "qwen3-coder:30b", "old:7b"]
    assert facts.assumed_window == LOCAL_WINDOW


async def test_ollama_is_known_by_its_list_under_any_name() -> None:
    answers = {
        **OLLAMA.answers,
        "GET /v1/models": {"data": [{"id": "qwen3-coder:30b", "owned_by": "library"}]},
    }
    served = await learn(custom(), Server(answers))
    assert (served.kind, window(served, "qwen3-coder:30b", custom())) == ("ollama", 4096)


async def test_the_default_of_a_local_server_calls_tools() -> None:
    models = (
        ServedModel(row=ModelRow(slug="loaded"), loaded=True, tools=False),
        ServedModel(row=ModelRow(slug="newest"), tools=True),
    )
    facts = ModelFacts(config_of(BUILT_IN["ollama"]), ServedModels(kind="ollama", models=models))
    assert facts.default() == "newest"
    assert [row.slug for row in facts.listed() if row.hidden] == ["loaded"]


LMSTUDIO: Json = {
    "models": [
        {
            "type": "llm",
            "key": "qwen/qwen3-8b",
            "display_name": "Qwen3 8B",
            "max_context_length": 131072,
            "capabilities": {"vision": False, "trained_for_tool_use": True},
            "loaded_instances": [{"id": "qwen/qwen3-8b", "config": {"context_length": 8192}}],
        },
        {"type": "embedding", "key": "nomic-embed"},
    ]
}


@pytest.mark.parametrize(
    "answers",
    [
        {"GET /api/v1/models": LMSTUDIO},
        {
            "GET /api/v0/models": {
                "data": [
                    {
                        "id": "qwen/qwen3-8b",
                        "type": "llm",
                        "state": "loaded",
                        "max_context_length": 131072,
                        "loaded_context_length": 8192,
                        "capabilities": ["tool_use"],
                    },
                    {"id": "nomic-embed", "type": "embeddings"},
                ]
            }
        },
    ],
)
async def test_lm_studio_says_the_window_of_a_loaded_instance(answers: dict[str, Json]) -> None:
    lmstudio = BUILT_IN["lmstudio"]
    served = await learn(lmstudio, Server(answers))
    facts = ModelFacts(config_of(lmstudio), served)
    assert (facts.default(), served.names) == ("qwen/qwen3-8b", ("qwen/qwen3-8b",))
    row = facts.row("qwen/qwen3-8b")
    assert (row.context_window, row.max_context_window, row.sees_images) == (8192, 131072, False)


async def test_llama_cpp_says_the_window_that_it_runs_with() -> None:
    """The window is never the one that the model was trained on; a router's placeholder is ignored."""
    listed: Json = {
        "data": [{"id": "m.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}}]
    }
    served = await learn(custom(), Server({"GET /v1/models": listed}))
    assert window(served, "anything", custom()) == 8192
    bare: Json = {"data": [{"id": "m.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}]}
    props: Json = {"default_generation_settings": {"n_ctx": 4096}, "modalities": {"vision": True}}
    served = await learn(custom(), Server({"GET /v1/models": bare, "GET /props": props}), "m.gguf")
    assert window(served, "m.gguf", custom()) == 4096
    router: Json = {"default_generation_settings": {"n_ctx": 0}}
    served = await learn(custom(), Server({"GET /v1/models": bare, "GET /props": router}), "m.gguf")
    assert window(served, "m.gguf", custom()) is None


async def test_vllm_litellm_and_openrouter() -> None:
    vllm: Json = {"data": [{"id": "org/m", "owned_by": "vllm", "max_model_len": 32768}]}
    served = await learn(custom(), Server({"GET /v1/models": vllm}))
    assert (served.kind, window(served, "org/m", custom())) == ("vllm", 32768)

    info: Json = {
        "data": [
            {
                "model_name": "team-model",
                "model_info": {
                    "max_input_tokens": 100000,
                    "max_output_tokens": 8000,
                    "supports_vision": False,
                },
            }
        ]
    }
    lite = Server(
        {"GET /v1/models": {"data": [{"id": "team-model"}]}, "GET /model/info": info},
        {"x-litellm-version": "1.80"},
    )
    served = await learn(custom(), lite)
    row = ModelFacts(config_of(custom()), served).row("team-model")
    assert (row.context_window, row.max_output_tokens, row.sees_images) == (100000, 8000, False)

    router = custom("openrouter", "https://openrouter.ai/api/v1")
    listed: Json = {
        "data": [
            {
                "id": "z-ai/glm-5.2",
                "name": "GLM 5.2",
                "context_length": 202752,
                "top_provider": {"max_completion_tokens": 65536},
                "supported_parameters": ["tools"],
                "architecture": {"input_modalities": ["text"]},
            },
            {"id": "a/no-tools", "context_length": 8192, "supported_parameters": ["temperature"]},
        ]
    }
    served = await learn(router, Server({"GET /api/v1/models": listed}))
    facts = ModelFacts(config_of(router), served)
    assert (facts.names(), facts.default()) == (["z-ai/glm-5.2"], None)
    assert facts.row("z-ai/glm-5.2").context_window == 202752


async def test_openai_with_a_key_lists_the_rows_that_the_key_is_served() -> None:
    openai = BUILT_IN["openai"]
    key = Credentials(method=AuthMethod.API_KEY, bearer="k", account_id=None)
    ids: Json = {
        "data": [{"id": name, "owned_by": "system"} for name in ("gpt-6-sol", "gpt-5.5", "dall-e-3")]
    }
    server = Server({"GET /v1/models": ids})
    facts = ModelFacts(config_of(openai), await learn(openai, server, login=key))
    assert (facts.names(), facts.default()) == (["gpt-6-sol", "gpt-5.5"], "gpt-6-sol")
    assert "gpt-6.2-sol" in [row.slug for row in facts.listed()]
    assert ModelFacts(config_of(openai)).default() == "gpt-6.2-sol"


async def test_a_chatgpt_login_is_served_rows() -> None:
    openai = BUILT_IN["openai"]
    login = Credentials(method=AuthMethod.CHATGPT, bearer="t", account_id="acc")
    rows: Json = {
        "models": [
            {
                "slug": "gpt-7-sol",
                "priority": 1,
                "context_window": 400000,
                "supported_reasoning_levels": ["low"],
            },
            {"slug": "gpt-6.2-sol", "priority": 2, "visibility": "hide"},
            {"slug": "bad", "context_window": "many"},
        ]
    }
    server = Server({"GET /backend-api/codex/models": rows})
    facts = ModelFacts(config_of(openai), await learn(openai, server, login=login))
    assert (facts.names(), facts.default()) == (["gpt-7-sol"], "gpt-7-sol")
    assert facts.row("gpt-7-sol").context_window == 400000
    [request] = server.requests
    version = dict(parse_qsl(urlsplit(request.url).query))["client_version"]
    assert (request.headers["version"], request.headers["chatgpt-account-id"]) == (version, "acc")


async def test_anthropic_says_windows_and_efforts() -> None:
    claude = custom("anthropic", "https://api.anthropic.com/v1")
    listed: Json = {
        "data": [
            {
                "id": "claude-opus-9",
                "display_name": "Claude Opus 9",
                "max_input_tokens": 2000000,
                "max_tokens": 256000,
                "capabilities": {
                    "effort": {"supported": True, "low": {"supported": True}, "max": {"supported": False}}
                },
            }
        ]
    }
    server = Server({"GET /v1/models": listed})
    row = ModelFacts(config_of(claude), await learn(claude, server)).row("claude-opus-9")
    assert (row.context_window, row.max_output_tokens, row.efforts) == (2000000, 256000, ("low",))
    assert server.requests[0].headers["anthropic-version"]


@pytest.mark.parametrize("entry", [None, 3, {}, {"id": 3}, {"id": "a\nb"}, {"id": "x" * 5000}])
async def test_entries_that_are_none_are_left_out(entry: Json) -> None:
    served = await learn(
        custom(), Server({"GET /v1/models": {"data": [entry, {"id": "a", "context_length": -4}]}})
    )
    assert (served.names, window(served, "a", custom())) == (("a",), None)


def test_the_users_tables_are_laid_over_everything() -> None:
    served = ServedModels(models=(ServedModel(row=ModelRow(slug="m-1", context_window=8192)),))
    tables = {"m-*": {"context_window": 16384}, "m-1": {"max_output_tokens": 500}}
    config = replace(config_of(custom(), "other"), models=ModelTables(tables=tables))
    facts = ModelFacts(config, served)
    assert (facts.row("m-1").context_window, facts.row("m-1").max_output_tokens) == (8192, 500)
    assert facts.row("m-2").context_window == 16384
    assert facts.names() == ["other", "m-1"]
    assert not facts.is_unknown("m-2")
    assert ModelFacts(config).is_unknown("nothing")


def test_the_users_catalogue_replaces_ours() -> None:
    good = b'{"models": [{"slug": "own", "context_window": 1000}]}'
    config = replace(config_of(BUILT_IN["openai"]), models=ModelTables(catalogue=good))
    assert (ModelFacts(config).default(), ModelFacts(config).row("own").context_window) == ("own", 1000)


def test_the_api_is_that_of_the_host_unless_the_user_chose_one() -> None:
    openai_host = custom("gateway", "https://api.openai.com/v1")
    assert wire_settled(openai_host).wire_api is WireApi.RESPONSES
    assert wire_settled(replace(openai_host, says_wire=True)).wire_api is WireApi.CHAT
    assert wire_settled(custom()).wire_api is WireApi.CHAT


# --- when a provider is asked
class Asked:
    """Provider that records its requests, and answers when the test lets it."""

    def __init__(self, answer: ServedModels | ModelsUnknown) -> None:
        self.answer, self.count = answer, 0
        self.let = anyio.Event()
        self.let.set()

    async def ask(self, config: Config, caller: ActiveClient) -> ServedModels | ModelsUnknown:
        self.count += 1
        await self.let.wait()
        return self.answer


@asynccontextmanager
async def knowing(home: Path, asked: Asked, clock: float = 1e9) -> AsyncIterator[KnownModels]:
    async with anyio.create_task_group() as group:
        yield KnownModels(home, asked.ask, lambda config, caller: "", group, lambda: clock)


CALLER = ActiveClient(some_caller(), {})
ONE = ServedModels(models=(ServedModel(row=ModelRow(slug="a", context_window=9000, description="a text")),))


async def test_a_list_is_kept_for_the_next_server_and_for_a_day(tmp_path: Path) -> None:
    config, asked = config_of(custom(), "a", tmp_path), Asked(ONE)
    async with knowing(tmp_path, asked) as known:
        assert not known.facts(config, CALLER).is_known
        assert asked.count == 0
        assert (await known.listed(config, CALLER)).row("a").context_window == 9000
    path = tmp_path / FILE_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"a text" not in path.read_bytes()
    assert b"models.test" not in path.read_bytes()
    async with knowing(tmp_path, asked) as known:
        assert known.facts(config, CALLER).is_known
    async with knowing(tmp_path, asked, clock=1e9 + 100_000) as known:
        assert not known.facts(config, CALLER).is_known
    path.write_bytes(b"{nonsense")
    async with knowing(tmp_path, asked) as known:
        assert not known.facts(config, CALLER).is_known


async def test_nobody_waits_long_for_a_provider_that_hangs(tmp_path: Path) -> None:
    config, asked = config_of(custom(), "a", tmp_path), Asked(ONE)
    asked.let = anyio.Event()
    with anyio.fail_after(5):
        async with knowing(tmp_path, asked) as known:
            assert not (await known.listed(config, CALLER)).is_known
            assert (await known.with_model(config, CALLER)).thread.model == "a"
            known.turn_ended(config, CALLER)
            assert asked.count == 1
            asked.let.set()


async def test_a_failure_is_not_repeated_at_once(tmp_path: Path) -> None:
    config, asked = config_of(custom(), "a", tmp_path), Asked(ModelsUnknown("no", 404))
    async with knowing(tmp_path, asked) as known:
        await known.listed(config, CALLER)
        await known.listed(config, CALLER)
        assert asked.count == 1
        known.turn_ended(config, CALLER)
        await known.asked(config, CALLER, 1.0)
        known.turn_ended(config, CALLER)
    assert asked.count == 2


async def test_who_names_no_model_gets_one_or_is_told_which_there_are(tmp_path: Path) -> None:
    many = ServedModels(models=tuple(ServedModel(row=ModelRow(slug=each)) for each in "abcd"))
    async with knowing(tmp_path, Asked(many)) as known:
        with pytest.raises(ConfigError, match=r"offers a, b, c and 1 more \(model/list shows all\)"):
            await known.with_model(config_of(custom(), home=tmp_path), CALLER)
        local = config_of(BUILT_IN["ollama"], home=tmp_path)
        assert (await known.with_model(local, CALLER)).thread.model == "a"
        assert "It offers b, c, d" in await known.offer(config_of(custom(), "a"), CALLER, "a")
    async with knowing(tmp_path, Asked(ServedModels(kind="ollama"))) as known:
        with pytest.raises(ConfigError, match="no model that calls tools; pull one"):
            await known.with_model(local, CALLER)
    down = ModelsUnknown("Connection refused", unreachable=True)
    async with knowing(tmp_path, Asked(down)) as known:
        with pytest.raises(ConfigError, match="No connection to http://localhost:11434: Connection refused"):
            await known.with_model(local, CALLER)
        with pytest.raises(ConfigError, match="Set `model` to one that the provider `elsewhere` serves"):
            await known.with_model(config_of(custom("elsewhere"), home=tmp_path), CALLER)
        assert await known.offer(config_of(BUILT_IN["openai"]), CALLER, "gpt-5.5") != ""


class Down(Server):
    """Server that does not run."""

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[ScriptedAnswer]:
        self.requests.append(request)
        if self.requests:
            raise HttpFailure(Fault.UNREACHABLE, "Connection refused")
        yield refused(404)


async def test_a_server_that_is_down_is_no_list() -> None:
    for provider in (custom(), BUILT_IN["ollama"], BUILT_IN["lmstudio"]):
        found = await Discovery(provider, Down({}), env={}, identity=IDENTITY).ask()
        assert found == ModelsUnknown("Connection refused", unreachable=True)


async def test_an_empty_list_over_responses_is_a_gateway_whose_menu_has_the_catalogue() -> None:
    empty: Json = {"object": "list", "data": [], "models": []}
    for wire, more in ((WireApi.RESPONSES, True), (WireApi.CHAT, False)):
        mine = replace(custom(), wire_api=wire)
        served = replace(await learn(mine, Server({"GET /v1/models": empty})), asked=1.0)
        facts = ModelFacts(config_of(mine, "mock-model"), served)
        assert facts.names()[0] == facts.default() == "mock-model"
        assert ("gpt-6.2-sol" in facts.names()) is more
        assert ModelFacts(config_of(mine, "mock-model")).names() == ["mock-model"]  # no request was sent yet
