"""What is said about an item while it lives: its start, its end, and each piece in between."""

from protocol.base import WireModel
from protocol.v2.fields import RequestId
from protocol.v2.item_parts import FileUpdateChange
from protocol.v2.items import ThreadItem


class ItemStartedNotification(WireModel):
    """Before everything else that is said about the item."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    started_at_ms: int


class ItemCompletedNotification(WireModel):
    """The item as it stays. The last thing that is said about it."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    content_token_count: int | None = None
    completed_at_ms: int


class AgentMessageDeltaNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class PlanDeltaNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class ReasoningSummaryPartAddedNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    summary_index: int


class ReasoningSummaryTextDeltaNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    summary_index: int


class ReasoningTextDeltaNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    content_index: int


class CommandExecutionOutputDeltaNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class TerminalInteractionNotification(WireModel):
    """The model wrote to a command that runs."""

    thread_id: str
    turn_id: str
    item_id: str
    process_id: str
    stdin: str


class FileChangeOutputDeltaNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class FileChangePatchUpdatedNotification(WireModel):
    """The patch so far, while the model writes it."""

    thread_id: str
    turn_id: str
    item_id: str
    changes: tuple[FileUpdateChange, ...]


class McpToolCallProgressNotification(WireModel):
    thread_id: str
    turn_id: str
    item_id: str
    message: str


class ContextCompactedNotification(WireModel):
    """The older word for the item `contextCompaction`."""

    thread_id: str
    turn_id: str


class ServerRequestResolvedNotification(WireModel):
    """A question of the server needs no answer any more: it was answered, or its turn has ended."""

    thread_id: str
    request_id: RequestId
