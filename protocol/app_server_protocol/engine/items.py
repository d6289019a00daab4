"""What a turn is made of. Every item begins, has a status where it can fail, and ends exactly once.

Ids are the provider's item id, the model's call id, or a UUIDv7 where neither names the item.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

import app_server_protocol
from app_server_protocol.events.commands import TAGGED_CHANGE, ParsedCommand
from app_server_protocol.events.commands import FileChange as ChangedFile
from app_server_protocol.events.review import ReviewOutputEvent
from app_server_protocol.items import SentInput, UserInput
from app_server_protocol.responses import WebSearchAction
from app_server_protocol.structs import Discreet, EngineStruct, Json, json_bytes, model_of, struct_of

if TYPE_CHECKING:
    import app_server_protocol.mcp


class ItemStatus(StrEnum):
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    DECLINED = "declined"
    """The user or the policy refused it; nothing ran."""


class CommandSource(StrEnum):
    AGENT = "agent"
    USER_SHELL = "user_shell"
    """Typed by the user."""
    TERMINAL = "terminal"
    """Started by the model on a terminal that may outlive the call."""
    PROVIDER = "provider"
    """The provider's own kind of shell call."""


class UserMessage(Struct, frozen=True):
    id: str
    content: tuple[UserInput, ...]
    """As the model sees it: local images are read and encoded."""
    client_id: str | None = None
    """The id that the client gave the message, if it did."""
    sent: tuple[SentInput, ...] | None = None
    """As the client sent it, where that differs from `content`."""


class AgentMessage(Struct, frozen=True):
    id: str
    content: tuple[str, ...]
    """Texts of the parts; joined they are the message."""
    phase: str | None = None
    """`commentary` or `final_answer`, where the model says which."""

    @property
    def text(self) -> str:
        return "".join(self.content)


class Reasoning(Struct, frozen=True):
    id: str
    summary: tuple[str, ...]
    content: tuple[str, ...] = ()
    """Raw reasoning."""
    show_content: bool = False
    """Whether `content` is shown also where it is not shown by itself: over the conversation API
    (`show_raw_agent_reasoning`)."""


class WebSearch(Struct, frozen=True):
    id: str
    query: str
    action: WebSearchAction | None = None


class CommandExecution(Struct, frozen=True, kw_only=True):
    id: str
    command: tuple[str, ...]
    """The argv that runs, shell and all."""
    cwd: str
    parsed: tuple[ParsedCommand, ...]
    source: CommandSource = CommandSource.AGENT
    line: str | None = None
    """What the model wrote, where the shell around it was added by us."""
    status: ItemStatus = ItemStatus.IN_PROGRESS
    process_id: str | None = None
    stdout: str = ""
    stderr: str = ""
    output: str = ""
    """Both streams as they came, head and tail of what is long."""
    shown_output: str = ""
    """`output` as the model is shown it."""
    exit_code: int | None = None
    """None while it runs, and where nothing ran."""
    seconds: float | None = None


class FileTexts(EngineStruct):
    """A file before and after a patch; None: there is no such file."""

    old: str | None
    new: str | None


class FileChange(Discreet, frozen=True, kw_only=True):
    """One patch: keys of `changes` are absolute paths."""

    HIDDEN = ("texts",)

    id: str
    changes: Mapping[str, ChangedFile]
    status: ItemStatus = ItemStatus.IN_PROGRESS
    stdout: str = ""
    stderr: str = ""
    texts: Mapping[str, FileTexts] = msgspec.field(default_factory=dict)
    """By the same keys, while the patch is live: these are not stored."""


class McpToolCall(Struct, frozen=True, kw_only=True):
    id: str
    invocation: app_server_protocol.mcp.McpInvocation
    status: ItemStatus = ItemStatus.IN_PROGRESS
    result: app_server_protocol.mcp.McpResult | None = None
    seconds: float | None = None
    read_only_hint: bool | None = None
    """The server's word for it that the tool only reads, or does not; None: it says neither, or it is not known."""


class ImageView(Struct, frozen=True):
    id: str
    path: str


class EnteredReview(Struct, frozen=True):
    id: str
    prompt: str
    hint: str
    """What is reviewed, in words for the user."""


class ExitedReview(Struct, frozen=True):
    id: str
    output: ReviewOutputEvent | None
    """None: the review was interrupted or failed."""


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
    | Plan
)


NOT_STORED: Final = ("texts",)
"""Fields that are known of live items only."""

KINDS: Final = {model.__name__: model for model in get_args(Item)}


def item_to_value(item: Item) -> Json:
    """Return `{"kind": CLASS, …fields}`, as it is stored."""
    fields = {name: value for name, value in asdict(item).items() if name not in NOT_STORED}
    if isinstance(item, FileChange):
        fields["changes"] = {path: TAGGED_CHANGE.wrap(change) for path, change in item.changes.items()}
    return {"kind": type(item).__name__, **json.loads(json_bytes(fields))}


def item_from_value(value: Json) -> Item | None:
    """Read a stored item; None where it is of no known kind, or damaged."""
    kind = KINDS.get(str(value.get("kind"))) if isinstance(value, dict) else None
    if kind is None:
        return None
    fields = {name: field for name, field in value.items() if name != "kind"}
    try:
        read = model_of(kind).model_validate(fields)
    except ValueError:
        return None
    item: Item = struct_of(kind, read)
    return item
