"""Requests about the possible settings of a thread: configuration, models, account, names of sandboxes, features,
modes.
"""

import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app_server.engine.auth.accounts import Accounts
from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.client_context import ClientContext
from app_server.engine.config.config_values import CliOverrides, Config
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.context.skills.skill import SkillSet
from app_server.engine.model.model_facts import ModelFacts
from app_server.engine.model.served_models import ServedModel, ServedModels
from app_server.engine.support.lazy import Lazy
from app_server.server.apis.contexts import ConnectionContext, MadeOnFirstUse
from app_server.server.apis.v2.handlers import account, configuration, models
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.parse import read
from app_server_protocol.policy import ReasoningEffort
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.v1.setup import ModelListResponse
from app_server_protocol.v2.account import ACCOUNT_READ
from app_server_protocol.v2.config import CONFIG_READ
from app_server_protocol.v2.models import (
    EXPERIMENTAL_FEATURE_ENABLEMENT_SET,
    EXPERIMENTAL_FEATURE_LIST,
    MODEL_LIST,
    MODEL_PROVIDER_CAPABILITIES_READ,
    MODEL_PROVIDER_LIST,
)
from app_server_protocol.v2.settings import PERMISSION_PROFILE_LIST
from tests.support.callers import some_caller

Handler = Callable[..., Awaitable[JsonSerializable]]


def source(home: Path, text: str = "", cli: CliOverrides | None = None) -> UserSettings:
    (home / "config.toml").write_text(text)
    return UserSettings(home=home, cwd=home, cli=cli or CliOverrides(), environment={})


async def config_read(config: UserSettings, **params: Json) -> Json:
    return (await configuration.config_read(services(config), CONFIG_READ.parse(params))).to_value()


async def test_settings_have_values_and_origins(tmp_path: Path) -> None:
    text = 'model = "m"\nmodel_provider = "openai"\nfoo = 1\n[tools]\nweb_search = true\n'
    config = source(tmp_path, text, CliOverrides(settings=(("approval_policy", "on-failure"),)))
    answer = await config_read(config)
    shown = answer["config"]
    assert (shown["model"], shown["foo"], shown["approval_policy"]) == ("m", 1, "on-request")
    assert (shown["sandbox_mode"], shown["model_context_window"], answer["layers"]) == (None, None, None)
    assert shown["tools"] == {"web_search": None}
    user = {"type": "user", "file": str(tmp_path / "config.toml"), "profile": None}
    assert answer["origins"]["model"]["name"] == user
    assert answer["origins"]["model"]["version"].startswith("sha256:")
    assert answer["origins"]["approval_policy"]["name"] == {"type": "sessionFlags"}
    assert set(answer["origins"]) == {"model", "model_provider", "foo", "tools.web_search", "approval_policy"}


async def test_layers_are_told_where_they_are_asked_for(tmp_path: Path) -> None:
    config = source(tmp_path, '[profiles.p]\nmodel = "m"\n', CliOverrides(profile="p"))
    layers = (await config_read(config, includeLayers=True))["layers"]
    assert [(layer["name"]["type"], layer["name"]["profile"]) for layer in layers] == [
        ("user", "p"),
        ("user", None),
    ]
    assert [layer["config"] for layer in layers] == [{"model": "m"}, {"profiles": {"p": {"model": "m"}}}]


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({"tools": {"web_search": True, "view_image": False}}, {"tools": {"web_search": None}}),
        ({"tools": 7}, {"tools": None}),
        ({"analytics": {"enabled": "maybe"}}, {"analytics": {"enabled": None}}),
        (
            {"sandbox_workspace_write": {"writable_roots": [1], "network_access": True}},
            {
                "sandbox_workspace_write": {
                    "writable_roots": [],
                    "network_access": True,
                    "exclude_tmpdir_env_var": False,
                    "exclude_slash_tmp": False,
                }
            },
        ),
        ({"forced_chatgpt_workspace_id": {"a": 1}, "x": {"y": [1]}}, {"x": {"y": [1]}}),
    ],
)
def test_settings_of_another_shape_are_left_out(settings: Json, shown: Json) -> None:
    before = json.dumps(settings)
    value = configuration.shown_config(settings).to_value()
    assert {key: value[key] for key in shown} == shown
    assert json.dumps(settings) == before


async def listed(handler: Handler, row: Json, context: ConnectionContext, **params: Json) -> Json:
    return (await handler(context, row.parse(params))).to_value()


async def test_small_lists(tmp_path: Path) -> None:
    config = source(tmp_path, "[features]\nunified_exec = true\n")
    assert configuration.NO_REQUIREMENTS.to_value() == {"requirements": None}
    profiles = await listed(configuration.permission_profile_list, PERMISSION_PROFILE_LIST, services(config))
    assert [each["id"] for each in profiles["data"]] == [":read-only", ":workspace", ":danger-full-access"]
    assert profiles["nextCursor"] is None
    assert configuration.MODES.to_value()["data"] == [
        {"name": "Plan", "mode": "plan", "model": None, "reasoning_effort": "medium"},
        {"name": "Default", "mode": "default", "model": None, "reasoning_effort": None},
    ]


async def test_features_are_listed_by_pages_and_switched(tmp_path: Path) -> None:
    config = source(tmp_path, "[features]\nunified_exec = true\n")
    context = services(config)

    async def listed(**params: Json) -> Json:
        row = EXPERIMENTAL_FEATURE_LIST
        return (await models.experimental_feature_list(context, row.parse(params))).to_value()

    everything = await listed()
    [unified] = [each for each in everything["data"] if each["name"] == "unified_exec"]
    assert (unified["enabled"], unified["defaultEnabled"]) == (True, False)
    assert unified["stage"] == "underDevelopment"
    first = await listed(limit=3)
    rest = await listed(cursor=first["nextCursor"])
    assert first["data"] + rest["data"] == everything["data"]
    with pytest.raises(RpcError, match="invalid cursor: zzz"):
        await listed(cursor="zzz")
    asked = {"unified_exec": False, "web_search": True, "of_another_server": True}
    row = EXPERIMENTAL_FEATURE_ENABLEMENT_SET
    response = await models.experimental_feature_enablement_set(context, row.parse({"enablement": asked}))
    assert response.enablement == {"unified_exec": False, "web_search_request": True}
    on = {each["name"] for each in (await listed())["data"] if each["enabled"]}
    assert {"unified_exec", "web_search_request"} <= on  # the file has priority over the switch


async def test_providers_are_listed_without_credentials(tmp_path: Path) -> None:
    text = (
        'model_provider = "b"\n[model_providers.a]\nname = "A"\nenv_key = "A_KEY"\n'
        'base_url = "https://me:s3cr3t@host/v1"\n'
        '[model_providers.b]\nname = "B"\nbase_url = "http://b/v1"\nwire_api = "responses"\n'
        '[model_providers.c]\nname = "C"\nexperimental_bearer_token = "s3cr3t"\n'
    )
    row = MODEL_PROVIDER_LIST
    answer = await listed(models.model_provider_list, row, services(source(tmp_path, text)))
    shown = {each["id"]: (each["baseUrl"], each["settings"]) for each in answer["data"]}
    assert answer["defaultProviderId"] == "b"
    gateway = {"type": "customGateway"}
    assert shown["a"] == (None, gateway | {"auth": {"mode": "environmentVariable", "envKey": "A_KEY"}})
    assert shown["b"] == ("http://b/v1", gateway | {"auth": {"mode": "none"}})
    assert shown["c"] == (None, gateway | {"auth": {"mode": "externallyConfigured", "envKey": None}})
    assert shown["openai"] == (None, {"type": "openai"})
    assert "s3cr3t" not in json.dumps(answer)


@pytest.mark.parametrize(("wire_api", "searches"), [("responses", True), ("chat", False)])
async def test_what_a_provider_can_do(tmp_path: Path, wire_api: str, searches: bool) -> None:
    text = f'model_provider = "p"\n[model_providers.p]\nname = "P"\nwire_api = "{wire_api}"\n'
    row = MODEL_PROVIDER_CAPABILITIES_READ
    answer = await listed(models.model_provider_capabilities_read, row, services(source(tmp_path, text)))
    assert answer == {"imageGeneration": False, "webSearch": searches}


async def test_models_of_a_provider_or_a_page_that_is_none(tmp_path: Path) -> None:
    context = services(source(tmp_path))
    with pytest.raises(RpcError) as caught:
        await models.model_list(context, MODEL_LIST.parse({"modelProvider": "zz"}))
    assert caught.value.data == {"type": "modelProviderNotConfigured", "modelProvider": "zz"}
    for cursor in ("nonsense", "99999"):
        with pytest.raises(RpcError, match="cursor"):
            await models.model_list(context, MODEL_LIST.parse({"cursor": cursor}))


class OneMore:
    """Engine whose provider serves one model of the catalogue."""

    async def models(self, config: Config, caller: ClientContext) -> ModelFacts:
        served = (
            ServedModel(row=ModelRow(slug=name)) for name in ("gpt-6.2-sol", "gpt-5.5", "of-the-provider")
        )
        return ModelFacts(config, ServedModels(kind="openai", models=tuple(served)))


async def test_both_apis_list_the_same_models(tmp_path: Path) -> None:
    """A client that uses the older shape finds all its fields in the newer one. The older shape lacks some efforts,
    which its clients are shown all the same.
    """
    context = services(source(tmp_path))
    pages: list[Json] = []
    cursor = None
    while True:
        response = await models.model_list(context, MODEL_LIST.parse({"cursor": cursor, "limit": 2}))
        pages.append(response.to_value())
        if (cursor := response.next_cursor) is None:
            break
    assert len(pages) == 1
    for page in pages:
        for model in page["data"]:
            model["supportedReasoningEfforts"] = [
                each
                for each in model["supportedReasoningEfforts"]
                if each["reasoningEffort"] in set(ReasoningEffort)
            ]
        parsed = read(ModelListResponse, page)
        assert parsed.next_cursor == page["nextCursor"]
        for one, other in zip(parsed.to_value()["data"], page["data"], strict=True):
            assert one == {key: other[key] for key in one}
            assert not other["hidden"]
            assert other["inputModalities"] == ["text", "image"]
            assert other["additionalSpeedTiers"] == ["fast"]
            assert [each["id"] for each in other["serviceTiers"]] == ["priority"]
    everything = [model for page in pages for model in page["data"]]
    assert [model["model"] for model in everything] == ["gpt-6.2-sol", "gpt-5.5"]
    assert [model["isDefault"] for model in everything] == [True, False]
    assert everything[1]["upgradeInfo"]["model"] == everything[1]["upgrade"] == "gpt-6-sol"
    hidden = await models.model_list(context, MODEL_LIST.parse({"includeHidden": True}))
    assert {each.model for each in hidden.data if each.hidden} > {"gpt-6.2-astra", "gpt-5.4"}


class NoSkills:
    async def list(self, cwd: Path) -> SkillSet:
        return SkillSet()


def services(config: UserSettings, login: Json = None) -> ConnectionContext:
    given = SimpleNamespace(
        config=config,
        accounts=accounts(config, login),
        engine=OneMore(),
        conversations=None,
        host=SimpleNamespace(skills=Lazy(NoSkills)),
        client=SimpleNamespace(caller=some_caller()),
        shared=MadeOnFirstUse(),
        own=MadeOnFirstUse(),
    )
    return cast("ConnectionContext", given)


NEEDS_NO_LOGIN = 'model_provider = "p"\n[model_providers.p]\nname = "P"\n'


def accounts(settings: UserSettings, stored: Json) -> Accounts:
    if stored is not None:
        (settings.home / "auth.json").write_text(json.dumps(stored))
    nothing = cast("Any", None)
    auth = AuthManager(settings.home, clock=lambda: 0.0, issuer=nothing)
    return Accounts(
        auth, settings, nothing, nothing, originator=nothing, new_id=nothing, random=nothing, env={}
    )


def token(**claims: Json) -> str:
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)
    ]
    return ".".join((*parts, "x"))


def chatgpt(plan: str | None) -> Json:
    claims = {"email": "me@example.com", "https://api.openai.com/auth": {"chatgpt_plan_type": plan}}
    tokens = {"id_token": token(**claims), "access_token": token(exp=9e9), "refresh_token": "r"}
    return {"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("text", "stored", "shown", "required"),
    [
        ("", None, None, True),
        ("", {"OPENAI_API_KEY": "sk-x"}, {"type": "apiKey"}, True),
        (NEEDS_NO_LOGIN, {"OPENAI_API_KEY": "sk-x"}, None, False),
        ("", chatgpt("pro"), {"type": "chatgpt", "email": "me@example.com", "planType": "pro"}, True),
        ("", chatgpt("brand_new"), {"type": "chatgpt", "planType": "unknown"}, True),
        ("", chatgpt(None), {"type": "chatgpt", "planType": "unknown"}, True),
    ],
)
async def test_accounts(tmp_path: Path, text: str, stored: Json, shown: Json, *, required: bool) -> None:
    context = services(source(tmp_path, text), stored)
    answer = (await account.account_read(context, ACCOUNT_READ.parse({}))).to_value()
    assert answer["requiresOpenaiAuth"] is required
    if shown is None:
        assert answer["account"] is None
    else:
        assert shown.items() <= answer["account"].items()
    assert "sk-x" not in json.dumps(answer)
