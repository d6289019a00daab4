"""How a server process is started: by the launcher, which kills its process tree when this process ends, and with what
it receives of the user's environment: variables, the program's path; for a server over HTTP, headers.

A server receives an allow-list of variables and those that its settings name. The others may be credentials of this
server.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from app_server.core.config.types import WORKSPACE, McpHttpTransport, McpStdioTransport
from app_server.core.errors import LaunchError
from app_server.core.exec.lasting import ServiceProcess
from app_server.core.exec.runner import CommandRunner
from app_server.core.exec.shell_setup import own_folder
from app_server.core.http.address import origin
from app_server.core.mcp.faults import McpFailure
from app_server.core.real_path import real_path
from app_server.core.sandbox.plan import within

PASSED_ON = frozenset(
    {"HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TERM",
     "TMPDIR", "TZ", "__CF_USER_TEXT_ENCODING"}
)  # fmt: skip


def starting_folder(name: str, transport: McpStdioTransport, home: str, workspace: str) -> str:
    """Return where a server starts: never in the workspace unless the user says so, because interpreters and package
    runners take modules and programs from there. Raises McpFailure where that is not said plainly.
    """
    if transport.cwd == WORKSPACE:
        return workspace
    if transport.cwd is not None and not os.path.isabs(transport.cwd):
        raise McpFailure(f'its `cwd` is relative: name an absolute path, or `cwd = "{WORKSPACE}"`')
    if os.sep in transport.command and not os.path.isabs(transport.command) and transport.cwd is None:
        raise McpFailure(f'its `command` is relative: name an absolute path, or set `cwd = "{WORKSPACE}"`')
    if transport.cwd is not None:
        return transport.cwd
    try:
        return own_folder(home, "mcp", name)
    except OSError:  # there is no home, or nobody can write to it
        return os.sep


def process_environment(
    transport: McpStdioTransport, user: Mapping[str, str], folder: str, workspace: str
) -> dict[str, str]:
    """Return the variables of a server process that starts in `folder`. Python imports nothing from a workspace."""
    names = PASSED_ON.union(transport.env_vars)
    safe = {"PYTHONSAFEPATH": "1"} if within(real_path(folder), real_path(workspace)) else {}
    return safe | {name: value for name, value in user.items() if name in names} | dict(transport.env)


def find_program(command: str, environment: Mapping[str, str], cwd: str) -> str:
    """Return the absolute path of `command`. Raises OSError.

    A bare name is searched only in absolute entries of PATH, so that a file in the working directory, which is an
    untrusted repository, is never started by accident.
    """
    if os.sep in command:
        return os.path.join(cwd, command)
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    found = shutil.which(command, path=os.pathsep.join(entry for entry in entries if os.path.isabs(entry)))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)
    return found


def sends_token(transport: McpHttpTransport) -> bool:
    """Return whether the settings of the server name what it is sent about who asks."""
    headers = {name.lower() for name in (*transport.http_headers, *transport.env_http_headers)}
    return transport.bearer_token_env_var is not None or "authorization" in headers


def request_headers(name: str, transport: McpHttpTransport, user: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of every request to a server. Raises McpFailure if the configured token is missing."""
    headers = dict(transport.http_headers)
    headers |= {
        header: user[source] for header, source in transport.env_http_headers.items() if user.get(source)
    }
    variable = transport.bearer_token_env_var
    if variable is not None:
        token = user.get(variable)
        if not token:
            state = "is not set" if token is None else "is empty"
            raise McpFailure(f"Environment variable {variable} for MCP server '{name}' {state}")
        headers = {key: value for key, value in headers.items() if key.lower() != "authorization"}
        headers["Authorization"] = f"Bearer {token}"
    return headers


def is_http_url(url: str) -> bool:
    """Return whether the URL is valid for HTTP and has a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def display_url(url: str) -> str:
    """Return a URL for messages: without user and query, which may contain secrets."""
    start = origin(url)
    return "its URL" if start is None else start + urlsplit(url).path


class LauncherSpawner(Struct, frozen=True):
    runner: CommandRunner

    async def open(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ServiceProcess:
        """Start a server. Raises OSError, and ValueError for what no program can be given."""
        if any("\0" in text for text in (*argv, cwd, *env, *env.values())):
            raise ValueError("a NUL byte")
        try:
            return await self.runner.open_service(argv, env, cwd)
        except LaunchError as error:
            raise OSError(error.code or errno.EAGAIN, str(error)) from error
