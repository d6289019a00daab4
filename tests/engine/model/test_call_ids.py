"""Ids of calls that came from another API than the provider's."""

from app_server.engine.model.call_ids import ForeignIds
from app_server_protocol.item_origin import ItemOrigin
from app_server_protocol.responses import FunctionCall, ResponseItem
from tests.engine.model.histories import output

CHAT = ItemOrigin(answer="a", provider="other", model="m", wire="chat")


def call(id: str, origin: ItemOrigin | None = None) -> FunctionCall:
    return FunctionCall(name="shell", arguments="{}", call_id=id, origin=origin)


def ids(items: list[ResponseItem], given: ForeignIds | None = None) -> list[str]:
    return [getattr(each, "call_id", "") for each in (given or ForeignIds()).of(items)]


def test_calls_of_other_apis_get_ids_of_their_own() -> None:
    one, again, own = call("f:0", CHAT), call("f:0", CHAT), call("f:0")
    items: list[ResponseItem] = [one, output("f:0"), again, output("f:0"), own, output("f:0")]
    assert ids(items) == ["f_0", "f_0", "f_0_2", "f_0_2", "f:0", "f:0"]


def test_a_longer_history_begins_the_same() -> None:
    items: list[ResponseItem] = [call("c", CHAT), output("c"), call("c", CHAT), output("c")]
    given = ForeignIds()
    first = list(given.of(items[:2]))
    assert given.of(items)[0] is first[0]
    assert ids(items, given) == ids(items)
    assert ids(items[2:], given) == ["c", "c"], "a compacted history begins anew"
