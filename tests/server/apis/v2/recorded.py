"""Messages that an adapter makes of events, parsed and checked against the schemas."""

import json
from collections.abc import Iterable
from functools import cache

from jsonschema import Draft7Validator

from app_server.server.apis.v2.v2_adapter import ThreadAdapter
from app_server.server.conversations.live_turn import LiveTurn
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EngineEvent, SessionEvent
from app_server_protocol.engine.item_values import AddFileChange, UnknownCommand
from app_server_protocol.engine.items import CommandExecution, FileChange
from app_server_protocol.engine.token_usage import (
    RateLimitSnapshot,
    RateLimitWindow,
    TokenUsage,
    TokenUsageInfo,
)
from app_server_protocol.export import schemas
from app_server_protocol.responses import InputText, MessageItem
from tests.support.adapter_messages import lines_of
from tests.support.written_texts import WritingTurn

THREAD = "01a1fc2e-450f-7ed0-9b52-64722a96c4dc"
TURN, OTHER_TURN = "01a1fc2e-5000-7ed0-9b52-64722a96c4dc", "01a1fc2e-6000-7ed0-9b52-64722a96c4dc"
NOW = 1_795_288_573.25
USAGE = TokenUsageInfo(
    total_token_usage=TokenUsage(input_tokens=10, output_tokens=5, total_tokens=15),
    last_token_usage=TokenUsage(total_tokens=15),
    model_context_window=1000,
)
LIMITS = RateLimitSnapshot(primary=RateLimitWindow(used_percent=12.6, window_minutes=300, resets_at=5))
RAW = MessageItem(role="user", content=(InputText(text="hi"),))


def command(id: str = "call-1", **fields: Json) -> CommandExecution:
    return CommandExecution(
        id=id,
        command=("bash", "-lc", "ls"),
        cwd="/w",
        parsed=(UnknownCommand(cmd="ls"),),
        **fields,
    )


def patch(id: str = "call-2", **fields: Json) -> FileChange:
    return FileChange(id=id, changes={"/w/a": AddFileChange(content="x\n")}, **fields)


@cache
def validator(name: str) -> Draft7Validator:
    return Draft7Validator(schemas.alone(name, schemas.thread_definitions(experimental=True)))


def message(line: bytes) -> Json:
    """Parse and check a notification, which has the time of its creation beside its parameters."""
    value = json.loads(line)
    assert list(value) == ["method", "params", "emittedAtMs"]
    assert value["emittedAtMs"] == int(NOW * 1000)
    assert b"\n" not in line
    if value["method"] != "rawResponseItem/completed":
        validator("ServerNotification").validate({"method": value["method"], "params": value["params"]})
    return value


class Recording:
    """Adapter, with a sink that passes it the events of a turn."""

    def __init__(self, *, raw: bool = False, subscribed: bool = True) -> None:
        self.adapter = ThreadAdapter(THREAD, lambda: NOW)
        self.live = LiveTurn()
        self.raw, self.subscribed = raw, subscribed
        self.messages: list[Json] = []
        self.emitted: list[SessionEvent] = []

    def emit(
        self, operation_id: str, event: EngineEvent, *, turn_id: str | None = None, wake: bool = True
    ) -> None:
        self.take(SessionEvent(operation_id, turn_id, event))

    def take(self, event: SessionEvent) -> list[Json]:
        self.emitted.append(event)
        lines: list[bytes] = []
        for each in self.live.take(event):
            lines += lines_of(self.adapter.messages(each, self.live, raw=self.raw))
        found = [message(line) for line in lines] if self.subscribed else []
        self.messages += found
        return found

    def turn(self, turn_id: str = TURN, operation_id: str = "7") -> WritingTurn:
        return WritingTurn(self, operation_id, turn_id, lambda: NOW)

    def params(self, method: str) -> list[Json]:
        return [each["params"] for each in self.messages if each["method"] == method]

    def short(self) -> list[str]:
        return [_short(each) for each in self.messages]


def _short(value: Json) -> str:
    """Return `method kind`, followed by the status, if the message has them."""
    params = value["params"]
    item = params.get("item")
    if isinstance(item, dict) and value["method"].startswith("item/"):
        status = f" {item['status']}" if "status" in item else ""
        return f"{value['method']} {item['type']}{status}"
    match value["method"]:
        case "turn/completed":
            return f"turn/completed {params['turn']['status']}"
        case "error":
            return "error retry" if params["willRetry"] else "error final"
        case method:
            return str(method)


def check_laws(messages: Iterable[Json]) -> None:
    """Check that items begin before any other message about them and end once, before their turn; turns likewise."""
    turns: dict[str, str] = {}
    open_items: dict[str, tuple[str, Json]] = {}
    seen: set[str] = set()
    for value in messages:
        method, params = value["method"], value["params"]
        match method:
            case "turn/started":
                assert params["turn"]["id"] not in turns
                turns[params["turn"]["id"]] = "running"
            case "turn/completed":
                id = params["turn"]["id"]
                assert turns[id] == "running"
                turns[id] = "over"
                left = [item for turn, item in open_items.values() if turn == id]
                assert all(item.get("source") == "unifiedExecStartup" for item in left)
            case "item/started":
                assert params["item"]["id"] not in seen
                assert turns.get(params["turnId"]) == "running"
                seen.add(params["item"]["id"])
                open_items[params["item"]["id"]] = (params["turnId"], params["item"])
            case "item/completed":
                turn_id, item = open_items.pop(params["item"]["id"])
                assert (turn_id, item["type"]) == (params["turnId"], params["item"]["type"])
                assert params["item"].get("status") != "inProgress"
            case _ if "itemId" in params:
                assert open_items[params["itemId"]][0] == params["turnId"]
            case _:
                pass
    assert set(turns.values()) <= {"over"}
