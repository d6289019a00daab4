"""What of the server's environment a command gets."""

import pytest

from app_server.core.config.types import EnvInherit, ShellEnvironmentPolicy
from app_server.core.exec.environment import command_environment
from app_server.core.sandbox.plan import SandboxPlan

SERVER = {
    "HOME": "/home/u",
    "PATH": "/usr/bin",
    "LANG": "C.UTF-8",
    "EDITOR": "vi",
    "OPENAI_API_KEY": "sk-1",
    "MY_TOKEN": "t",
    "DB_PASSWORD": "p",
    "ACME_CREDENTIAL": "c",
    "LD_PRELOAD": "/evil.so",
    "BASH_ENV": "/evil.sh",
    "BASH_FUNC_ls%%": "() { evil; }",
    "GIT_SSH_COMMAND": "evil",
}


def made(
    policy: ShellEnvironmentPolicy, plan: SandboxPlan | None = None, withheld: tuple[str, ...] = ()
) -> set[str]:
    return set(command_environment(policy, SERVER, plan, withheld=withheld))


def test_everything_but_secrets_and_hijackers_is_inherited() -> None:
    assert made(ShellEnvironmentPolicy()) == {"HOME", "PATH", "LANG", "EDITOR", "ACME_CREDENTIAL"}


def test_inherit_core_keeps_basic_variables_and_inherit_none_keeps_no_variable() -> None:
    assert made(ShellEnvironmentPolicy(inherit=EnvInherit.CORE)) == {"HOME", "PATH"}
    assert made(ShellEnvironmentPolicy(inherit=EnvInherit.NONE)) == set()


def test_the_servers_own_secrets_go_whatever_the_policy_says() -> None:
    policy = ShellEnvironmentPolicy(ignore_default_excludes=True)
    names = made(policy, withheld=("ACME_CREDENTIAL",))
    assert {"MY_TOKEN", "DB_PASSWORD"} <= names
    assert not {"OPENAI_API_KEY", "ACME_CREDENTIAL", "LD_PRELOAD"} & names


def test_what_is_set_by_name_wins() -> None:
    policy = ShellEnvironmentPolicy(
        inherit=EnvInherit.NONE, exclude=("A*",), set={"OPENAI_API_KEY": "mine", "A": "1"}
    )
    assert command_environment(policy, SERVER, None) == {"OPENAI_API_KEY": "mine", "A": "1"}


@pytest.mark.parametrize("pattern", ["edit*", "EDITOR", "?DITOR", "*R"])
def test_exclusions_are_globs_in_any_case(pattern: str) -> None:
    assert "EDITOR" not in made(ShellEnvironmentPolicy(exclude=(pattern,)))
    assert "LANG" in made(ShellEnvironmentPolicy(exclude=(pattern,)))


def test_include_only_comes_last() -> None:
    policy = ShellEnvironmentPolicy(set={"EXTRA": "1"}, include_only=("PATH", "HO*"))
    assert made(policy) == {"PATH", "HOME"}


def test_a_pattern_is_no_regular_expression() -> None:
    assert "EDITOR" in made(ShellEnvironmentPolicy(exclude=("EDI.OR", "[E]DITOR")))


def test_markers_tell_of_the_sandbox() -> None:
    marker = "CODEX_SANDBOX_NETWORK_DISABLED"
    policy = ShellEnvironmentPolicy(include_only=("PATH",))
    assert command_environment(policy, SERVER, SandboxPlan())[marker] == "1"
    assert marker not in made(policy, SandboxPlan(network=True))
    assert marker not in made(policy)
    assert command_environment(policy, SERVER, SandboxPlan(), seatbelt=True)["CODEX_SANDBOX"] == "seatbelt"


def test_a_url_with_a_password_is_a_secret() -> None:
    server = {
        "HTTPS_PROXY": "http://user:password@proxy:8080",
        "DATABASE_URL": "postgres://:password@host/db",
        "PLAIN_PROXY": "http://user@proxy:8080/a:b@c",
        "TIME": "at 10:00 @ home",
    }
    kept = command_environment(ShellEnvironmentPolicy(), server, None)
    assert kept.keys() == {"PLAIN_PROXY", "TIME"}
    everything = ShellEnvironmentPolicy(ignore_default_excludes=True)
    assert command_environment(everything, server, None) == server


def test_what_leads_to_services_of_the_user_is_kept_from_confined_commands_only() -> None:
    server = {
        "SSH_AUTH_SOCK": "/tmp/ssh/agent",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1/bus",
        "A": "1",
    }
    policy = ShellEnvironmentPolicy()
    assert command_environment(policy, server, None) == server
    assert command_environment(policy, server, SandboxPlan(network=True)) == {"A": "1"}
    own = ShellEnvironmentPolicy(set={"SSH_AUTH_SOCK": "/mine"})
    assert command_environment(own, server, SandboxPlan(network=True))["SSH_AUTH_SOCK"] == "/mine"
