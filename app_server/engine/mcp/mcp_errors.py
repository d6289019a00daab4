"""Faulty MCP servers: limits so that a faulty server affects only itself, and the texts about failures. Pure.

The texts are for the user if a server does not start, and for the model if a call fails.
"""

from __future__ import annotations

from msgspec import Struct

from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpServerConfig
from app_server.engine.support.engine_errors import CoreError

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Maximum size of a message, in bytes. A larger message is not parsed; only its head is evaluated."""

KEPT_HEAD_BYTES = 256 * 1024
"""Size of the head of an oversized message that is kept for its id and the beginning of its text, in bytes."""

MAX_BATCH = 1000
"""Maximum number of messages in one batch. A batch has one reply for each pending request, of which there are a few
dozen.
"""

MAX_PAGES = 50
MAX_TOOLS_PER_SERVER = 200
MAX_TOOLS = 300
MAX_RESOURCES = 2000

MAX_DESCRIPTION_CHARS = 8 * 1024
MAX_DEFINITION_BYTES = 160_000
"""Maximum size of all tool definitions together, in bytes: every request to the model contains them, and they fill its
context.
"""

MAX_RESULT_CHARS = 1024 * 1024
"""Maximum size of the text of one result, in characters. The model's tool outputs are truncated further."""
MAX_RESULT_BLOCKS = 500
MAX_IMAGE_CHARS = 10 * 1024 * 1024
"""Maximum size of the base64 of all images of one result, in characters."""

MAX_INTRODUCTION_BYTES = 16 * 1024
"""Maximum size of each part of a server's introduction of itself, in bytes."""

MAX_ERROR_CHARS = 4 * 1024
"""Maximum size of an error text from a server, in characters."""

OUTGOING_QUEUE = 64
"""Maximum number of messages that wait for a server to read. If the queue is full, replies to the server's requests are
dropped.
"""

MAX_OPEN_ELICITATIONS = 4
MAX_ROUNDS = 10
"""Maximum number of times that a server may answer one request with questions."""
MAX_INPUTS = 16
"""Maximum number of questions in one such answer."""
MAX_MIRRORED = 32
"""Maximum number of a tool's parameters that headers repeat."""
MAX_HEADER_CHARS = 8 * 1024
"""Maximum size of the value of such a header, in characters."""
RESTARTS = 3
"""Maximum number of restarts in a row. A server that ended is restarted on the next call of one of its tools; an answer
resets the count.
"""

DISCOVERY_SECONDS = 5.0
"""Timeout of `server/discover` at a server that has just refused the handshake, in seconds."""

REFRESH_SECONDS = 5.0
"""Timeout of a call's wait for the new list of tools, if the call made the server announce one, in seconds."""

LISTENING_AGAIN = (1.0, 5.0, 30.0, 120.0, 600.0, 0.0)
"""Delays before the client listens again for changes of tools after that broke off, in seconds. After the last one it
listens no more.
"""

STDERR_LINES = 100
"""Number of lines of a server's stderr that are logged, at debug level. The rest is read and dropped."""


GITHUB_URL = "https://api.githubcopilot.com/mcp/"
AUTH_REQUIRED = "Auth required"
HANDSHAKE = "handshaking with MCP server failed: "
TIMED_OUT_HANDSHAKING = "timed out handshaking with MCP server"
TRANSPORT_CLOSED = "Transport closed"
UNEXPECTED = "Unexpected response type"
TOOLS_CHANGED = "the server's tools have changed since the conversation began"


class McpFailure(CoreError):
    """A request to a server failed; the message is the reason, without secrets."""

    kind = "mcp"


class StartFailure(Struct, frozen=True):
    """A server that failed to start, and the message for the user."""

    server: str
    message: str
    auth_required: bool = False


def start_failure(config: McpServerConfig, reason: str) -> StartFailure:
    """Return the message for the user about a server that failed to start, with a remedy if there is one."""
    name, transport = config.name, config.transport
    auth_required = AUTH_REQUIRED in reason
    if (
        isinstance(transport, McpHttpTransport)
        and transport.url == GITHUB_URL
        and transport.bearer_token_env_var is None
        and not transport.http_headers
    ):
        message = (
            "GitHub MCP does not support OAuth. Log in by adding a personal access token "
            "(https://github.com/settings/personal-access-tokens) to your environment and config.toml:\n"
            f"[mcp_servers.{name}]\nbearer_token_env_var = CODEX_GITHUB_PERSONAL_ACCESS_TOKEN"
        )
    elif auth_required:
        message = f"The {name} MCP server is not logged in. Run `codex mcp login {name}`."
    elif "request timed out" in reason or TIMED_OUT_HANDSHAKING in reason:
        seconds = f"{config.startup_timeout_sec:.0f}"
        message = (
            f"MCP client for `{name}` timed out after {seconds} seconds. Add or adjust "
            f"`startup_timeout_sec` in your config.toml:\n[mcp_servers.{name}]\nstartup_timeout_sec = XX"
        )
    else:
        message = f"MCP client for `{name}` failed to start: {reason}"
    return StartFailure(name, message, auth_required)


def tool_call_error(server: str, tool: str, causes: tuple[str, ...]) -> str:
    """Return the text for the model about a failed call, with nested causes numbered."""
    lines = [f"{n}: {cause}" for n, cause in enumerate(causes)] if len(causes) > 1 else list(causes)
    detail = "\n".join(f"    {line}" for line in lines)
    return f"tool call error: tool call failed for `{server}/{tool}`\n\nCaused by:\n{detail}"


def timed_out(method: str, seconds: float) -> tuple[str, ...]:
    return (f"timed out awaiting {method} after {duration_text(seconds)}", "deadline has elapsed")


def duration_text(seconds: float) -> str:
    """Return the duration in seconds, or in milliseconds if it is below one second: `60s`, `2.5s`, `500ms`."""
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
