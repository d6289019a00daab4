"""Assembles the calls of a Chat Completions answer, which arrive in pieces. Pure.

A piece belongs to the call with its id, to the call at its index, or to the call that was begun last. Servers make
three mistakes here:

- All calls, or the beginnings of two, have one index. A piece with a new id and a name begins a call at any index, and
  one without id and name continues a call that is not whole, also at an index that no call has.
- All calls have one id. A piece with that id and another name, or another index, begins a call behind a whole one.
- The last piece of a call repeats all its arguments. The repetition is dropped.
"""

from __future__ import annotations

import json

import msgspec
from msgspec import Struct

from app_server.engine.model import event_json
from app_server.engine.model.chat_writer import EXTRA
from app_server_protocol.encoding import Json


class ChatCall(Struct):
    """A call, as far as its pieces have arrived."""

    id: str = ""
    name: str = ""
    arguments: list[str] = msgspec.field(default_factory=list)
    extra: Json = None
    index: int | None = None

    def repeats(self, arguments: str) -> bool:
        """Return whether these are once more all the arguments of a call that is whole."""
        return (
            arguments.startswith("{") and arguments == "".join(self.arguments) and self.has_whole_arguments()
        )

    def is_followed_by(self, name: str, index: int | None, arguments: str) -> bool:
        """Return whether a piece with the id of this call, which is whole, has another name, index or arguments."""
        other_index = index is not None and index != self.index
        other = name != self.name or other_index or (arguments.strip() and not self.repeats(arguments))
        return bool(self.name and other) and self.has_whole_arguments()

    def has_whole_arguments(self) -> bool:
        last = next((piece.rstrip() for piece in reversed(self.arguments) if not piece.isspace()), "")
        if not last.endswith("}"):
            return False  # so nearly every piece of a call that goes on costs no parse of all others
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except ValueError:
            return False


class CallPieces:
    """Assembles the calls of one answer."""

    def __init__(self, size: event_json.ReplySize) -> None:
        self.calls: list[ChatCall] = []
        self._size = size
        self._by_id: dict[str, ChatCall] = {}
        self._by_index: dict[int, ChatCall] = {}

    def take(self, piece: dict[str, Json]) -> None:
        """Add a piece of a call."""
        function = event_json.mapping(piece.get("function"))
        name = event_json.text_of(function.get("name"))
        arguments = function.get("arguments")
        if isinstance(arguments, dict | list):
            arguments = json.dumps(arguments)
        arguments = arguments if isinstance(arguments, str) else ""
        call = self._call_of(piece, name, arguments)
        # Some servers repeat the name in every piece; no server splits it.
        if name is not None and not call.name:
            self._size.piece(name)
            call.name = name
        if arguments and not call.repeats(arguments):
            self._size.piece(arguments)
            call.arguments.append(arguments)
        if (extra := piece.get(EXTRA)) is not None:
            call.extra = extra

    def _call_of(self, piece: dict[str, Json], name: str | None, arguments: str) -> ChatCall:
        """Return the call that a piece belongs to: by its id, by its index, or else the call that was begun last."""
        id, index = event_json.text_of(piece.get("id")), _index(piece.get("index"))
        at_index = None if index is None else self._by_index.get(index)
        last = self.calls[-1] if self.calls else None
        if id is not None and (known := self._by_id.get(id)) is not None:
            if name is None or not known.is_followed_by(name, index, arguments):
                return known
            self._by_id[id] = another = self._new_call(
                "", index
            )  # the next pieces with this id are of this call
            return another
        if id is not None:
            # A new id with a name begins a call, even at an index that is used.
            known = at_index if index is not None else last
            if known is not None and not known.id and (name is None or not known.name):
                known.id = id
                self._by_id[id] = known
                return known
            return self._new_call(id, index)
        if index is not None:
            if at_index is None and name is None and last is not None and not last.has_whole_arguments():
                self._by_index[index] = at_index = last
            return at_index if at_index is not None else self._new_call("", index)
        begins = last is None or (name is not None and last.name and last.has_whole_arguments())
        return self._new_call("", None) if begins or last is None else last

    def _new_call(self, id: str, index: int | None) -> ChatCall:
        self._size.item(event_json.PIECE_OVERHEAD)
        call = ChatCall(id, index=index)
        self.calls.append(call)
        if id:
            self._by_id[id] = call
        if index is not None:
            self._by_index[index] = call
        return call

    def in_order(self) -> list[ChatCall]:
        """Return the calls, ordered by their indices if each call has an index of its own, else in the order in which
        they began.
        """
        indices = {call.index for call in self.calls}
        if None in indices or len(indices) < len(self.calls):
            return self.calls
        return sorted(self.calls, key=lambda call: call.index or 0)


def _index(value: Json) -> int | None:
    """Return the index of a call, which some servers write as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value[:9])
    return event_json.count(value)
