"""Finds thoughts and calls in the text of an answer, where small models on local servers write them. Pure.

`TextSieve` takes the text in pieces and returns the part that can be shown. Thoughts stand in `<think>` tags at the
start. A text that begins as a block of calls is held back until it is decided: if all of it is such blocks, each naming
an offered tool with all required arguments, they are calls; else it is shown as text. A call is found only at the
beginning, or after a single line of other text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from app_server.engine.config.quirk_settings import ThinkTags
from app_server.engine.model.prompt import FunctionTool, ToolSpec
from app_server_protocol.encoding import Json
from app_server_protocol.responses import ResponseItem

OPEN_TAG, CLOSE_TAG = "<think>", "</think>"

MARKS: Final = ("<tool_call>", "<function=", "[TOOL_CALLS]", "```", "{", "[")
"""Beginnings of a block of calls."""

LONGEST_LINE: Final = 200
"""Maximum length of the single line that may stand before a block, in characters."""

MOST_HELD: Final = 64 * 1024
"""Maximum length of the text that is held back, in characters; a longer text is shown as text."""


class NamedCall(Struct, frozen=True):
    """A call that was written as text."""

    name: str
    arguments: str
    """Arguments, as the text of a JSON object."""


class Offered(Struct, frozen=True):
    """The tools that an answer may call, with the required arguments of each."""

    tools: Mapping[str, frozenset[str]]

    def call(self, name: Json, arguments: Json) -> NamedCall | None:
        """Return the call; None if it names no offered tool or lacks a required argument."""
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except ValueError:
                return None
        required = self.tools.get(name) if isinstance(name, str) else None
        if required is None or not isinstance(arguments, dict) or not required <= arguments.keys():
            return None
        return NamedCall(str(name), json.dumps(arguments))


def offered_in(tools: Sequence[ToolSpec]) -> Offered:
    """Return the offered tools, with the required arguments of each."""
    functions = (tool for tool in tools if isinstance(tool, FunctionTool))
    return Offered({tool.name: frozenset(tool.parameters.get("required") or ()) for tool in functions})


def is_quoted(block: str, items: Sequence[ResponseItem]) -> bool:
    """Return whether an output since the user's last message contains this text: the model may quote a file."""
    for item in reversed(items):
        if getattr(item, "role", None) == "user":
            return False
        output = getattr(item, "output", None)
        if output is not None and block in (output if isinstance(output, str) else output.content):
            return True
    return False


def is_written_call(text: str, tools: Sequence[ToolSpec], items: Sequence[ResponseItem]) -> bool:
    """Return whether a whole answer is a call of an offered tool. `items`: the history before the answer."""
    sieve = TextSieve(
        think_tags="none", offered=offered_in(tools), is_quoted=lambda block: is_quoted(block, items)
    )
    sieve.take(text)
    return bool(sieve.end(structured=False)[1])


class Phase(Enum):
    """Place in an answer at which a block of calls may begin."""

    START = "start"
    LINE = "line"
    """The single line before a block."""
    SECOND = "second"
    """The text after that line."""
    TEXT = "text"
    """Text in which no block may begin any more."""


class TextSieve:
    """Divides the text of one answer into thoughts, text and calls."""

    def __init__(
        self,
        *,
        think_tags: ThinkTags,
        offered: Offered | None,
        is_quoted: Callable[[str], bool] = lambda text: False,
    ) -> None:
        """`think_tags`: `none`, `closed`, or `open` for answers that begin inside of their thoughts. `offered`: None if
        no calls are read. `is_quoted`: returns whether an output of the turn contains the same block.
        """
        self._thinking = think_tags == "open"
        self._begun = think_tags != "closed"
        """Whether it is decided if the answer begins with thoughts."""
        self._offered, self._is_quoted = offered, is_quoted
        self._phase = Phase.TEXT if offered is None else Phase.START
        self._held = ""
        self._line = 0
        """Number of characters of the current line that were shown."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is held and the rest of the answer is text that can be shown as it comes."""
        return self._phase is Phase.TEXT and self._begun and not (self._thinking or self._held)

    def take(self, text: str) -> list[tuple[bool, str]]:
        """Return the pieces that can be shown; the flag of each says whether it is a thought."""
        self._held += text
        out: list[tuple[bool, str]] = []
        if not self._begun and not self._begins():
            return out
        if self._thinking:
            self._think(out)
        if not self._thinking and (shown := self._words()):
            out.append((False, shown))
        return out

    def end(self, *, structured: bool) -> tuple[list[tuple[bool, str]], list[NamedCall]]:
        """Return the rest, as pieces and as calls. `structured`: the answer has calls in their own fields."""
        held, self._held = self._held, ""
        if not held:
            return [], []
        if self._offered is not None and self._phase is not Phase.TEXT and not (self._thinking or structured):
            calls = calls_in(held, self._offered)
            if calls and not self._is_quoted(held.strip()):
                return [], calls
        return [(self._thinking, held)], []

    def _begins(self) -> bool:
        """Return whether it is decided if the answer begins with thoughts."""
        start = self._held.lstrip()
        if len(start) < len(OPEN_TAG) and OPEN_TAG.startswith(start):
            return False
        self._begun = True
        if start.startswith(OPEN_TAG):
            self._thinking, self._held = True, start.removeprefix(OPEN_TAG).lstrip("\n")
        return True

    def _think(self, out: list[tuple[bool, str]]) -> None:
        thought, tag, rest = self._held.partition(CLOSE_TAG)
        if tag:
            self._thinking, self._held = False, rest.lstrip()
        else:
            kept = next((n for n in range(len(CLOSE_TAG) - 1, 0, -1) if thought.endswith(CLOSE_TAG[:n])), 0)
            thought, self._held = thought[: len(thought) - kept], thought[len(thought) - kept :]
        if thought:
            out.append((True, thought))

    def _words(self) -> str:
        """Remove from the held text the part that can be shown, and return it."""
        shown = ""
        while self._held and self._phase is not Phase.TEXT:
            if self._phase is Phase.LINE:
                line, end, self._held = self._held.partition("\n")
                self._line += len(line)
                shown += line + end
                self._phase = Phase.TEXT if self._line > LONGEST_LINE else Phase.SECOND if end else Phase.LINE
            elif _may_begin(self._held.lstrip()) and len(self._held) <= MOST_HELD:
                return shown
            else:
                self._phase = Phase.LINE if self._phase is Phase.START else Phase.TEXT
        shown, self._held = shown + self._held, ""
        return shown


def _may_begin(text: str) -> bool:
    return not text or any(text.startswith(mark) or mark.startswith(text) for mark in MARKS)


def calls_in(text: str, offered: Offered) -> list[NamedCall]:
    """Return the calls that a text consists of; empty if a part of it is something else."""
    block = text.strip()
    for read in (_tagged, _functions, _listed, _fenced, _bare, _pythonic):
        found = read(block, offered)
        if found:
            return found
    return []


def _objects(value: Json, offered: Offered) -> list[NamedCall]:
    """Return the calls of one object, or of a list of objects; empty if one of them is no call."""
    found: list[NamedCall] = []
    for each in value if isinstance(value, list) else [value]:
        fields = each if isinstance(each, dict) else {}
        arguments = fields.get("arguments", fields.get("parameters"))
        call = offered.call(fields.get("name"), arguments)
        if call is None:
            return []
        found.append(call)
    return found


def _json(text: str, offered: Offered) -> list[NamedCall]:
    try:
        return _objects(json.loads(text, strict=False), offered)
    except (ValueError, RecursionError):
        return []


def _blocks(text: str, pattern: str) -> list[re.Match[str]]:
    """Return the blocks that a text consists of; empty if there is other text between them."""
    found = list(re.finditer(pattern, text, re.DOTALL))
    rest = re.sub(pattern, "", text, flags=re.DOTALL)
    return [] if rest.strip() else found


def _tagged(text: str, offered: Offered) -> list[NamedCall]:
    blocks = _blocks(text, r"<tool_call>(.*?)(?:</tool_call>|$)")
    calls = [_json(block[1].strip(), offered) or _functions(block[1].strip(), offered) for block in blocks]
    return [call for each in calls for call in each] if all(calls) else []


def _functions(text: str, offered: Offered) -> list[NamedCall]:
    calls: list[NamedCall] = []
    for block in _blocks(text, r"<function=([^>\s]+)>(.*?)</function>"):
        parameters = _blocks(block[2], r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>")
        call = offered.call(block[1], {each[1]: _value(each[2]) for each in parameters})
        if call is None:
            return []
        calls.append(call)
    return calls


def _value(text: str) -> Json:
    """Return the value of a parameter: JSON if it is a list or an object, else the text itself."""
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    return text


def _listed(text: str, offered: Offered) -> list[NamedCall]:
    mark = "[TOOL_CALLS]"
    if not text.startswith(mark):
        return []
    rest = text.removeprefix(mark).strip()
    named = re.fullmatch(r"([A-Za-z0-9_.-]+)(?:\[ARGS\])?\s*(\{.*\})", rest, re.DOTALL)
    if named is not None:
        call = offered.call(named[1], named[2])
        return [] if call is None else [call]
    return _json(rest, offered)


def _fenced(text: str, offered: Offered) -> list[NamedCall]:
    block = re.fullmatch(r"```(?:json|tool_call)?\s*\n(.*?)\n?```", text, re.DOTALL)
    return _json(block[1].strip(), offered) if block else []


def _bare(text: str, offered: Offered) -> list[NamedCall]:
    return _json(text, offered) if text[:1] in ("{", "[") else []


def _pythonic(text: str, offered: Offered) -> list[NamedCall]:
    """Parse `[name(a=1)]`, whose values are literals."""
    if not text.startswith("["):
        return []
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    calls: list[NamedCall] = []
    for each in tree.elts if isinstance(tree, ast.List) else ():
        if not isinstance(each, ast.Call) or not isinstance(each.func, ast.Name) or each.args:
            return []
        try:
            arguments = {str(word.arg): ast.literal_eval(word.value) for word in each.keywords}
        except ValueError:
            return []
        call = offered.call(each.func.id, arguments)
        if call is None:
            return []
        calls.append(call)
    return calls
