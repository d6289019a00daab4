"""Questions of the engine to a client, and the answers to those for which the conversation API has no shapes; and the
tools that a client brings to a conversation, which it is asked to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import FileChange, ParsedCommand
from app_server_protocol.outgoing import EngineStruct
from app_server_protocol.responses import FunctionCallOutputContentItem


class CommandApprovalQuestion(Struct, frozen=True, kw_only=True):
    """Question to the user: may this command run, or this text be typed into a command that runs?"""

    call_id: str
    command: tuple[str, ...]
    cwd: str
    parsed: tuple[ParsedCommand, ...]
    reason: str | None = None
    proposed_rule: tuple[str, ...] | None = None
    """First words of commands that the user may approve permanently with the answer; None if no rule is proposed."""


class PatchApprovalQuestion(Struct, frozen=True, kw_only=True):
    """Question to the user: may this patch be written? Keys of `changes` are absolute paths."""

    call_id: str
    changes: Mapping[str, FileChange]
    reason: str | None = None


class ElicitationQuestion(Struct, frozen=True, kw_only=True):
    """Question of an MCP server to the user while a call of one of its tools runs."""

    server: str
    id: str
    message: str
    requested_schema: Json = None


class ToolCallQuestion(Struct, frozen=True, kw_only=True):
    """The model calls a tool that the client brought."""

    call_id: str
    tool: str
    namespace: str | None
    arguments: Json


class ToolCallAnswer(Struct, frozen=True):
    """Outcome of the tool, for the model."""

    success: bool
    content: tuple[FunctionCallOutputContentItem, ...]


class Choice(Struct, frozen=True):
    label: str
    description: str


class UserQuestion(Struct, frozen=True, kw_only=True):
    """One question of the model to the user, with answers to choose from; another answer may be given as well."""

    id: str
    header: str
    text: str
    choices: tuple[Choice, ...]


class UserInputQuestion(Struct, frozen=True):
    """The model asks the user."""

    call_id: str
    inquiries: tuple[UserQuestion, ...]


class UserInputAnswer(Struct, frozen=True):
    """Answers of the user, by the ids of the inquiries."""

    answers: Mapping[str, tuple[str, ...]]


class McpCallQuestion(Struct, frozen=True, kw_only=True):
    """Question to the user: may the model call this tool of an MCP server?"""

    call_id: str
    server: str
    tool: str
    description: str | None
    annotations: Json
    """The MCP server's own hints about the tool, in the format of MCP; None if it gives none."""
    arguments: Json
    lasting: tuple[McpCallDecision, ...]
    """Approvals of later calls as well that are offered, the widest last."""
    as_inquiry: bool
    """Whether clients of the thread API are asked in the form of a question of the model, and not of the server."""
    reason: str | None = None
    """Reason of a hook that wants the user to be asked; None if no hook does."""

    @property
    def message(self) -> str:
        question = f'Allow the {self.server} MCP server to run tool "{self.tool}"?'
        return question if self.reason is None else f"{question} ({self.reason})"


ApprovalQuestion = CommandApprovalQuestion | PatchApprovalQuestion
Question = (
    CommandApprovalQuestion
    | PatchApprovalQuestion
    | ElicitationQuestion
    | ToolCallQuestion
    | UserInputQuestion
    | McpCallQuestion
)
"""All questions. An API that has no shape for one leaves it out by its name."""


class McpCallDecision(StrEnum):
    """Answer to a `McpCallQuestion`."""

    ONCE = "once"
    SESSION = "session"
    ALWAYS = "always"
    """Approval for every conversation, which is stored in the settings."""
    DECLINED = "declined"
    CANCELLED = "cancelled"


class RuleAmendment(Struct, frozen=True):
    """Approval of the command, and from now on of every command that begins with these words, if its approval request
    proposed them.
    """

    words: tuple[str, ...]


class FileGrant(Struct, frozen=True):
    """Approval of the patch, and of every later patch of the session that changes only its files."""


class ClientTool(EngineStruct, omit_defaults=True):
    """Tool of a client, as the model is offered it, and as a conversation stores it."""

    name: str
    namespace: str | None = None
    """Groups tools. The model knows the tool by both names."""
    description: str
    input_schema: Json

    @property
    def offered_name(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}__{self.name}"
