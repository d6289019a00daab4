"""What doctor says of settings, providers and MCP servers; and that it says no secret."""

import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from app_server.core.auth.home_login import AuthMethod, Credentials
from app_server.core.auth.storage import StoredAuth, Tokens
from app_server.core.config.load import load_config
from app_server.core.config.types import (
    CliOverrides,
    Config,
    McpServerConfig,
    McpStdioTransport,
    RequestOverrides,
)
from app_server.core.diagnostics.providers import check_mcp_servers, check_provider, checked_providers
from app_server.core.diagnostics.settings import Redaction, check_config
from app_server.core.errors import ConfigError
from app_server.core.exec.runner import CommandRunner
from app_server.core.mcp.interfaces import McpRuntime
from app_server.core.mcp.launch import LauncherSpawner
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.model_list import ModelList, ModelsUnknown
from protocol.checks import Check, CheckStatus

OK, WARNING, BROKEN = CheckStatus.OK, CheckStatus.WARNING, CheckStatus.BROKEN
MCP_SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"
MINE = """\
model = "small"
model_provider = "mine"
[model_providers.mine]
name = "Mine"
base_url = "http://models.test:8000/v1"
env_key = "MINE_KEY"
[model_providers.spare]
name = "Spare"
base_url = "http://spare.test/v1"
"""
KEY = {"MINE_KEY": "a-secret-key"}
LOGIN = Credentials("token", None, AuthMethod.CHATGPT)


def load(home: Path, text: str, env: Mapping[str, str] | None = None) -> Config:
    (home / "config.toml").write_text(text)
    return load_config(home, cwd=home, cli=CliOverrides(), request=RequestOverrides(), env=env or {})


# --- settings
def test_settings_that_cannot_be_used_are_broken_at_their_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "\n\nmodel = 3\n")
    [check] = check_config(tmp_path, caught.value)
    assert check.status is BROKEN
    assert f"{tmp_path}/config.toml:3:1" in check.found
    assert "`model` must be a string" in check.found
    assert f"{tmp_path}/config.toml:3:1" in check.advice


def test_each_setting_without_effect_is_a_warning(tmp_path: Path) -> None:
    config = load(tmp_path, "mdoel = 'x'\nzzz = 1\nexperimental_use_unified_exec_tool = true\n")
    checks = check_config(tmp_path, config)
    assert [check.status for check in checks] == [WARNING] * 3
    assert "did you mean `model`?" in checks[0].found
    assert "[features].unified_exec" in checks[2].advice


def test_good_settings_are_ok(tmp_path: Path) -> None:
    assert [check.status for check in check_config(tmp_path, load(tmp_path, MINE))] == [OK]


# --- providers
def about(
    home: Path,
    answer: ModelList | ModelsUnknown | None = None,
    *,
    which: str = "mine",
    env: Mapping[str, str] = KEY,
    text: str = MINE,
    login: Credentials | None = None,
) -> Check:
    config = load(home, text, env)
    return check_provider(config, config.providers[which], env, login, answer)


def test_the_provider_in_use_and_configured_ones_are_checked(tmp_path: Path) -> None:
    assert [each.id for each in checked_providers(load(tmp_path, MINE), {})] == ["mine", "spare"]
    assert [each.id for each in checked_providers(load(tmp_path, ""), {})] == ["openai"]


def test_nothing_is_known_of_a_provider_that_was_not_asked(tmp_path: Path) -> None:
    check = about(tmp_path)
    assert check.found == "http://models.test:8000, key in MINE_KEY; not asked without --online"


def test_a_provider_that_answers_is_ok(tmp_path: Path) -> None:
    check = about(tmp_path, ModelList(("small", "large")))
    assert (check.status, "offers 2 models" in check.found) == (OK, True)
    assert about(tmp_path, ModelList(("small:latest",))).status is OK


def test_a_model_that_is_not_offered_is_a_warning(tmp_path: Path) -> None:
    """Some providers list fewer models than they have."""
    check = about(tmp_path, ModelList(("a", "b")))
    assert (check.status, check.found) == (WARNING, "The provider `mine` does not offer the model `small`")
    assert check.advice.endswith(": a, b")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ModelsUnknown("unexpected status 401 Unauthorized", 401), "refused the key in MINE_KEY"),
        (ModelsUnknown("Connection refused", unreachable=True), "No connection to http://models.test:8000"),
        (ModelsUnknown("unexpected status 503 Service Unavailable", 503), "503"),
    ],
)
def test_a_provider_that_fails_is_broken_if_it_is_in_use(
    answer: ModelsUnknown, words: str, tmp_path: Path
) -> None:
    check = about(tmp_path, answer)
    assert (check.status, words in check.found, bool(check.advice)) == (BROKEN, True, True)
    assert about(tmp_path, answer, which="spare").status is WARNING


def test_a_provider_without_a_list_of_models_is_a_warning(tmp_path: Path) -> None:
    check = about(tmp_path, ModelsUnknown("unexpected status 404 Not Found", 404))
    assert (check.status, "cannot be checked" in check.found) == (WARNING, True)
    assert about(tmp_path, ModelsUnknown("the answer is no list of models")).status is WARNING


def test_what_a_request_would_lack_is_broken(tmp_path: Path) -> None:
    check = about(tmp_path, env={})
    assert (check.status, check.found) == (BROKEN, "Missing environment variable: `MINE_KEY`")
    told = about(
        tmp_path, env={}, text=MINE + "env_key = 'SPARE'\nenv_key_instructions = 'Ask Ann.'\n", which="spare"
    )
    assert (told.status, told.advice) == (WARNING, "Ask Ann.")
    openai = about(tmp_path, which="openai", text="", env={})
    assert (openai.status, openai.found) == (BROKEN, "Nobody is logged in")
    without = about(tmp_path, which="x", text='model_provider = "x"\n[model_providers.x]\nname = "X"\n')
    assert (without.status, "has no `base_url`" in without.found) == (BROKEN, True)


def test_a_key_that_is_wanted_but_not_configured_is_told(tmp_path: Path) -> None:
    check = about(tmp_path, ModelsUnknown("unexpected status 401", 401), which="spare")
    assert "`env_key` in [model_providers.spare]" in check.advice


def test_only_openai_gets_its_login(tmp_path: Path) -> None:
    assert "of the ChatGPT login" in about(tmp_path, which="openai", text="", login=LOGIN).found
    assert "no key" in about(tmp_path, which="spare", login=LOGIN).found


def test_a_header_whose_variable_is_not_set_is_told(tmp_path: Path) -> None:
    check = about(tmp_path, which="spare", text=MINE + 'env_http_headers = { X-User = "WHO" }\n')
    assert (check.status, "WHO is not set" in check.found) == (WARNING, True)


# --- MCP servers
async def test_servers_are_started_and_their_tools_counted(tmp_path: Path) -> None:
    good = McpStdioTransport(command=sys.executable, args=("-I", "-S", str(MCP_SERVER)))
    configs = {
        "good": McpServerConfig(name="good", transport=good),
        "bad": McpServerConfig(name="bad", transport=McpStdioTransport(command="/no/such/program")),
        "off": McpServerConfig(name="off", transport=good, enabled=False),
    }
    with anyio.fail_after(30):
        async with CommandRunner(sys.executable, str(tmp_path), None, {}) as runner:
            runtime = McpRuntime(
                environment={},
                home=str(tmp_path),
                cwd=str(tmp_path),
                spawner=LauncherSpawner(runner),
                version="1",
            )
            checks = await check_mcp_servers(McpManager(configs, runtime))
    bad, fine, off = checks
    assert (bad.status, "failed to start" in bad.found, "[mcp_servers.bad]" in bad.advice) == (
        BROKEN,
        True,
        True,
    )
    assert (fine.status, fine.found) == (OK, "started, 4 tools: echo, fail, hang, ask")
    assert (off.status, off.found) == (OK, "disabled")


# --- secrets
def test_no_credential_is_told_wherever_it_comes_from(tmp_path: Path) -> None:
    env = {
        "MINE_KEY": "env-secret",
        "OTHER_TOKEN": "other-secret",
        "PLAIN": "visible-value",
        "SHORT_KEY": "on",
    }
    text = MINE + (
        "http_headers = { X = 'header-secret' }\n"
        "[mcp_servers.x]\ncommand = 'x'\nenv = { P = 'mcp-secret' }\n"
        "[otel.exporter.otlp-http]\nendpoint = 'http://x'\nheaders = { h = 'otel-secret' }\n"
    )
    redaction = Redaction(
        env, StoredAuth(tokens=Tokens(id_token="id-secret", access_token="a-secret", refresh_token=""))
    )
    redaction.learn(load(tmp_path, text, env))
    said = " ".join((*env.values(), "header-secret", "mcp-secret", "otel-secret", "id-secret", "a-secret"))
    check = redaction.apply(Check("x", OK, f"{said} http://me:password@host/", said))
    for shown in (check.found, check.advice):
        assert "secret" not in shown
        assert "visible-value" in shown
    assert "password" not in check.found
    assert " on " in check.found
