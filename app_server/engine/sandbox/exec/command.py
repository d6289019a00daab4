"""The request to run a command, its environment, and its result. Pure.

Expected outcomes are data: an exit code, a time-out, a likely denial. `LaunchError` and `SandboxUnavailable`
(core.errors) mean that no command ran at all.

The environment is computed from the server's environment and the user's policy, in these steps:
1. Inherit variables.
2. Remove secrets by name, URLs with a password, and the user's exclusions.
3. Add the variables that the user sets.
4. Keep only the variables that `include_only` allows.
5. Add the markers of a confined command.

A variable that the user sets by name is never removed by step 2. A command that runs without approval, because it is
known to read only, gets no variable by which its programs would execute something else.
"""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from app_server.engine.config.config_values import EnvInherit, ShellEnvironmentPolicy
from app_server.engine.sandbox.plan import SandboxPlan
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.values import Redacted

TIMEOUT_EXIT_CODE = 124
"""Exit code of a command that exceeded its time limit, as with timeout(1)."""

SIGNAL_EXIT_BASE = 128
"""Base of the exit code of a command that was ended by a signal: the base plus the signal's number, as in shells."""


OnOutput = Callable[[ExecOutputStream, bytes], None]
"""Callback that receives output as it arrives, in the order of the reads. It must not block."""


class CommandSpec(Redacted, frozen=True, kw_only=True):
    HIDDEN = ("env",)
    argv: tuple[str, ...]
    cwd: str
    exact_cwd: bool = False
    """Whether `cwd` is a real path; then nothing runs if a part of it has become a link."""
    env: Mapping[str, str]
    timeout_ms: int | None = None
    """Time limit in milliseconds. None if there is no limit."""
    sandbox: SandboxPlan | None = None
    """Sandbox plan. None if there is no sandbox (danger-full-access, or an approved escalation)."""


PAGES_IN_WORD = 32
"""Maximum size of one word of a command on Linux, in pages of memory, with the NUL at its end. Other systems limit all
words together.
"""


def oversized_word(argv: Iterable[str]) -> str | None:
    """Return why no program can get these words; None if none of them is too long for the system. Such a command is
    refused before anybody is asked about it.
    """
    limit = PAGES_IN_WORD * mmap.PAGESIZE - 1
    if sys.platform != "linux":
        return None
    for word in argv:
        size = len(word.encode("utf-8", "surrogatepass")) if 4 * len(word) > limit else 0
        if size > limit:
            return (
                f"a word of the command has {size:,} bytes, and the system takes at most {limit:,}; "
                "put the text into a file, and let the command read the file"
            )
    return None


class ExecResult(Struct, frozen=True, kw_only=True):
    exit_code: int
    stdout: bytes
    stderr: bytes
    aggregated: bytes
    """Output of both streams in order of arrival, with its own limit."""
    duration_s: float
    timed_out: bool = False
    denied: bool = False
    """Whether the sandbox is the likely reason of the failure."""


KEYWORDS = (
    b"operation not permitted",
    b"permission denied",
    b"read-only file system",
    b"seccomp",
    b"sandbox",
    b"landlock",
    b"failed to write file",
)

BAD_SYSTEM_CALL = 128 + 31
"""Exit code of a command that the system call filter killed."""


def looks_denied(exit_code: int, stdout: bytes, stderr: bytes) -> bool:
    """Return whether a failed command's output has a word that suggests a denial, or the filter killed the command."""
    if exit_code == 0:
        return False
    told = any(word in text for text in (stderr.lower(), stdout.lower()) for word in KEYWORDS)
    return told or exit_code == BAD_SYSTEM_CALL


CORE_NAMES = frozenset({"HOME", "LOGNAME", "PATH", "SHELL", "USER", "USERNAME", "TMPDIR", "TEMP", "TMP"})
"""Names of the variables of `inherit = "core"`."""

SECRET_PATTERNS = ("*KEY*", "*SECRET*", "*TOKEN*", "*PASSWORD*", "*PASSWD*")
SETTINGS_OF_GIT = ("GIT_CONFIG_COUNT", "GIT_CONFIG_VALUE_*", "GIT_CONFIG_PARAMETERS")
"""Variables that may hold the headers of a login; git accepts none of them without the others. They are removed, as the
patterns above, unless the policy says `ignore_default_excludes`.
"""

URL_WITH_PASSWORD = re.compile(r"://[^/\s:@]*:[^/\s@]+@")
"""Pattern of a URL with a password in a value, such as the URL of a proxy or a database. Such variables are removed
like those with the patterns above.
"""

SERVER_SECRETS = frozenset({"OPENAI_API_KEY", "CODEX_API_KEY"})
"""Names of the server's own credentials, which are always removed."""

HIJACKING_PATTERNS = (
    "LD_*", "DYLD_*", "BASH_ENV", "ENV", "BASH_FUNC_*", "PROMPT_COMMAND", "NODE_OPTIONS", "PERL5OPT",
    "PERL5DB", "RUBYOPT", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONINSPECT", "GIT_DIR", "GIT_WORK_TREE",
    "GIT_INDEX_FILE", "GIT_CONFIG*", "GIT_EXEC_PATH", "GIT_SSH*", "GIT_ASKPASS", "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
)  # fmt: skip
"""Patterns of variables that make a program load or execute something that its command line does not show. Builds need
many of them. The judgement that a command only reads is valid only without them.
"""

LOCAL_SERVICES = frozenset({"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS"})
"""Names of variables with addresses of services that act for the user. A confined command cannot reach these
services.
"""

NETWORK_MARKER = "CODEX_SANDBOX_NETWORK_DISABLED"


def command_environment(
    policy: ShellEnvironmentPolicy,
    server: Mapping[str, str],
    plan: SandboxPlan | None,
    *,
    withheld: Collection[str] = (),
    known_to_read: bool = False,
) -> dict[str, str]:
    """Return the variables for one command.

    `withheld` names the variables with credentials of configured providers. `plan` is None for full access.
    `known_to_read` says that the command runs without approval because its command line shows that it only reads.
    """
    kept = _inherited(policy.inherit, server)
    defaults = () if policy.ignore_default_excludes else (*SECRET_PATTERNS, *SETTINGS_OF_GIT)
    hijacking = HIJACKING_PATTERNS if known_to_read else ()
    removed = _matcher((*hijacking, *policy.exclude, *defaults))
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
    """Return a function that matches names against patterns: `*` and `?` are wildcards, case is ignored. It is cached,
    because each command asks for the same few names.
    """
    texts = (re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".") for pattern in patterns)
    compiled = re.compile("|".join(texts) or r"(?!)", re.IGNORECASE | re.DOTALL)
    return lru_cache(maxsize=1024)(lambda name: compiled.fullmatch(name) is not None)
