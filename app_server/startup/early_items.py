"""What `early_turns` shows with the models of the thread API: items that are stored whole, and errors."""

from __future__ import annotations

from collections.abc import Mapping

from app_server.apis.v2.errors import turn_error
from app_server.apis.v2.turns import shown_items as shown_ended
from app_server.core.rollout.stored_events import kept_item
from app_server.core.rollout.turn_events import stored_error
from app_server.core.rollout.turn_fields import times_of
from protocol.base import Json
from protocol.engine.codec import item_from_value
from protocol.engine.turns import EndedItem


def shown_items(payload: Mapping[str, Json]) -> list[Json]:
    """The item of such a line, and what is shown behind it; nothing where it is damaged."""
    item = item_from_value(payload.get("item"))
    if item is None:
        return []
    started, ended = times_of(payload)
    whole = EndedItem(kept_item(item), started or None, ended or None, payload.get("cut") is True)
    return [each.to_value() for each in shown_ended(whole)]


def shown_error(value: Json) -> Json:
    """None where it says nothing."""
    error = stored_error(value)
    return None if error is None else turn_error(error).to_value()
