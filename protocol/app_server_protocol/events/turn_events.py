"""Begin, end and content of a turn, and what it took: tokens used, limits of the account.

Per turn: `task_started`, then items, commands, patches and the rest, then exactly one of `task_complete` and
`turn_aborted`. Nothing with this turn's id follows it. A turn without any input only has its `task_complete`.
"""

from typing import Literal

from app_server_protocol.engine.events import TurnAbortReason
from app_server_protocol.engine.token_usage import RateLimitSnapshot, TokenUsageInfo
from app_server_protocol.event_items import TurnItem
from app_server_protocol.ids import ConversationId
from app_server_protocol.outgoing import EngineStruct
from app_server_protocol.responses import ResponseItem


class TaskStartedEvent(EngineStruct):
    """A turn begins. First event of the turn, and once."""

    type: Literal["task_started"] = "task_started"
    model_context_window: int | None = None


class TaskCompleteEvent(EngineStruct):
    """A turn ended by itself, well or with an `error` event before it. Last event of the turn, and once."""

    type: Literal["task_complete"] = "task_complete"
    last_agent_message: str | None = None


class TurnAbortedEvent(EngineStruct):
    """A turn was stopped from outside. Last event of the turn, and once; no `task_complete` comes."""

    type: Literal["turn_aborted"] = "turn_aborted"
    reason: TurnAbortReason


class ItemStartedEvent(EngineStruct):
    """An item of the turn begins; its content may still be empty. Before every delta of the item."""

    type: Literal["item_started"] = "item_started"
    thread_id: ConversationId
    turn_id: str
    item: TurnItem


class ItemCompletedEvent(EngineStruct):
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


class TokenCountEvent(EngineStruct):
    """Usage or limits became known. At any place within a turn, several times; `info` is null until the first
    response was completed. After a compaction it restates the smaller usage."""

    type: Literal["token_count"] = "token_count"
    info: TokenUsageInfo | None = None
    rate_limits: RateLimitSnapshot | None = None
