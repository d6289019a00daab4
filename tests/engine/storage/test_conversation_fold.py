"""The events of the conversation API from stored lines: messages that are read alone are those that are decoded."""

from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.storage.conversation_fold import ConversationFold
from app_server.engine.storage.record import RevertedRanges, StoredRecord
from app_server_protocol.encoding import Json
from app_server_protocol.engine.legacy import COMPACTED
from app_server_protocol.events.msg import EventMsg
from tests.engine.storage.stored import Line, conversation_id

CALL = {"name": "shell", "arguments": '{"command":["ls"]}', "call_id": "c"}
USER, AGENT = {"type": "user_message", "message": "hello"}, {"type": "agent_message", "message": "hi"}
sent = st.sampled_from(
    [
        *(USER, AGENT, {**USER, "images": ["data:a"]}, {**AGENT, "message": COMPACTED}),
        *({**USER, "images": ["data:a", 1]}, {**USER, "message": "", "images": None}, {**USER, "message": 1}),
        *({**AGENT, "phase": "commentary"}, {**AGENT, "message": "\ud800"}),
        *({**USER, "item_id": "i"}, {**AGENT, "item_id": "i", "turn_id": "t"}, {**AGENT, "turn_id": None}),
    ]
)
others = st.sampled_from(
    [
        ("event_msg", {"type": "task_started", "turn_id": "t"}),
        ("event_msg", {"type": "task_complete", "turn_id": "t"}),
        ("event_msg", {"type": "turn_aborted", "reason": "interrupted"}),
        ("event_msg", {"type": "agent_reasoning", "text": "thought"}),
        ("event_msg", {"type": "token_count", "info": None, "rate_limits": None}),
        ("event_msg", {"type": "context_compacted"}),
        ("event_msg", {"type": "entered_review_mode", "prompt": "p", "user_facing_hint": "h"}),
        ("event_msg", {"type": "exited_review_mode", "review_output": None}),
        ("compacted", {"message": "summary"}),
        ("response_item", {"type": "message", "role": "assistant", "content": []}),
        ("response_item", {"type": "function_call", **CALL}),
        ("response_item", {"type": "function_call_output", "call_id": "c", "output": "a.txt"}),
    ]
)


def messages(lines: list[Line], reverted: RevertedRanges, *, turns: bool) -> list[EventMsg]:
    fold = ConversationFold(conversation_id(1), reverted, turns=turns, messages=True)
    for number, kind, payload in lines:
        fold.take(number, StoredRecord.of(kind, payload))
    fold.finish()
    return fold.messages


@settings(max_examples=400)
@given(st.lists(sent.map(lambda payload: ("event_msg", payload)) | others, max_size=12), st.booleans())
def test_messages_without_turns_are_those_with_turns(drawn: list[tuple[str, Json]], reverts: bool) -> None:
    lines = [(number, kind, payload) for number, (kind, payload) in enumerate(drawn)]
    reverted = RevertedRanges()
    if reverts:
        reverted.cut(1, len(lines) // 2)
    assert messages(lines, reverted, turns=False) == messages(lines, reverted, turns=True)
