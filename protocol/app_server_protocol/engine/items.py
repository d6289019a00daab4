"""The items of a turn. Every item begins, has a status if it can fail, and ends exactly once.

An id is the provider's item id, the model's call id, or a UUIDv7 if neither names the item.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from app_server_protocol import mcp, parse
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.engine.item_values import TAGGED_CHANGE, ParsedCommand, ReviewOutputEvent
from app_server_protocol.engine.item_values import FileChange as ChangedFile
from app_server_protocol.event_items import SentInput, TextInput, UserInput
from app_server_protocol.outgoing import EngineStruct
from app_server_protocol.responses import WebSearchAction
from app_server_protocol.values import Redacted


class ItemStatus(StrEnum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    DECLINED = "declined"
    """The user or the policy refused the item; nothing ran."""


class CommandSource(StrEnum):
    AGENT = "agent"
    USER_SHELL = "user_shell"
    """Command that the user typed."""
    TERMINAL = "terminal"
    """Command that the model started on a terminal, which may outlive the call."""
    PROVIDER = "provider"
    """Command of the provider's own kind of shell call."""


class UserMessage(Struct, frozen=True):
    id: str
    content: tuple[UserInput, ...]
    """Content as the model sees it: local images are read and encoded."""
    client_id: str | None = None
    """Id that the client gave the message; None if it gave none."""
    sent: tuple[SentInput, ...] | None = None
    """Content as the client sent it; None if it is the same as `content`."""

    @property
    def text(self) -> str:
        texts = [part.text for part in self.content if isinstance(part, TextInput)]
        return texts[0] if len(texts) == 1 else "".join(texts)


class AgentMessage(Struct, frozen=True):
    id: str
    content: tuple[str, ...]
    """Texts of the parts, which joined are the message."""
    phase: str | None = None
    """`commentary` or `final_answer`; None if the model does not say which."""

    @property
    def text(self) -> str:
        return "".join(self.content)


class Reasoning(Struct, frozen=True):
    id: str
    summary: tuple[str, ...]
    content: tuple[str, ...] = ()
    """Raw reasoning."""
    show_content: bool = False
    """Whether the conversation API shows `content`, too, which it does not by default (`show_raw_agent_reasoning`)."""


class WebSearch(Struct, frozen=True):
    id: str
    query: str
    action: WebSearchAction | None = None


class CommandExecution(Struct, frozen=True, kw_only=True):
    id: str
    command: tuple[str, ...]
    """Arguments of the command that runs, including the shell."""
    cwd: str
    parsed: tuple[ParsedCommand, ...]
    source: CommandSource = CommandSource.AGENT
    line: str | None = None
    """Command line that the model wrote; None if it also wrote the shell around it."""
    status: ItemStatus = ItemStatus.IN_PROGRESS
    process_id: str | None = None
    stdout: str = ""
    stderr: str = ""
    output: str = ""
    """Output of both streams in its order; of a long output, its head and its tail."""
    shown_output: str = ""
    """Output in the form that the model is shown."""
    exit_code: int | None = None
    """Exit code; None while the command runs, and if nothing ran."""
    seconds: float | None = None


class FileTexts(EngineStruct):
    """A file before and after a patch; None: there is no such file."""

    old: str | None
    new: str | None


class FileChange(Redacted, frozen=True, kw_only=True):
    """One patch: keys of `changes` are absolute paths."""

    HIDDEN = ("texts",)

    id: str
    changes: Mapping[str, ChangedFile]
    status: ItemStatus = ItemStatus.IN_PROGRESS
    stdout: str = ""
    stderr: str = ""
    texts: Mapping[str, FileTexts] = msgspec.field(default_factory=dict)
    """Texts of the files by the same paths, while the patch is live: they are not stored."""


class McpToolCall(Struct, frozen=True, kw_only=True):
    id: str
    invocation: mcp.McpInvocation
    status: ItemStatus = ItemStatus.IN_PROGRESS
    result: mcp.McpResult | None = None
    seconds: float | None = None
    read_only_hint: bool | None = None
    """The MCP server's hint whether the tool only reads; None if it gives none, or if it is not known."""


class ImageView(Struct, frozen=True):
    id: str
    path: str


class EnteredReview(Struct, frozen=True):
    id: str
    prompt: str
    hint: str
    """Subject of the review, in words for the user."""


class ExitedReview(Struct, frozen=True):
    id: str
    output: ReviewOutputEvent | None
    """Result of the review; None if it was interrupted or failed."""


class ContextCompaction(Struct, frozen=True):
    id: str


class DynamicToolCall(Struct, frozen=True, kw_only=True):
    """A call of a tool that the client brought."""

    id: str
    tool: str
    arguments: Json
    namespace: str | None = None
    status: ItemStatus = ItemStatus.IN_PROGRESS
    content: tuple[Json, ...] | None = None
    success: bool | None = None
    seconds: float | None = None


class HookPromptFragment(EngineStruct):
    """Words of one hook."""

    text: str
    hook_run_id: str


class HookPrompt(Struct, frozen=True):
    """Words of hooks for the model, because of which a turn goes on."""

    id: str
    fragments: tuple[HookPromptFragment, ...]


class Plan(Struct, frozen=True):
    """A proposed plan, in plan mode."""

    id: str
    text: str


Item = (
    UserMessage
    | AgentMessage
    | Reasoning
    | WebSearch
    | CommandExecution
    | FileChange
    | McpToolCall
    | ImageView
    | EnteredReview
    | ExitedReview
    | ContextCompaction
    | DynamicToolCall
    | HookPrompt
    | Plan
)


NOT_STORED: Final = ("texts",)
"""Fields that only live items have."""

KINDS: Final = {model.__name__: model for model in get_args(Item)}


def item_to_value(item: Item) -> Json:
    """Return `{"kind": CLASS, …fields}`, the form in which an item is stored."""
    fields = {name: value for name, value in asdict(item).items() if name not in NOT_STORED}
    if isinstance(item, FileChange):
        fields["changes"] = {path: TAGGED_CHANGE.wrap(change) for path, change in item.changes.items()}
    return {"kind": type(item).__name__, **json.loads(json_bytes(fields))}


def item_from_value(value: Json) -> Item | None:
    """Parse a stored item; None if its kind is unknown, or it is damaged."""
    kind = KINDS.get(str(value.get("kind"))) if isinstance(value, dict) else None
    if kind is None:
        return None
    fields = {name: field for name, field in value.items() if name != "kind"}
    try:
        item: Item = parse.read(kind, fields)
    except ValueError:
        return None
    return item
