"""The environment of a command, from the server's and the user's policy. Pure.

Steps: what is inherited; minus secrets by name, and URLs that hold a password; minus the user's exclusions;
minus what makes programs run something else; plus what the user sets; cut to what the user wants only; plus
the markers that tell a command that it is confined. What the user sets by name always wins over removals.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from app_server.core.config.types import EnvInherit, ShellEnvironmentPolicy
from app_server.core.sandbox.plan import SandboxPlan

CORE_NAMES = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "USER", "USERNAME", "TMPDIR", "TEMP", "TMP"})
"""What `inherit = "core"` keeps."""

SECRET_PATTERNS = ("*KEY*", "*SECRET*", "*TOKEN*", "*PASSWORD*", "*PASSWD*")
"""Removed unless the policy says `ignore_default_excludes`."""

URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
"""In a value: of a proxy, a database, a registry. Removed as the patterns above are."""

SERVER_SECRETS = frozenset({"OPENAI_API_KEY", "CODEX_API_KEY"})
"""The server's own credentials: removed whatever the policy says."""

HIJACKING_PATTERNS = (
    "LD_*", "DYLD_*", "BASH_ENV", "ENV", "BASH_FUNC_*", "PROMPT_COMMAND", "NODE_OPTIONS", "PERL5OPT",
    "PERL5DB", "RUBYOPT", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "GIT_DIR", "GIT_WORK_TREE",
    "GIT_INDEX_FILE", "GIT_CONFIG*", "GIT_EXEC_PATH", "GIT_SSH*", "GIT_ASKPASS", "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
)  # fmt: skip
"""Variables that make a program load or run something that its command line does not show."""

LOCAL_SERVICES = frozenset({"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS"})
"""Where programs would look for services that act for the user; a confined command cannot reach them."""

NETWORK_MARKER = "CODEX_SANDBOX_NETWORK_DISABLED"
SANDBOX_MARKER = "CODEX_SANDBOX"


def command_environment(
    policy: ShellEnvironmentPolicy,
    server: Mapping[str, str],
    plan: SandboxPlan | None,
    *,
    withheld: Collection[str] = (),
    seatbelt: bool = False,
) -> dict[str, str]:
    """The variables for one command.

    `withheld` names the variables that hold the credentials of configured providers. `plan` is what
    confines the command, None for full access.
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
    if plan is not None and seatbelt:
        result[SANDBOX_MARKER] = "seatbelt"
    return result


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
    """Does a name match one of the patterns? `*` and `?` are wild, case does not matter. The same few names are asked
    about for each command.
    """
    texts = (re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") for pattern in patterns)
    compiled = re.compile("|".join(texts) or r"(?!)", re.IGNORECASE | re.DOTALL)
    return lru_cache(maxsize=1024)(lambda name: compiled.fullmatch(name) is not None)
