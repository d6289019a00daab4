"""The checks of doctor for the machine and the settings, their display, and that errors on the wire have the
same text.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from app_server.cli.doctor import machine_checks
from app_server.cli.doctor.checks import Check, CheckStatus, broken, ok, warning
from app_server.cli.doctor.doctor_command import as_json, as_text, check_hooks, exit_status, summary
from app_server.cli.doctor.machine_checks import check_config, known_credentials, redacted
from app_server.cli.doctor.provider_checks import check_mcp_servers, check_provider, checked_providers
from app_server.engine.auth.credentials import AuthMethod, Credentials, StoredAuth, Tokens
from app_server.engine.config.config_values import SettingsSource
from app_server.engine.config.mcp_server_settings import McpServerConfig, McpStdioTransport
from app_server.engine.config.model_rows import ModelRow
from app_server.engine.hooks.hook_files import HookFiles
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.mcp.runtime_interface import McpRuntime
from app_server.engine.model.model_errors import connection_failed, missing_variable
from app_server.engine.model.served_models import ModelsUnknown, ServedModel, ServedModels
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.exec.probe import layers
from app_server.engine.sandbox.plan import SandboxLayer, SandboxState
from app_server.engine.storage.disk import HISTORY, home_lock
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ConfigError
from app_server.engine.support.user_messages import Problem
from tests.engine.config.homes import load

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


# --- settings
def test_settings_that_cannot_be_used_are_broken_at_their_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "\n\napproval_policy = 3\n")
    [check] = check_config(tmp_path, caught.value)
    assert check.status is BROKEN
    assert f"{tmp_path}/config.toml:3:1" in check.found
    assert "`approval_policy`" in check.found
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
def serving(*names: str) -> ServedModels:
    return ServedModels(models=tuple(ServedModel(row=ModelRow(slug=name)) for name in names))


def about(
    home: Path,
    answer: ServedModels | ModelsUnknown | None = None,
    *,
    which: str = "mine",
    env: Mapping[str, str] = KEY,
    text: str = MINE,
    login: Credentials | None = None,
) -> Check:
    config = load(home, text, env=env)
    return check_provider(config, config.providers[which], env, login, answer)


def test_the_provider_in_use_and_configured_ones_are_checked(tmp_path: Path) -> None:
    assert [each.id for each in checked_providers(load(tmp_path, MINE), {})] == ["mine", "spare"]
    assert [each.id for each in checked_providers(load(tmp_path, ""), {})] == ["openai"]


def test_nothing_is_known_of_a_provider_that_was_not_asked(tmp_path: Path) -> None:
    check = about(tmp_path)
    assert check.found == "http://models.test:8000, key in MINE_KEY; not asked without --online"


def test_a_provider_that_answers_is_ok(tmp_path: Path) -> None:
    check = about(tmp_path, serving("small", "large"))
    assert (check.status, "offers 2 models" in check.found) == (OK, True)
    assert (
        about(
            tmp_path,
            serving(
                "small:latest",
            ),
        ).status
        is OK
    )


def test_a_model_that_is_not_offered_is_a_warning(tmp_path: Path) -> None:
    """Some providers list fewer models than they have."""
    check = about(tmp_path, serving("a", "b"))
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
    assert about(tmp_path, env={}).status is BROKEN
    told = about(
        tmp_path, env={}, text=MINE + "env_key = 'SPARE'\nenv_key_instructions = 'Ask Ann.'\n", which="spare"
    )
    assert (told.status, told.advice) == (WARNING, "Ask Ann.")
    assert about(tmp_path, which="openai", text="", env={}).status is BROKEN


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
        async with CommandRunner(sys.executable, str(tmp_path), {}) as runner:
            runtime = McpRuntime(
                environment={},
                home=str(tmp_path),
                cwd=str(tmp_path),
                runner=runner,
                version="1",
            )
            checks = await check_mcp_servers(McpManager(configs, lambda: runtime))
    bad, fine, off = checks
    assert (bad.status, "failed to start" in bad.found, "[mcp_servers.bad]" in bad.advice) == (
        BROKEN,
        True,
        True,
    )
    assert (fine.status, fine.found) == (
        OK,
        "started, notes 1, MCP 2025-06-18, 5 tools: echo, fail, hang, ask, change",
    )
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
    tokens = Tokens(id_token="id-secret", access_token="a-secret", refresh_token="")
    credentials = known_credentials(env, StoredAuth(tokens=tokens), load(tmp_path, text, env=env))
    said = " ".join((*env.values(), "header-secret", "mcp-secret", "otel-secret", "id-secret", "a-secret"))
    check = redacted(Check("x", OK, f"{said} http://me:password@host/", said), credentials)
    for shown in (check.found, check.advice):
        assert "secret" not in shown
        assert "visible-value" in shown
    assert "password" not in check.found
    assert " on " in check.found


HELD = "done"
"""Output of a probe that could do nothing."""


@pytest.mark.parametrize(("platform", "status"), [("linux", OK), ("darwin", OK), ("win32", BROKEN)])
def test_other_systems_have_no_sandbox(platform: str, status: CheckStatus) -> None:
    assert machine_checks.check_system(platform, "1.0", "x86_64").status is status


def test_all_layers_hold() -> None:
    tried = layers((HELD, ""), (HELD, ""), 7)
    assert [(layer.name, layer.problem) for layer in tried] == [
        ("namespaces", None),
        ("Landlock (ABI 7)", None),
        ("seccomp", None),
    ]
    check = machine_checks.check_sandbox(SandboxState("full", landlock_abi=7), tried)
    assert check.status is OK
    assert "Landlock (ABI 7): holds" in check.found


def test_each_layer_is_judged_by_what_only_it_prevents() -> None:
    tried = layers(("see signal done", ""), ("write metadata see signal done", ""), 1)
    assert [layer.name for layer in tried if layer.problem is None] == ["seccomp"]
    tried = layers(("datagram done", ""), ("network datagram done", ""), 4)
    assert "datagram" in (tried[-1].problem or "")
    assert tried[1].problem is None


def test_a_kernel_without_namespaces_or_landlock() -> None:
    """No probe ran, so no part is known to hold."""
    tried = layers(("", "Operation not permitted"), None, 0)
    assert [layer.problem for layer in tried] == [
        "Operation not permitted",
        "the kernel has none",
        "a test command did not run in it",
    ]
    check = machine_checks.check_sandbox(SandboxState("none", "no layer"), tried)
    assert check.status is BROKEN
    assert "are refused: no layer" in check.found
    assert "Landlock" in check.advice


def test_a_weaker_sandbox_is_a_warning_with_its_gaps() -> None:
    state = SandboxState("degraded", "no namespaces", ("other processes are visible",), 5)
    check = machine_checks.check_sandbox(state, [SandboxLayer("namespaces", "refused")])
    assert check.status is WARNING
    assert "other processes are visible" in check.found
    assert "namespaces: does not hold (refused)" in check.found
    assert "user namespaces" in check.advice


def test_git_is_there_or_not() -> None:
    assert machine_checks.check_git("git version 2.39.5\n", "/bin").found == "git version 2.39.5"
    assert machine_checks.check_git(None, "/bin").status is WARNING


@pytest.mark.parametrize(
    ("space", "status"),
    [
        (machine_checks.FreeSpace(1 << 40, None), OK),
        (machine_checks.FreeSpace(1 << 40, 10), WARNING),
        (machine_checks.FreeSpace(500 << 20, 10**6), WARNING),
        (machine_checks.FreeSpace(1 << 20, 10**6), BROKEN),
    ],
)
def test_little_space_is_told(space: machine_checks.FreeSpace, status: CheckStatus) -> None:
    check = machine_checks.check_disk("disk", "/somewhere", space)
    assert check.status is status
    assert bool(check.advice) is (status is not OK)


# --- the home
def test_a_home_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    assert machine_checks.check_home(tmp_path).status is OK
    assert [each.name for each in tmp_path.iterdir()] == ["sessions"]


def test_a_home_that_does_not_exist_yet_is_not_created(tmp_path: Path) -> None:
    check = machine_checks.check_home(tmp_path / "a" / "home")
    assert (check.status, "creates" in check.found) == (OK, True)
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_written_is_broken(tmp_path: Path) -> None:
    """The test puts a file in its place: permissions do not stop root, who may run this test."""
    (tmp_path / "home").write_text("")
    for home in (tmp_path / "home", tmp_path / "home" / "below"):
        check = machine_checks.check_home(home)
        assert (check.status, check.advice) == (BROKEN, user_messages.home_unwritable("x", "y").advice)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sessions").write_text("")
    check = machine_checks.check_home(tmp_path / "other")
    assert "sessions" in check.found


def test_credentials_that_others_can_read_are_told(tmp_path: Path) -> None:
    assert machine_checks.check_credentials_file(tmp_path).found == "no login is stored"
    stored = tmp_path / "auth.json"
    stored.write_text("{}")
    stored.chmod(0o600)
    assert machine_checks.check_credentials_file(tmp_path).status is OK
    stored.chmod(0o644)
    check = machine_checks.check_credentials_file(tmp_path)
    assert (check.status, check.advice) == (WARNING, f"chmod 600 {stored}")


def test_a_lock_that_nobody_gives_back_is_told(tmp_path: Path) -> None:
    assert machine_checks.check_locks(tmp_path, tmp_path).status is OK
    with home_lock(tmp_path, HISTORY, 1):
        check = machine_checks.check_locks(tmp_path, tmp_path, seconds=0)
    assert (check.status, "message history" in check.found) == (WARNING, True)
    assert machine_checks.check_locks(tmp_path / "missing", tmp_path).status is OK


def test_a_lock_file_of_git_is_told(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index.lock").touch()
    check = machine_checks.check_locks(tmp_path / "home", tmp_path)
    assert (check.status, "index.lock" in check.found) == (WARNING, True)


def test_free_space_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    assert machine_checks.free_space(tmp_path / "not" / "there").free_bytes > 0
    assert os.listdir(tmp_path) == []


def parts(check: Check) -> Problem:
    return Problem(check.found, check.advice)


def test_errors_of_a_turn_say_the_same(tmp_path: Path) -> None:
    """The sentences of `model_errors` are the errors of a turn."""
    assert str(parts(about(tmp_path, env={}))) == str(missing_variable("MINE_KEY", None))
    down = about(tmp_path, ModelsUnknown("Connection refused", unreachable=True))
    where = "http://models.test:8000"
    assert str(parts(down)) == str(connection_failed("mine", where, "Connection refused"))
    nameless = about(tmp_path, text='model_provider = "mine"\n[model_providers.mine]\nname = "X"\n')
    assert nameless.status is BROKEN
    assert str(parts(nameless)) == str(user_messages.no_base_url("mine"))
    assert parts(about(tmp_path, ModelsUnknown("", 401))) == user_messages.key_refused("mine", "in MINE_KEY")
    keyless = about(tmp_path, ModelsUnknown("", 401), text=MINE.replace("env_key", "#"))
    assert parts(keyless) == user_messages.key_not_sent("mine")
    assert (
        about(
            tmp_path,
            serving(
                "a",
            ),
        ).found
        == user_messages.model_unknown("mine", "small").what
    )
    assert parts(about(tmp_path, which="openai", text="", env={})) == user_messages.NOBODY_LOGGED_IN


def test_warnings_of_a_conversation_say_the_same() -> None:
    assert parts(machine_checks.check_git(None, "/bin")) == user_messages.git_missing("/bin")
    for state in (SandboxState("none", "why", ("gap",)), SandboxState("degraded", "why", ("gap",))):
        check = machine_checks.check_sandbox(state, ())
        assert state.warning is not None
        what, _, advice = state.warning.partition("; ")
        assert check.found.startswith(what)
        assert check.advice == advice.removesuffix(".")


CHECKS = [ok("git", "git version 2"), warning("disk", "500 MiB", "free some")]


def test_advice_is_below_the_result() -> None:
    assert as_text(CHECKS[0]) == "ok       git: git version 2"
    assert as_text(CHECKS[1]).splitlines() == ["warning  disk: 500 MiB", "         → free some"]


def test_control_characters_are_not_printed() -> None:
    assert as_text(ok("x", "one\ntwo\x1b[31m")) == "ok       x: one two [31m"


def test_only_what_is_broken_is_a_failure() -> None:
    assert exit_status(CHECKS) == 0
    assert exit_status([*CHECKS, broken("home", "x", "y")]) == 1
    assert summary(CHECKS) == "\n2 checks: 1 ok, 1 warning, 0 broken"


def test_json_has_all_of_it() -> None:
    shown = json.loads(as_json([*CHECKS, broken("home", "x", "y")]))
    assert shown["ok"] is False
    assert shown["checks"][0] == {"name": "git", "status": "ok", "found": "git version 2", "advice": None}
    assert shown["checks"][2]["status"] == "broken"


@pytest.mark.parametrize(
    ("git", "ray", "status", "said"),
    [
        ("git version 2.39.5\n", False, "ok", "Ray is not installed"),
        ("git version 2.39.5 (Apple Git-154)", True, "ok", "Ray is installed"),
        ("git version 2.9.1", False, "warning", "cannot have git worktrees"),
        (None, False, "warning", "cannot have git worktrees"),
    ],
)
def test_what_batches_need(git: str | None, ray: bool, status: str, said: str) -> None:
    check = machine_checks.check_batches(git, ray=ray)
    assert check.status == status
    assert said in check.found


def test_hooks_that_do_not_run_are_listed_with_their_commands(tmp_path: Path) -> None:
    home, source = tmp_path, SettingsSource(home=tmp_path, cwd=tmp_path)
    assert check_hooks(load(home), source) == []
    handler = {"type": "command", "command": "guard --strict"}
    (home / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [handler]}]}}))
    [found] = check_hooks(load(home), source)
    assert found.status is WARNING
    assert "1 hook does not run" in found.found
    assert "PreToolUse `guard --strict`" in found.found
    [hook] = HookFiles(load(home), source).load(str(tmp_path)).handlers()
    consent = f'[hooks.state."{hook.key}"]\ntrusted_hash = "{hook.digest}"\n'
    assert check_hooks(load(home, consent), source) == [ok("hooks", f"1 run in {tmp_path}")]
