"""Where a conversation came from. Apart from the stored lines, so that a list needs no models."""

from enum import StrEnum


class SessionOrigin(StrEnum):
    """What kind of client began a conversation."""

    CLI = "cli"
    VSCODE = "vscode"
    EXEC = "exec"
    MCP = "mcp"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> "SessionOrigin | None":
        # A source from a later version must not make a stored conversation unreadable.
        return cls.UNKNOWN if isinstance(value, str) else None
