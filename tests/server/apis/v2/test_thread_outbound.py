"""Turns over the thread API: the notifications to clients, and their order."""

import json

import pytest

from app_server.server.conversations.adapter import Activity, ConversationStatus, OutboundMessage
from app_server.server.rpc.backlog import SendBuffer
from app_server_protocol.encoding import Json
from app_server_protocol.engine import events, items
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import TurnAbortReason
from app_server_protocol.engine.item_values import ExecOutputStream, UnknownCommand
from app_server_protocol.engine.notices import (
    ErrorNotice,
    HistoryItemRecorded,
    TokenUsageUpdated,
    TurnDiffUpdated,
)
from app_server_protocol.engine.questions import CommandApprovalQuestion
from app_server_protocol.engine.token_usage import RateLimitSnapshot
from app_server_protocol.event_items import TextInput
from app_server_protocol.mcp import McpInvocation
from tests.server.apis.v2.recorded import (
    LIMITS,
    NOW,
    OTHER_TURN,
    RAW,
    THREAD,
    TURN,
    USAGE,
    Recording,
    check_laws,
    command,
)
from tests.support.adapter_messages import lines_of
from tests.support.written_texts import WritingTurn


def begun(*, subscribed: bool = True) -> tuple[Recording, WritingTurn]:
    """Return a turn that has begun."""
    seen = Recording(subscribed=subscribed)
    turn = seen.turn()
    turn.turn_started(events.TurnKind.REGULAR, None)
    return seen, turn


def say(turn: WritingTurn, *texts: str, id: str = "msg-1") -> None:
    turn.start(items.AgentMessage(id, ()))
    for text in texts:
        turn.write(id, text)
    turn.complete(items.AgentMessage(id, ("".join(texts),)))


def question(turn: WritingTurn, item_id: str) -> CommandApprovalQuestion:
    asking = CommandApprovalQuestion(
        call_id=item_id,
        command=("bash", "-lc", "ls"),
        cwd="/w",
        parsed=(UnknownCommand(cmd="ls"),),
    )
    turn.emit(asking)
    return asking


# --- whole turns
def test_a_short_turn() -> None:
    seen = Recording()
    turn = seen.turn()
    turn.turn_started(events.TurnKind.REGULAR, 1000)
    turn.show(items.UserMessage("u1", (TextInput(text="hi"),)))
    say(turn, "Hel", "lo")
    turn.emit(TokenUsageUpdated(info=USAGE, rate_limits=LIMITS))
    turn.turn_ended(events.TurnStatus.COMPLETED, last_agent_message="Hello")
    assert seen.short() == [
        "turn/started",
        "item/started userMessage",
        "item/completed userMessage",
        "item/started agentMessage",
        "item/agentMessage/delta",
        "item/agentMessage/delta",
        "item/completed agentMessage",
        "thread/tokenUsage/updated",
        "account/rateLimits/updated",
        "turn/completed completed",
    ]
    check_laws(seen.messages)
    started, completed = seen.params("turn/started")[0]["turn"], seen.params("turn/completed")[0]["turn"]
    assert started == {
        "id": TURN,
        "rootTurnId": TURN,
        "items": [],
        "itemsView": "notLoaded",
        "status": "inProgress",
        "error": None,
        "startedAt": int(NOW),
        "completedAt": None,
        "durationMs": None,
    }
    assert (completed["itemsView"], [each["text"] for each in completed["items"]]) == ("summary", ["Hello"])
    assert (completed["startedAt"], completed["completedAt"], completed["durationMs"]) == (
        int(NOW),
        int(NOW),
        0,
    )
    assert seen.params("item/agentMessage/delta")[0] == {
        "threadId": THREAD,
        "turnId": TURN,
        "itemId": "msg-1",
        "delta": "Hel",
    }
    assert seen.params("account/rateLimits/updated")[0]["rateLimits"]["primary"]["usedPercent"] == 13


def test_an_interrupt_ends_what_is_open() -> None:
    seen, turn = begun()
    turn.start(items.AgentMessage("m", ()))
    turn.write("m", "half")
    turn.start(command())
    turn.start(items.McpToolCall(id="c", invocation=McpInvocation(server="s", tool="t")))
    turn.turn_ended(events.TurnStatus.INTERRUPTED, reason=TurnAbortReason.INTERRUPTED)
    assert seen.short()[-4:] == [
        "item/completed agentMessage",
        "item/completed commandExecution failed",
        "item/completed mcpToolCall failed",
        "turn/completed interrupted",
    ]
    check_laws(seen.messages)
    assert seen.params("item/completed")[0]["item"]["text"] == "half"
    ended = seen.params("turn/completed")[0]["turn"]
    assert (ended["items"], ended["itemsView"], ended["error"]) == ([], "notLoaded", None)


def test_a_retry_ends_the_broken_message_first() -> None:
    seen, turn = begun()
    turn.start(items.AgentMessage("m1", ()))
    turn.write("m1", "bro")
    turn.cut_text()
    error = TurnError("stream cut", ErrorClass.RESPONSE_STREAM_DISCONNECTED)
    turn.emit(events.AttemptFailed(error, 1, 5))
    say(turn, "whole", id="m2")
    turn.turn_ended(events.TurnStatus.COMPLETED)
    assert seen.short()[1:6] == [
        "item/started agentMessage",
        "item/agentMessage/delta",
        "item/completed agentMessage",
        "error retry",
        "item/started agentMessage",
    ]
    check_laws(seen.messages)
    assert seen.params("error")[0]["error"] == {
        "message": "Reconnecting... 1/5 (stream cut)",
        "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": None}},
        "additionalDetails": "stream cut",
    }
    assert [each["text"] for each in seen.params("turn/completed")[0]["turn"]["items"]] == ["whole"]


def test_a_turn_that_fails_without_a_reason_still_has_an_error() -> None:
    seen, turn = begun()
    turn.turn_ended(events.TurnStatus.FAILED)
    assert seen.params("turn/completed")[0]["turn"]["error"]["codexErrorInfo"] == "other"


def test_a_terminal_outlives_its_turn() -> None:
    seen = Recording()
    turn, terminal = seen.turn(), command(source=items.CommandSource.TERMINAL, process_id="1")
    turn.turn_started(events.TurnKind.REGULAR, None)
    turn.start(terminal)
    begun = turn.detach("call-1")
    turn.turn_ended(events.TurnStatus.COMPLETED)
    later = seen.turn(OTHER_TURN)
    later.turn_started(events.TurnKind.REGULAR, None)
    later.start(command())  # the model's call ids start again
    later.emit_under(TURN, events.TerminalInput("call-1", "1", "y\n"))
    later.emit_under(TURN, events.CommandOutput("call-1", ExecOutputStream.STDOUT, b"late"))
    ended = command(source=items.CommandSource.TERMINAL, status=items.ItemStatus.COMPLETED, exit_code=0)
    later.complete_detached(ended, begun, TURN)
    later.complete(command(status=items.ItemStatus.COMPLETED, exit_code=0))
    assert seen.live.record is not None
    assert [each.item.id for each in seen.live.record.items] == ["call-1-2"]
    later.turn_ended(events.TurnStatus.COMPLETED)
    check_laws(seen.messages)
    places = [(each["turnId"], each["item"]["id"]) for each in seen.params("item/completed")]
    assert places == [(TURN, "call-1"), (OTHER_TURN, "call-1-2")]
    assert seen.params("item/commandExecution/terminalInteraction") == [
        {"threadId": THREAD, "turnId": TURN, "itemId": "call-1", "processId": "1", "stdin": "y\n"}
    ]


def test_a_turn_that_ended_before_it_started_is_both_started_and_completed() -> None:
    seen = Recording()
    seen.turn().turn_ended(events.TurnStatus.COMPLETED)
    assert seen.short() == ["turn/started", "turn/completed completed"]
    check_laws(seen.messages)
    assert seen.params("turn/started")[0]["turn"]["startedAt"] == int(NOW)


# --- deltas
def test_characters_that_are_cut_between_chunks_are_put_together() -> None:
    seen, turn = begun()
    turn.start(command())
    for stream, chunk in (
        (ExecOutputStream.STDOUT, "é".encode()[:1]),
        (ExecOutputStream.STDERR, "€".encode()[:2]),
        (ExecOutputStream.STDOUT, "é".encode()[1:] + b"\xff"),
        (ExecOutputStream.STDERR, "€".encode()[2:]),
        (ExecOutputStream.STDOUT, b"\xf0\x9f"),
    ):
        turn.emit(events.CommandOutput("call-1", stream, chunk))
    turn.complete(command(status=items.ItemStatus.COMPLETED, exit_code=0))
    texts = [each["delta"] for each in seen.params("item/commandExecution/outputDelta")]
    assert texts == ["é\ufffd", "€", "\ufffd"]
    assert seen.short()[-1] == "item/completed commandExecution completed"


@pytest.mark.parametrize("text", ["a" * 20_000, "é" * 20_000, "\0" * 9_000])
def test_output_comes_in_pieces_that_a_line_can_hold(text: str) -> None:
    seen, turn = begun()
    turn.start(command())
    turn.emit(events.CommandOutput("call-1", ExecOutputStream.STDOUT, text.encode()))
    pieces = [each["delta"] for each in seen.params("item/commandExecution/outputDelta")]
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= 8 * 1024 for piece in pieces)


def test_reasoning_has_parts_and_raw_text() -> None:
    seen, turn = begun()
    turn.start(items.Reasoning("r", ()))
    turn.emit(events.ReasoningSummaryPart("r", 0))
    turn.write("r", "think", (True, 0))
    turn.write("r", 'ra"w', (False, 2))
    turn.complete(items.Reasoning("r", ("think",), ('ra"w',), False))
    turn.start(items.Plan("p", ""))
    turn.write("p", "1. look")
    turn.complete(items.Plan("p", "1. look"))
    turn.turn_ended(events.TurnStatus.COMPLETED)
    assert seen.params("item/reasoning/summaryPartAdded")[0]["summaryIndex"] == 0
    assert seen.params("item/reasoning/summaryTextDelta")[0]["delta"] == "think"
    assert seen.params("item/reasoning/textDelta")[0] == {
        "threadId": THREAD,
        "turnId": TURN,
        "itemId": "r",
        "delta": 'ra"w',
        "contentIndex": 2,
    }
    assert seen.params("item/plan/delta")[0]["delta"] == "1. look"
    assert seen.params("item/completed")[0]["item"]["content"] == ['ra"w']
    check_laws(seen.messages)


def test_a_text_that_is_no_unicode_is_still_a_line() -> None:
    seen, turn = begun()
    say(turn, "a\ud800b")
    assert seen.params("item/agentMessage/delta")[0]["delta"] == "a\ud800b"


def test_only_news_are_told_of() -> None:
    seen, turn = begun()
    turn.emit(TurnDiffUpdated(unified_diff=""))
    for _ in range(2):
        turn.emit(TurnDiffUpdated(unified_diff="d"))
        turn.emit(TokenUsageUpdated(info=USAGE, rate_limits=LIMITS))
        turn.emit(TokenUsageUpdated(info=None, rate_limits=RateLimitSnapshot()))
        turn.emit(TokenUsageUpdated(info=USAGE, rate_limits=RateLimitSnapshot()))
    assert len(seen.params("turn/diff/updated")) == 1
    assert len(seen.params("thread/tokenUsage/updated")) == 1
    turn.turn_ended(events.TurnStatus.COMPLETED)
    again = seen.turn(OTHER_TURN)
    again.turn_started(events.TurnKind.REGULAR, None)
    again.emit(TurnDiffUpdated(unified_diff="d"))
    again.emit(TokenUsageUpdated(info=USAGE))
    assert [each["turnId"] for each in seen.params("turn/diff/updated")] == [TURN, OTHER_TURN]
    assert [each["turnId"] for each in seen.params("thread/tokenUsage/updated")] == [TURN]


def test_an_error_that_ends_nothing_is_a_warning() -> None:
    seen = Recording()
    for turn_id in (None, TURN):
        seen.take(events.SessionEvent("", turn_id, ErrorNotice(message="MCP server failed")))
    assert seen.short() == ["warning", "warning"]


def test_raw_items_are_for_those_who_asked() -> None:
    for raw, expected in ((False, []), (True, ["rawResponseItem/completed"])):
        seen = Recording(raw=raw)
        seen.take(events.SessionEvent("7", TURN, HistoryItemRecorded(item=RAW)))
        assert seen.short() == expected
    assert seen.messages[0]["params"] == {"threadId": THREAD, "turnId": TURN, "item": RAW.to_value()}


# --- subscriptions


def test_without_a_subscriber_only_the_status_is_told() -> None:
    seen, turn = begun(subscribed=False)
    turn.start(items.AgentMessage("m", ()))
    turn.write("m", "half")
    assert seen.messages == []
    seen.subscribed = True
    turn.write("m", " a word")
    turn.complete(items.AgentMessage("m", ("half a word",)))
    turn.turn_ended(events.TurnStatus.COMPLETED)
    assert seen.short() == [
        "item/agentMessage/delta",
        "item/completed agentMessage",
        "turn/completed completed",
    ]


def test_an_adapter_that_is_made_during_a_turn_keeps_the_order() -> None:
    seen, before = Recording(), Recording()
    turn = before.turn()
    turn.turn_started(events.TurnKind.REGULAR, None)
    turn.start(items.AgentMessage("m", ()))
    turn.write("m", "x")
    turn.complete(items.AgentMessage("m", ("x",)))
    turn.turn_ended(events.TurnStatus.COMPLETED)
    for event in before.emitted[2:]:
        seen.take(event)
    assert seen.short() == [
        "item/started agentMessage",
        "item/completed agentMessage",
        "turn/completed completed",
    ]


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (ConversationStatus(), {"type": "idle"}),
        (ConversationStatus(Activity.SYSTEM_ERROR), {"type": "systemError"}),
        (ConversationStatus(Activity.NOT_LOADED), {"type": "notLoaded"}),
        (ConversationStatus(Activity.ACTIVE), {"type": "active", "activeFlags": []}),
        (
            ConversationStatus(Activity.ACTIVE, waiting_on_approval=True, waiting_on_input=True),
            {"type": "active", "activeFlags": ["waitingOnApproval", "waitingOnUserInput"]},
        ),
    ],
)
def test_the_status_of_a_thread(status: ConversationStatus, shown: Json) -> None:
    (line,) = lines_of(Recording().adapter.status_changed(status))
    assert json.loads(line)["params"] == {"threadId": THREAD, "status": shown}


def test_a_client_that_is_behind_gets_the_status_that_precedes_each_turn() -> None:
    """All other statuses are states: of these, only the last one counts."""
    adapter, waiting = Recording().adapter, SendBuffer()
    active, asks = (
        ConversationStatus(Activity.ACTIVE),
        ConversationStatus(Activity.ACTIVE, waiting_on_approval=True),
    )
    idle = ConversationStatus()
    for status in (active, asks, active, idle, active, asks, idle):
        for each in adapter.status_changed(status):
            assert isinstance(each, OutboundMessage)
            if each.state is None:
                waiting.add(each.data)
            else:
                waiting.add_state(each.state, each.data, last_only=True)
    shown = [json.loads(line)["params"]["status"]["type"] for line in waiting.take(1 << 20)]
    assert shown == ["active", "active", "idle"]
