"""Tracks the tool calls in the model's history for which a rollout has no line about an item. Pure.

Every call is stored as an entry of the history, and so is its output. Most files also have a line about the item of the
call. Files of codex 0.58, the commands in files of the older form, and files of conversations that no client followed
by items have the entries alone. The decoder shows the item of such a call where its output stands:

1. A line about an item belongs to the first open call with the id of the item, or to the call that follows it.
2. An output belongs to the first open call with its id. The call is then shown, unless the next line is about its item.
3. At the end of a turn the calls without an output are shown as cut.
4. In a turn whose items have lines of their own, a call without such a line has no item: it was refused, or never run.
   (If a crash cuts a call, `journal` adds the line.)

A call is parsed only when it is shown: that loads the reader of shell commands.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct
from pydantic import ValidationError

from app_server.engine.storage import call_items
from app_server.engine.storage.codex_compat import with_whole_name
from app_server.engine.storage.record import StoredRecord, parse_object, text_of
from app_server.engine.storage.stored_item_lines import search_id, search_query
from app_server_protocol.engine import items
from app_server_protocol.engine.notices import PlanUpdated
from app_server_protocol.events.tools import PlanUpdateEvent
from app_server_protocol.parse import read
from app_server_protocol.values import replace

CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
NAMES: Final = CALLS | OUTPUTS
OF_CALLS: Final = frozenset(
    (
        items.CommandExecution,
        items.FileChange,
        items.McpToolCall,
        items.DynamicToolCall,
        items.ImageView,
        items.WebSearch,
    )
)
"""Types of the items of calls."""

PLAN_TOOL: Final = "update_plan"
_PLAN_MARK: Final = f'"{PLAN_TOOL}"'.encode()


class EndedCall(Struct, frozen=True):
    """The item of a call that has no line about it."""

    item: items.Item
    cut: bool
    """Whether the call has no output."""


class _Id(Struct):
    """The member of an entry that names the call."""

    call_id: str | None = None


_ID: Final = msgspec.json.Decoder(_Id)


class _Call(Struct, frozen=True):
    key: str
    record: StoredRecord
    cwd: str
    output: StoredRecord | None = None

    def shown(self) -> EndedCall | None:
        """Return the item; None if calls of this tool have no item."""
        item = call_items.item_of_record(self.record, self.cwd)
        if item is None:
            return None
        output = None if self.output is None else (self.output.value() or {}).get("output")
        is_search = isinstance(item, items.WebSearch)
        return EndedCall(call_items.ended_item(item, output), cut=output is None and not is_search)


class HistoryCalls(Struct):
    """The calls of one turn that have not been shown."""

    answered: list[_Call] = []
    """Calls with an output, which are shown unless the next line is about their item."""
    _open: dict[str, list[_Call]] = {}
    context: StoredRecord | str = "/"
    """Working directory, or the line that names it."""
    _cwd_before: str = "/"
    """Working directory, if that line names none."""
    _told: Counter[str] = msgspec.field(default_factory=Counter)
    """Number of items that have been read before their calls, by the id of the call."""

    @property
    def cwd(self) -> str:
        """Working directory of the turn."""
        if isinstance(self.context, StoredRecord):
            cwd = (self.context.value() or {}).get("cwd")
            self.context = cwd if isinstance(cwd, str) and os.path.isabs(cwd) else self._cwd_before
        return self.context

    def enter(self, context: StoredRecord) -> None:
        """Take the line that describes the conversation or a turn."""
        self._cwd_before = self.cwd
        self.context = context

    @property
    def is_idle(self) -> bool:
        """Whether no call waits for its output, or to be shown."""
        return not (self.answered or self._open)

    @property
    def has_items_before_calls(self) -> bool:
        """Whether items have been read whose calls may follow."""
        return bool(self._told)

    def take(self, record: StoredRecord) -> None:
        """Take an entry of the history with one of the `NAMES`, in a turn whose items may have no lines."""
        key = _key(record)
        if key is None:
            return
        if record.name in OUTPUTS:
            self._answer(key, record)
        elif self._told[key]:
            self._told[key] -= 1
        elif record.name == "web_search_call":
            self.answered.append(_Call(key, record, self.cwd))
        else:
            self._open.setdefault(key, []).append(_Call(key, record, self.cwd))

    def told(self, item: items.Item) -> None:
        """Take the item of a line, one of the `OF_CALLS`: its call is not shown."""
        key = search_id(item.query) if isinstance(item, items.WebSearch) else item.id
        if calls := self._open.get(key):
            self._remove(calls[0])
            return
        for call in self.answered:
            if call.key == key:
                self.answered.remove(call)
                return
        self._told[key] += 1

    def take_answered(self) -> Iterator[EndedCall]:
        """Yield the calls that are due to be shown."""
        answered, self.answered = self.answered, []
        return (shown for call in answered if (shown := call.shown()) is not None)

    def end(self) -> Iterable[EndedCall]:
        """Return the calls without an output at the end of a turn."""
        if not self._open:
            return ()
        calls = [call for calls in self._open.values() for call in calls]
        self._open = {}
        return (shown for call in calls if (shown := call.shown()) is not None)

    def begin(self) -> None:
        """Forget the calls and items of the turn before."""
        if self._open or self._told:
            self._open, self._told = {}, Counter()

    def copy(self) -> HistoryCalls:
        opened = {key: [*calls] for key, calls in self._open.items()}
        return replace(self, answered=[*self.answered], _open=opened, _told=Counter(self._told))

    def _answer(self, key: str, record: StoredRecord) -> None:
        if calls := self._open.get(key):
            call = calls[0]
            self._remove(call)
            self.answered.append(replace(call, output=record))

    def _remove(self, call: _Call) -> None:
        calls = [each for each in self._open[call.key] if each is not call]
        if calls:
            self._open[call.key] = calls
        else:
            del self._open[call.key]


def plan_in(record: StoredRecord) -> PlanUpdated | None:
    """Return the plan that a call states; None if it states none, or if it is damaged."""
    if _PLAN_MARK not in record.payload:
        return None
    payload = with_whole_name(record).value() or {}
    arguments = payload.get("arguments") if payload.get("name") == PLAN_TOOL else None
    raw = parse_object(arguments.encode("utf-8", "replace")) if isinstance(arguments, str) else None
    try:
        plan = None if raw is None else read(PlanUpdateEvent, raw)
    except ValidationError:
        return None
    return None if plan is None else PlanUpdated(plan.explanation, plan.plan)


def cut_item(record: StoredRecord, cwd: str) -> items.Item | None:
    """Return the item of a call that a crash cut; None if calls of the tool have no item."""
    item = call_items.item_of_record(record, cwd)
    return None if item is None else call_items.ended_item(item, None)


def has_item(record: StoredRecord) -> bool:
    """Return whether calls of the tool have items."""
    return call_items.item_of_record(record, "/") is not None


def _key(record: StoredRecord) -> str | None:
    """Return the id of the call in an entry; None if it has none."""
    if record.name == "web_search_call":
        return search_id(search_query(record.value() or {}))
    try:
        return _ID.decode(record.payload).call_id or None
    except (ValueError, RecursionError):
        return text_of(record.value() or {}, "call_id") or None
