"""What a turn is made of. Every item begins, has a status where it can fail, and ends exactly once.

Ids are the provider's item id, the model's call id, or a UUIDv7 where neither names the item.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import cache
from typing import Final, get_args

from pydantic import TypeAdapter, ValidationError

from protocol.events.commands import FileChange as ChangedFile
from protocol.events.commands import ParsedCommand
from protocol.events.review import ReviewOutputEvent
from protocol.items import SentInput, UserInput
from protocol.mcp import McpInvocation, McpResult
from protocol.records import dataclass
from protocol.responses import WebSearchAction
from protocol.structs import Json


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


@dataclass(frozen=True, slots=True)
class UserMessage:
    id: str
    content: tuple[UserInput, ...]
    """As the model sees it: local images are read and encoded."""
    client_id: str | None = None
    """The id that the client gave the message, if it did."""
    sent: tuple[SentInput, ...] | None = None
    """As the client sent it, where that differs from `content`."""


@dataclass(frozen=True, slots=True)
class AgentMessage:
    id: str
    content: tuple[str, ...]
    """Texts of the parts; joined they are the message."""
    phase: str | None = None
    """`commentary` or `final_answer`, where the model says which."""

    @property
    def text(self) -> str:
        return "".join(self.content)


@dataclass(frozen=True, slots=True)
class Reasoning:
    id: str
    summary: tuple[str, ...]
    content: tuple[str, ...] = ()
    """Raw reasoning."""
    show_content: bool = False
    """Whether `content` is shown also where it is not shown by itself: over the conversation API
    (`show_raw_agent_reasoning`)."""


@dataclass(frozen=True, slots=True)
class WebSearch:
    id: str
    query: str
    action: WebSearchAction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandExecution:
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


@dataclass(frozen=True, slots=True)
class FileTexts:
    """A file before and after a patch; None: there is no such file."""

    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One patch: keys of `changes` are absolute paths."""

    id: str
    changes: Mapping[str, ChangedFile]
    status: ItemStatus = ItemStatus.IN_PROGRESS
    stdout: str = ""
    stderr: str = ""
    texts: Mapping[str, FileTexts] = field(default_factory=dict, repr=False)
    """By the same keys, while the patch is live: these are not stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpToolCall:
    id: str
    invocation: McpInvocation
    status: ItemStatus = ItemStatus.IN_PROGRESS
    result: McpResult | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ImageView:
    id: str
    path: str


@dataclass(frozen=True, slots=True)
class EnteredReview:
    id: str
    prompt: str
    hint: str
    """What is reviewed, in words for the user."""


@dataclass(frozen=True, slots=True)
class ExitedReview:
    id: str
    output: ReviewOutputEvent | None
    """None: the review was interrupted or failed."""


@dataclass(frozen=True, slots=True)
class ContextCompaction:
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicToolCall:
    """A call of a tool that the client brought."""

    id: str
    tool: str
    arguments: Json
    namespace: str | None = None
    status: ItemStatus = ItemStatus.IN_PROGRESS
    content: tuple[Json, ...] | None = None
    success: bool | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
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
    """`{"kind": CLASS, …fields}`"""
    fields = _adapter(type(item)).dump_python(item, mode="json", exclude={*NOT_STORED})
    return {"kind": type(item).__name__, **fields}


def item_from_value(value: Json) -> Item | None:
    """Read an item; None where it is of no known kind, or damaged."""
    if not isinstance(value, dict):
        return None
    kind = KINDS.get(str(value.get("kind")))
    if kind is None:
        return None
    try:
        return _adapter(kind).validate_python({key: field for key, field in value.items() if key != "kind"})
    except ValidationError:
        return None


def _adapter(kind: type[Item]) -> TypeAdapter[Item]:
    return _adapter_by_name(kind.__name__)


@cache
def _adapter_by_name(name: str) -> TypeAdapter[Item]:
    return TypeAdapter(KINDS[name])
