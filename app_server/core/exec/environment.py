"""The environment of a command, from the server's environment and the user's policy. Pure.

Steps: inherit; remove secrets by name, URLs with a password, the user's exclusions and variables that make programs
execute something else; add the variables that the user sets; keep only what `include_only` allows; add the markers of a
confined command. A variable that the user sets by name is never removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from app_server.core.config.types import EnvInherit, ShellEnvironmentPolicy
from app_server.core.sandbox.plan import SandboxPlan

CORE_NAMES = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "USER", "USERNAME", "TMPDIR", "TEMP", "TMP"})
"""The variables of `inherit = "core"`."""

SECRET_PATTERNS = ("*KEY*", "*SECRET*", "*TOKEN*", "*PASSWORD*", "*PASSWD*")
"""Removed unless the policy says `ignore_default_excludes`."""

URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
"""In a value, such as the URL of a proxy or a database. Removed like the patterns above."""

SERVER_SECRETS = frozenset({"OPENAI_API_KEY", "CODEX_API_KEY"})
"""The server's own credentials: always removed."""

HIJACKING_PATTERNS = (
    "LD_*", "DYLD_*", "BASH_ENV", "ENV", "BASH_FUNC_*", "PROMPT_COMMAND", "NODE_OPTIONS", "PERL5OPT",
    "PERL5DB", "RUBYOPT", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "GIT_DIR", "GIT_WORK_TREE",
    "GIT_INDEX_FILE", "GIT_CONFIG*", "GIT_EXEC_PATH", "GIT_SSH*", "GIT_ASKPASS", "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
)  # fmt: skip
"""Variables that make a program load or execute something that its command line does not show."""

LOCAL_SERVICES = frozenset({"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS"})
"""Addresses of services that act for the user; a confined command cannot reach them."""

NETWORK_MARKER = "CODEX_SANDBOX_NETWORK_DISABLED"


def command_environment(
    policy: ShellEnvironmentPolicy,
    server: Mapping[str, str],
    plan: SandboxPlan | None,
    *,
    withheld: Collection[str] = (),
) -> dict[str, str]:
    """Return the variables for one command.

    `withheld` names the variables with credentials of configured providers. `plan` is None for full access.
    """
    kept = _inherited(policy.inherit, server)
    defaults = () if policy.ignore_default_excludes else SECRET_PATTERNS
    removed = _matcher((*HIJACKING_PATTERNS, *policy.exclude, *defaults))
    gone = SERVER_SECRETS | set(withheld) | (LOCAL_SERVICES if plan is not None else set())
    result = {name: value for name, value in kept.items() if name not in gone and not removed(name)}
    if not policy.ignore_default_excludes:
        result = {name: value for name, value in result.items() if not URL_WITH_PASSWORD.search(value)}
    result.update(policy.set)
    if policy.include_only:
        wanted = _matcher(tuple(policy.include_only))
        result = {name: value for name, value in result.items() if wanted(name)}
    if plan is not None and not plan.network:
        result[NETWORK_MARKER] = "1"
    return result


def secret_values(server: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables whose names suggest a secret."""
    secret = _matcher(SECRET_PATTERNS)
    return frozenset(value for name, value in server.items() if secret(name))


def _inherited(inherit: EnvInherit, server: Mapping[str, str]) -> Mapping[str, str]:
    match inherit:
        case EnvInherit.ALL:
            return server
        case EnvInherit.CORE:
            return {name: value for name, value in server.items() if name.upper() in CORE_NAMES}
        case EnvInherit.NONE:
            return {}


@lru_cache(maxsize=32)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Match names against patterns: `*` and `?` are wildcards, case is ignored. Cached, because each command asks for
    the same few names.
    """
    texts = (re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") for pattern in patterns)
    compiled = re.compile("|".join(texts) or r"(?!)", re.IGNORECASE | re.DOTALL)
    return lru_cache(maxsize=1024)(lambda name: compiled.fullmatch(name) is not None)
