"""What `/status` and `/mcp` answer. Pure."""

from __future__ import annotations

from app_server.apis.acp.session import AcpSession
from app_server.apis.acp.text import one_line
from protocol.events.mcp import McpListToolsResponseEvent


def status_text(session: AcpSession) -> str:
    options, usage = session.options, session.adapter.view.usage
    effort = f" ({options.effort} effort)" if options.effort else ""
    tokens = "none yet" if usage is None else f"{usage.used} of {usage.size}"
    lines = (
        ("Model", f"{options.model}{effort}"),
        ("Mode", options.mode),
        ("Working directory", session.cwd),
        ("Tokens in context", tokens),
        ("Session", session.id),
        ("Stored in", str(session.live.rollout_path)),
    )
    return "\n".join(f"- {name}: {value}" for name, value in lines) + "\n"


def servers_text(answer: McpListToolsResponseEvent) -> str:
    """Servers that answered, with their tools; one that did not start has none."""
    servers: dict[str, list[str]] = {name: [] for name in answer.auth_statuses}
    for qualified, tool in answer.tools.items():
        parts = qualified.split("__")
        name = parts[1] if len(parts) > 2 else qualified
        description = one_line(tool.description or "")
        line = f"  - {tool.name}" + (f": {description}" if description else "")
        servers.setdefault(name, []).append(line)
    if not servers:
        return "No MCP servers are configured.\n"
    out: list[str] = []
    for name, tools in servers.items():
        status = answer.auth_statuses.get(name)
        login = f" (login: {status.value})" if status is not None and status.value != "unsupported" else ""
        out += [f"- {name}{login}", *(tools or ["  - no tools"])]
    return "\n".join(out) + "\n"
