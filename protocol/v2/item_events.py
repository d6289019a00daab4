"""What is said about an item while it lives: its start, its end, and each piece in between."""

from protocol.structs import WireStruct
from protocol.v2.fields import RequestId
from protocol.v2.item_parts import FileUpdateChange
from protocol.v2.items import ThreadItem


class ItemStartedNotification(WireStruct):
    """Before everything else that is said about the item."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    started_at_ms: int


class ItemCompletedNotification(WireStruct):
    """The item as it stays. The last thing that is said about it."""

    item: ThreadItem
    thread_id: str
    turn_id: str
    content_token_count: int | None = None
    completed_at_ms: int


class AgentMessageDeltaNotification(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class PlanDeltaNotification(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class ReasoningSummaryPartAddedNotification(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    summary_index: int


class ReasoningSummaryTextDeltaNotification(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    summary_index: int


class ReasoningTextDeltaNotification(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str
    content_index: int


class CommandExecutionOutputDeltaNotification(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class TerminalInteractionNotification(WireStruct):
    """The model wrote to a command that runs."""

    thread_id: str
    turn_id: str
    item_id: str
    process_id: str
    stdin: str


class FileChangeOutputDeltaNotification(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    delta: str


class FileChangePatchUpdatedNotification(WireStruct):
    """The patch so far, while the model writes it."""

    thread_id: str
    turn_id: str
    item_id: str
    changes: tuple[FileUpdateChange, ...]


class McpToolCallProgressNotification(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    message: str


class ContextCompactedNotification(WireStruct):
    """The older word for the item `contextCompaction`."""

    thread_id: str
    turn_id: str


class ServerRequestResolvedNotification(WireStruct):
    """A question of the server needs no answer any more: it was answered, or its turn has ended."""

    thread_id: str
    request_id: RequestId
