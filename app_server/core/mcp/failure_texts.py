"""The texts of MCP errors: for the user if a server does not start, for the model if a call fails. Pure."""

from __future__ import annotations

from app_server.core.config.types import McpHttpTransport, McpServerConfig
from protocol.records import dataclass

GITHUB_URL = "https://api.githubcopilot.com/mcp/"
AUTH_REQUIRED = "Auth required"
HANDSHAKE = "handshaking with MCP server failed: "
TIMED_OUT_HANDSHAKING = "timed out handshaking with MCP server"
TRANSPORT_CLOSED = "Transport closed"
UNEXPECTED = "Unexpected response type"


@dataclass(frozen=True, slots=True)
class StartFailure:
    """A server that failed to start, and the message for the user."""

    server: str
    message: str
    auth_required: bool = False


def start_failure(config: McpServerConfig, reason: str) -> StartFailure:
    """The message for the user about a server that failed to start, with a remedy if there is one."""
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
    """The text for the model about a failed call; numbers nested causes."""
    lines = [f"{n}: {cause}" for n, cause in enumerate(causes)] if len(causes) > 1 else list(causes)
    detail = "\n".join(f"    {line}" for line in lines)
    return f"tool call error: tool call failed for `{server}/{tool}`\n\nCaused by:\n{detail}"


def timed_out(method: str, seconds: float) -> tuple[str, ...]:
    return (f"timed out awaiting {method} after {duration_text(seconds)}", "deadline has elapsed")


def duration_text(seconds: float) -> str:
    """Seconds, or milliseconds below one: `60s`, `2.5s`, `500ms`."""
    return f"{seconds:g}s" if seconds >= 1 else f"{seconds * 1000:g}ms"
