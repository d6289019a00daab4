"""Origins of items: the answer and the provider that an item came from."""

import pytest

from app_server_protocol.encoding import Json
from app_server_protocol.item_origin import ItemOrigin, origin_of, without_origin
from app_server_protocol.responses import (
    FunctionCall,
    MessageItem,
    OutputText,
    parse_response_item,
)

ORIGIN = ItemOrigin(answer="a1", provider="ollama", model="m", wire="chat", kept={"signature": "s"})


def test_an_origin_is_stored_and_read_again() -> None:
    call = FunctionCall(name="shell", arguments="{}", call_id="c", origin=ORIGIN)
    again = parse_response_item(call.to_value())
    assert origin_of(again) == ORIGIN
    assert "origin" not in without_origin(again).to_value()


def test_an_item_without_origin_is_written_as_ever() -> None:
    message = MessageItem(role="assistant", content=(OutputText(text="hi"),))
    assert message.to_value().keys() == {"type", "role", "content"}
    assert without_origin(message) is message


@pytest.mark.parametrize("damaged", [1, [], "x", {}, {"answer": 1}, {"answer": "a", "provider": None}])
def test_a_damaged_origin_is_dropped(damaged: Json) -> None:
    raw = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c", "origin": damaged}
    item = parse_response_item(raw)
    assert isinstance(item, FunctionCall)
    assert item.origin is None
