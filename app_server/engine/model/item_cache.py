"""The items of a request as bytes: a cache of their JSON, since the next request repeats nearly all of it; and the form
in which some models expect the outputs of commands.

Models that were trained on free-form patches are used to plain outputs. History stores an output as a JSON text; for
these models it becomes lines: exit code, wall time, output.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence, Set
from operator import is_not

from app_server.engine.model.event_json import mapping
from app_server.engine.model.prompt import FreeformTool, Prompt
from app_server_protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    GhostSnapshot,
    LocalShellCall,
    OtherItem,
    ResponseItem,
)


class LastInput:
    """The items of the last request. Most requests begin with the same items, and only the rest is new."""

    def __init__(self) -> None:
        self._form: object = None
        self._items: list[ResponseItem] = []

    def known(self, items: Sequence[ResponseItem], form: object) -> int:
        """Return how many of these items the last request had. The number is 0 if the items do not begin with those of
        the last request, or if `form` differs; `form` holds all values that their written form depends on.
        """
        known = len(self._items)
        if form != self._form or len(items) < known or any(map(is_not, self._items, items)):
            known, self._form, self._items = 0, form, []
        self._items += items[known:]
        return known


class ItemBytes:
    """The cache of the last request. Items are immutable, and compared by identity."""

    def __init__(self) -> None:
        self._what: tuple[object, ...] = ()
        self._envelope = (b"", b"")
        self._kept: dict[int, tuple[ResponseItem, bytes]] = {}
        self._form: Hashable = None
        self._items: list[ResponseItem] = []
        self._bytes: list[bytes] = []
        """JSON of each item of the last request."""

    def of(
        self, items: Sequence[ResponseItem], form: Hashable, write: Callable[[ResponseItem], bytes]
    ) -> list[bytes]:
        """Return `write(item)` for each item. `form` holds all values that the result depends on besides the item."""
        if form != self._form:
            self._kept, self._items, self._bytes = {}, [], []
            self._form = form
        known = len(self._items)
        if any(map(is_not, self._items, items)) or len(items) < known:
            return self._rebuild(items, write)
        # Most requests repeat the last one and add a little.
        for item in items[known:]:
            data = write(item)
            self._kept[id(item)] = (item, data)
            self._items.append(item)
            self._bytes.append(data)
        return self._bytes.copy()

    def envelope(
        self, what: tuple[object, ...], write: Callable[[], tuple[bytes, bytes]]
    ) -> tuple[bytes, bytes]:
        """Return the result of `write()`: the JSON before the items and after them. `what` holds all values that it
        depends on. They are compared by identity, too: equal values may differ in JSON, such as 1 and true.
        """
        if len(what) != len(self._what) or any(map(is_not, what, self._what)):
            self._what, self._envelope = what, write()
        return self._envelope

    def _rebuild(self, items: Sequence[ResponseItem], write: Callable[[ResponseItem], bytes]) -> list[bytes]:
        kept: dict[int, tuple[ResponseItem, bytes]] = {}
        for item in items:
            entry = self._kept.get(id(item))
            # The reference to the item prevents the reuse of its id.
            kept[id(item)] = entry if entry is not None else (item, write(item))
        self._kept, self._items = kept, list(items)
        self._bytes = [kept[id(item)][1] for item in items]
        return self._bytes.copy()


SCHEMA_NAME = "codex_output_schema"
"""Name of the answer's schema in a request."""

APPLY_PATCH = "apply_patch"
COMMAND_FUNCTIONS = ("shell", "container.exec", APPLY_PATCH)
TOTAL_LINES = "Total output lines: "


def wants_plain_outputs(prompt: Prompt) -> bool:
    """Return whether the request offers the free-form patch tool."""
    return any(isinstance(tool, FreeformTool) and tool.name == APPLY_PATCH for tool in prompt.tools)


_OURS = frozenset((GhostSnapshot, OtherItem))


class InputBytes:
    """Writes the input of the requests of one conversation as bytes. The part that a request shares with the last one
    is neither checked nor written again.
    """

    def __init__(self) -> None:
        self._last, self._cache = LastInput(), ItemBytes()
        self._sent: list[ResponseItem] = []
        """Items that the last request sent."""
        self._commands: set[str] = set()
        """Ids of the calls among them that ran a command or a patch."""

    def of(
        self,
        prompt: Prompt,
        form: Hashable,
        is_sent: Callable[[ResponseItem], bool],
        write: Callable[[ResponseItem], bytes],
    ) -> list[bytes]:
        """Return the JSON of the items that are sent, in the form that the prompt wants. Snapshots and unknown items
        are not sent. `form` holds all values that the two functions depend on.
        """
        known = self._last.known(prompt.input, form)
        if not known:
            self._sent, self._commands = [], set()
        new = [item for item in prompt.input[known:] if type(item) not in _OURS and is_sent(item)]
        self._sent += new
        self._commands |= command_calls(new)
        plain = wants_plain_outputs(prompt)
        commands = self._commands
        written = (lambda item: write(_plainly(item, commands))) if plain else write
        return self._cache.of(self._sent, (form, plain), written)


def _plainly(item: ResponseItem, commands: Set[str]) -> ResponseItem:
    """Return the item; the output of a command in plain form."""
    match item:
        case FunctionCallOutput() if item.call_id in commands and item.output.content_items is None:
            output = item.output.model_copy(update={"content": plain_output(item.output.content)})
            return item.model_copy(update={"output": output})
        case CustomToolCallOutput() if item.call_id in commands:
            return item.model_copy(update={"output": plain_output(item.output)})
        case _:
            return item


def command_calls(items: Iterable[ResponseItem]) -> frozenset[str]:
    """Return the ids of all calls that ran a command or a patch."""
    ids = set()
    for item in items:
        match item:
            case FunctionCall() if item.name in COMMAND_FUNCTIONS:
                ids.add(item.call_id)
            case CustomToolCall() if item.name == APPLY_PATCH:
                ids.add(item.call_id)
            case LocalShellCall():
                ids.add(item.call_id or item.id or "")
            case _:
                pass
    return frozenset(ids)


def plain_output(stored: str) -> str:
    """Return a stored output as lines; a text that is no output of a command is returned unchanged."""
    if not stored.startswith('{"output":'):
        return stored
    try:
        result = json.loads(stored)
        output, metadata = result["output"], mapping(result["metadata"])
        lines = [
            f"Exit code: {int(metadata['exit_code'])}",
            f"Wall time: {_number(metadata['duration_seconds'])} seconds",
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        return stored
    if not isinstance(output, str):
        return stored
    total, rest = _total_lines(output)
    if total is not None:
        lines.append(f"{TOTAL_LINES}{total}")
    return "\n".join([*lines, "Output:", rest])


def _total_lines(output: str) -> tuple[int | None, str]:
    """Return the note that a shortened output begins with, and the output without it."""
    if not output.startswith(TOTAL_LINES):
        return None, output
    number, _, rest = output.removeprefix(TOTAL_LINES).partition("\n")
    if not (number.isascii() and number.isdigit()):
        return None, output
    return int(number), rest.removeprefix("\n")


def _number(seconds: float) -> str:
    return f"{seconds:.1f}".removesuffix(".0")
