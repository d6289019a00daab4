"""Reads what a hook has answered: its exit code with stdout and stderr, or the JSON of a callback. Pure.

Exit 0 with JSON or nothing is an answer, and exit 2 blocks with stderr as the reason. Everything else is a failure, as
is a decision that is not known: a guard whose answer cannot be understood must not count as one that agreed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct

from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookEvent, HookRole

BLOCKED = 2
"""Exit code with which a hook blocks."""
NO_REASON: Final = "the hook gave no reason"
MOST_REASON = 8 * 1024
"""Maximum size of a reason, a message or the name of an unknown field in it, in characters."""


class Verdict(IntEnum):
    """Opinion of a hook about what it was asked. A larger one counts more."""

    NONE = 0
    ALLOW = 1
    ASK = 2
    DENY = 3


class HookFailure(Struct, frozen=True):
    """A hook that did not answer; `what` completes "the hook …"."""

    what: str


class HookOutput(Struct, frozen=True, kw_only=True):
    """The answer of one hook."""

    verdict: Verdict = Verdict.NONE
    reason: str = ""
    updated_input: Mapping[str, Json] | None = None
    """The input with which the call is to be made; None if it stays."""
    context: str = ""
    """Text for the model."""
    stops: bool = False
    """Whether the turn ends."""
    stop_reason: str = ""
    message: str = ""
    """Text for the user."""
    warnings: tuple[str, ...] = ()
    """Facts about the answer itself, such as fields that are not known."""


NOTHING: Final = HookOutput()

_TEXTS: Final = ("stopReason", "systemMessage", "decision", "reason")
_KNOWN: Final = frozenset({"continue", "suppressOutput", "hookSpecificOutput", *_TEXTS})
_SPECIFIC: Final = frozenset({"hookEventName", "additionalContext"})
_OF_TOOL_USE: Final = frozenset({"permissionDecision", "permissionDecisionReason", "updatedInput"})
_OF_PERMISSION: Final = frozenset({"behavior", "message", "interrupt", "updatedInput", "updatedPermissions"})
_DECISIONS: Final = {"block": Verdict.DENY, "approve": Verdict.ALLOW}
_PERMISSIONS: Final = {"allow": Verdict.ALLOW, "ask": Verdict.ASK, "deny": Verdict.DENY}
_BEHAVIOURS: Final = {"allow": Verdict.ALLOW, "deny": Verdict.DENY}


class _Misread(Exception):
    """The answer cannot be understood; the text completes "the hook …"."""


def read_output(event: HookEvent, exit_code: int, stdout: str, stderr: str) -> HookOutput | HookFailure:
    """Return the answer of a command."""
    if exit_code == BLOCKED and event.has(HookRole.BLOCKS):
        return HookOutput(verdict=Verdict.DENY, reason=_short(stderr) or NO_REASON)
    if exit_code != 0:
        said = _short(stderr)
        return HookFailure(f"ended with exit code {exit_code}" + (f": {said}" if said else ""))
    text = stdout.removeprefix("\ufeff").strip()
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return HookFailure("printed no valid JSON")
        return read_answer(event, value)
    if event.has(HookRole.BLOCKS) and _has_answer(text):
        return HookFailure("printed other text before its JSON")
    if text and event.has(HookRole.TEXT_IS_CONTEXT):
        return HookOutput(context=text)
    return NOTHING


def _has_answer(text: str) -> bool:
    """Return whether a text ends in what would be an answer if it stood alone: a launcher that prints a line of its
    own, as `npm run` does, must not turn a denial into nothing.
    """
    at = text.find("\n{")
    if at < 0 or not text.endswith("}"):
        return False
    try:
        value = json.loads(text[at + 1 :])
    except (ValueError, RecursionError):
        return False
    return bool(value.keys() & {"continue", "decision", "hookSpecificOutput"})


def read_answer(event: HookEvent, value: Json) -> HookOutput | HookFailure:
    """Return the answer in a JSON value: what a command has printed, or what a client has answered."""
    try:
        return _answer(event, value)
    except _Misread as error:
        return HookFailure(str(error))


def _answer(event: HookEvent, value: Json) -> HookOutput:
    if not isinstance(value, dict):
        raise _Misread("answered no JSON object")
    texts = {name: _short(_text(value, name)) for name in _TEXTS}
    goes_on = _flag(value, "continue", usual=True)
    _flag(value, "suppressOutput", usual=False)
    own = _object(value, "hookSpecificOutput")
    if (name := _text(own, "hookEventName")) and name != event.value:
        raise _Misread(f"answered for the event `{_short(name)[:100]}`")
    decided = _decided(event, own)
    verdict = decided.verdict
    if texts["decision"]:
        verdict = max(verdict, _one_of(_DECISIONS, "decision", texts["decision"]))
    warnings = [*_unknown(value, _KNOWN), *decided.warnings]
    context, stops = _text(own, "additionalContext").strip(), decided.stops or not goes_on
    if context and not event.has(HookRole.ADDS_CONTEXT):
        warnings.append(f"a {event.value} hook cannot add context")
        context = ""
    if verdict is Verdict.DENY and not event.has(HookRole.BLOCKS):
        warnings.append(f"a {event.value} hook decides nothing")
        verdict = Verdict.NONE
    if stops and not event.has(HookRole.ENDS_TURN):
        warnings.append(f"a {event.value} hook does not end the turn")
        stops = False
    return HookOutput(
        verdict=verdict,
        reason=decided.reason or texts["reason"] or (NO_REASON if verdict is Verdict.DENY else ""),
        updated_input=decided.updated_input,
        context=context,
        stops=stops,
        stop_reason=texts["stopReason"],
        message=texts["systemMessage"],
        warnings=tuple(warnings),
    )


def _decided(event: HookEvent, own: Mapping[str, Json]) -> HookOutput:
    """Return what the fields of one event alone say."""
    match event:
        case HookEvent.PRE_TOOL_USE:
            decision, verdict = _text(own, "permissionDecision"), Verdict.NONE
            if decision:
                verdict = _one_of(_PERMISSIONS, "permissionDecision", decision)
            return HookOutput(
                verdict=verdict,
                reason=_short(_text(own, "permissionDecisionReason")),
                updated_input=None if own.get("updatedInput") is None else _object(own, "updatedInput"),
                warnings=tuple(_unknown(own, _SPECIFIC | _OF_TOOL_USE)),
            )
        case HookEvent.PERMISSION_REQUEST:
            warnings = tuple(_unknown(own, _SPECIFIC | {"decision"}))
            decided = _object(own, "decision")
            if not decided:
                return HookOutput(warnings=warnings)
            for name in ("updatedInput", "updatedPermissions"):
                if decided.get(name) is not None:
                    raise _Misread(f"answered `{name}`, which a {event.value} hook cannot change")
            return HookOutput(
                verdict=_one_of(_BEHAVIOURS, "decision.behavior", _text(decided, "behavior")),
                reason=_short(_text(decided, "message")),
                stops=_flag(decided, "interrupt", usual=False),
                warnings=(*warnings, *_unknown(decided, _OF_PERMISSION)),
            )
        case _:
            return HookOutput(warnings=tuple(_unknown(own, _SPECIFIC)))


def _unknown(value: Mapping[str, Json], known: frozenset[str]) -> list[str]:
    return [f"`{_short(name)[:100]}` is no field of a hook's output" for name in sorted(value.keys() - known)]


def _one_of(values: Mapping[str, Verdict], field: str, given: str) -> Verdict:
    verdict = values.get(given)
    if verdict is None:
        raise _Misread(f"answered {field} `{_short(given)[:100]}`, which is none of {', '.join(values)}")
    return verdict


def _text(value: Mapping[str, Json], name: str) -> str:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise _Misread(f"answered a `{name}` that is no text")
    return found or ""


def _flag(value: Mapping[str, Json], name: str, *, usual: bool) -> bool:
    found = value.get(name)
    if found is not None and not isinstance(found, bool):
        raise _Misread(f"answered a `{name}` that is neither true nor false")
    return usual if found is None else found


def _object(value: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    found = value.get(name)
    if found is not None and not isinstance(found, dict):
        raise _Misread(f"answered a `{name}` that is no object")
    return found or {}


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MOST_REASON else f"{text[:MOST_REASON]}…"
