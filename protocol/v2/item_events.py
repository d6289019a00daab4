"""What is said about an item while it lives: its start, its end, and each piece in between."""

from typing import Final

from protocol.structs import WireStruct
from protocol.table import ServerNotification
from protocol.v2.fields import RequestId
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


class OfItem(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str


class ItemDelta(OfItem):
    delta: str


class AgentMessageDeltaNotification(ItemDelta):
    pass


class PlanDeltaNotification(ItemDelta):
    pass


class ReasoningSummaryPartAddedNotification(OfItem):
    summary_index: int


class ReasoningSummaryTextDeltaNotification(ItemDelta):
    summary_index: int


class ReasoningTextDeltaNotification(ItemDelta):
    content_index: int


class CommandExecutionOutputDeltaNotification(ItemDelta):
    pass


class TerminalInteractionNotification(OfItem):
    """The model wrote to a command that runs."""

    process_id: str
    stdin: str


class ServerRequestResolvedNotification(WireStruct):
    """A question of the server needs no answer any more: it was answered, or its turn has ended."""

    thread_id: str
    request_id: RequestId


ITEM_STARTED: Final = ServerNotification("item/started", ItemStartedNotification, "An item begins.")
ITEM_COMPLETED: Final = ServerNotification("item/completed", ItemCompletedNotification, "An item ended.")
ITEM_AGENT_MESSAGE_DELTA: Final = ServerNotification(
    "item/agentMessage/delta", AgentMessageDeltaNotification, "A piece of what the model says."
)
ITEM_PLAN_DELTA: Final = ServerNotification(
    "item/plan/delta", PlanDeltaNotification, "A piece of the plan that the model proposes."
)
ITEM_REASONING_SUMMARY_PART_ADDED: Final = ServerNotification(
    "item/reasoning/summaryPartAdded",
    ReasoningSummaryPartAddedNotification,
    "Another part of the summary of what the model thinks.",
)
ITEM_REASONING_SUMMARY_TEXT_DELTA: Final = ServerNotification(
    "item/reasoning/summaryTextDelta",
    ReasoningSummaryTextDeltaNotification,
    "A piece of that summary.",
)
ITEM_REASONING_TEXT_DELTA: Final = ServerNotification(
    "item/reasoning/textDelta",
    ReasoningTextDeltaNotification,
    "A piece of what the model thinks, where it is shown.",
)
ITEM_COMMAND_EXECUTION_OUTPUT_DELTA: Final = ServerNotification(
    "item/commandExecution/outputDelta",
    CommandExecutionOutputDeltaNotification,
    "A piece of a command's output, as text.",
)
ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION: Final = ServerNotification(
    "item/commandExecution/terminalInteraction",
    TerminalInteractionNotification,
    "The model wrote to a command.",
)
SERVER_REQUEST_RESOLVED: Final = ServerNotification(
    "serverRequest/resolved",
    ServerRequestResolvedNotification,
    "A question needs no answer any more.",
)
