"""The slash commands of the server. Fast to import: clients are sent them before the server is loaded."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protocol.base import Json


class Builtin(Enum):
    COMPACT = "compact"
    REVIEW = "review"
    REVIEW_BRANCH = "review-branch"
    REVIEW_COMMIT = "review-commit"
    UNDO = "undo"
    INIT = "init"
    STATUS = "status"
    MCP = "mcp"
    LOGOUT = "logout"


DESCRIPTIONS: Final = {
    Builtin.COMPACT: ("Summarise the conversation, to make room in the context window", None),
    Builtin.REVIEW: ("Review the changes that are not committed, or what you say", "[instructions]"),
    Builtin.REVIEW_BRANCH: ("Review the changes against a base branch", "branch"),
    Builtin.REVIEW_COMMIT: ("Review one commit", "sha"),
    Builtin.UNDO: ("Put the files back to where they were before the last turn", None),
    Builtin.INIT: ("Write an AGENTS.md that guides agents in this repository", None),
    Builtin.STATUS: ("Show model, mode, tokens and where the session is stored", None),
    Builtin.MCP: ("List the MCP servers and their tools", None),
    Builtin.LOGOUT: ("Delete the stored login", None),
}


def shown_builtins(*, undo: bool) -> list[dict[str, Json]]:
    """In the shape of `protocol.acp.updates.AvailableCommand`."""
    offered = (each for each in Builtin if undo or each is not Builtin.UNDO)
    return [_shown(each.value, *DESCRIPTIONS[each]) for each in offered]


def _shown(name: str, description: str, hint: str | None) -> dict[str, Json]:
    taken = {} if hint is None else {"input": {"hint": hint}}
    return {"name": name, "description": description, **taken}
