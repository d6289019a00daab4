"""Begin, end and content of a turn.

Per turn: `task_started`, then items, commands, patches and the rest, then exactly one of `task_complete` and
`turn_aborted`. Nothing with this turn's id follows it. A turn without any input only has its `task_complete`.
"""

from enum import StrEnum
from typing import Literal

from protocol.base import EngineModel
from protocol.ids import ConversationId
from protocol.items import TurnItem
from protocol.responses import ResponseItem
from protocol.structs import EngineStruct


class TaskStartedEvent(EngineStruct):
    """A turn begins. First event of the turn, and once."""

    type: Literal["task_started"] = "task_started"
    model_context_window: int | None = None


class TaskCompleteEvent(EngineStruct):
    """A turn ended by itself, well or with an `error` event before it. Last event of the turn, and once."""

    type: Literal["task_complete"] = "task_complete"
    last_agent_message: str | None = None


class TurnAbortReason(StrEnum):
    INTERRUPTED = "interrupted"
    """The user said stop."""
    REPLACED = "replaced"
    """A new turn took its place."""
    REVIEW_ENDED = "review_ended"
    """The review that the turn belonged to was left."""


class TurnAbortedEvent(EngineStruct):
    """A turn was stopped from outside. Last event of the turn, and once; no `task_complete` comes."""

    type: Literal["turn_aborted"] = "turn_aborted"
    reason: TurnAbortReason


class ItemStartedEvent(EngineModel):
    """An item of the turn begins; its content may still be empty. Before every delta of the item."""

    type: Literal["item_started"] = "item_started"
    thread_id: ConversationId
    turn_id: str
    item: TurnItem


class ItemCompletedEvent(EngineModel):
    """An item is whole. After its `item_started` and all of its deltas; the plain event that repeats it
    for older clients (`user_message`, `agent_message`, `agent_reasoning`, `web_search_end`) comes right
    after."""

    type: Literal["item_completed"] = "item_completed"
    thread_id: ConversationId
    turn_id: str
    item: TurnItem


class RawResponseItemEvent(EngineStruct):
    """An entry of the history as the model sees it, sent when it is recorded, and only to listeners
    that asked for raw events."""

    type: Literal["raw_response_item"] = "raw_response_item"
    item: ResponseItem
