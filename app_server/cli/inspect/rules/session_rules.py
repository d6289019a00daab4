"""The order rules of the Agent Client Protocol, one function for each rule. Pure."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping, Sequence

from app_server.cli.inspect.rules.order import Check, Rule, WireMessage
from app_server_protocol.encoding import Json

AT_ANY_TIME = frozenset(
    {
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "notice",
    }
)
"""Updates that need no running prompt."""
ORDER = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}
OVER = frozenset({"completed", "failed"})
ENDS_OF_TURNS = ("turn_failed", "request_cancelled")
"""Kinds of the errors that answer prompts whose turns have ended."""
BESIDE_TURNS = frozenset(("/rewind", "/undo", "/redo", "/status", "/mcp", "/hooks", "/logout"))
"""Prompts that are commands without a turn, or may be refused because one runs."""
OPENS_SESSIONS = ("session/load", "session/resume")


class _Open:
    """The client's requests without an answer: their methods and sessions."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[str, Json]] = {}

    def see(self, wire: WireMessage) -> None:
        if wire.asked is not None:
            self._asked.pop(wire.asked.position, None)
        elif wire.sent and wire.method and "id" in wire.message:
            self._asked[wire.position] = (wire.method, wire.params.get("sessionId"))

    def running(self, method: str, session: Json) -> bool:
        return (method, session) in self._asked.values()


class _Calls:
    """The tool calls of each session, with their states. When a session is opened again, its running calls are
    announced again after the answer. If that request is refused, the session continues unchanged.
    """

    def __init__(self) -> None:
        self.states: dict[tuple[str, str], str] = {}
        self._before: dict[tuple[str, str], str] = {}
        """Earlier states of the calls in sessions that are being opened again."""

    def knows(self, session: Json, call: str) -> bool:
        """Return whether a call was announced. A question about it may have been sent before it was announced again."""
        return (session, call) in self.states or (session, call) in self._before

    def see(self, wire: WireMessage) -> None:
        """Update the states. Rules call it after their check."""
        if wire.sent and wire.method in OPENS_SESSIONS:
            session = wire.params.get("sessionId")
            self._before |= {key: state for key, state in self.states.items() if key[0] == session}
            self.states = _of_others(self.states, session)
        elif wire.asked is not None and wire.answers in OPENS_SESSIONS:
            session = wire.asked.params.get("sessionId")
            if "error" in wire.message:
                self.states = {**self._before, **self.states}
            else:
                self.states = _of_others(self.states, session)
            self._before = _of_others(self._before, session)
        elif (update := _update(wire)) is not None and update["sessionUpdate"] in (
            "tool_call",
            "tool_call_update",
        ):
            key = wire.params["sessionId"], update["toolCallId"]
            self.states[key] = update.get("status") or self.states.get(key) or "pending"


def _of_others(states: Mapping[tuple[str, str], str], session: Json) -> dict[tuple[str, str], str]:
    return {key: state for key, state in states.items() if key[0] != session}


def _update(wire: WireMessage) -> Json | None:
    return wire.params["update"] if not wire.sent and wire.method == "session/update" else None


def session_01_every_message_has_the_version() -> Check:
    def check(wire: WireMessage) -> Iterator[str]:
        if not wire.sent and wire.message.get("jsonrpc") != "2.0":
            yield "without the version of JSON-RPC"

    return check


def session_02_a_session_is_known_by_an_answer() -> Check:
    """Check that a message names only sessions that an answer has named, or that the client has requested by name."""
    known: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        session = wire.params.get("sessionId")
        if wire.sent and wire.method in OPENS_SESSIONS and isinstance(session, str):
            known.add(session)
        elif not wire.sent and isinstance(wire.result, dict):
            known.add(wire.result.get("sessionId") or "")
        elif not wire.sent and wire.method and session is not None and session not in known:
            yield "names a session that no answer has named"

    return check


def session_03_a_question_follows_its_call() -> Check:
    calls = _Calls()

    def check(wire: WireMessage) -> Iterator[str]:
        if not wire.sent and wire.method == "session/request_permission":
            call = wire.params["toolCall"]["toolCallId"]
            if not calls.knows(wire.params.get("sessionId"), call):
                yield "asks about a call that was not announced"
        calls.see(wire)

    return check


def session_04_a_question_offers_each_option_once() -> Check:
    def check(wire: WireMessage) -> Iterator[str]:
        if not wire.sent and wire.method == "session/request_permission":
            ids = [option["optionId"] for option in wire.params["options"]]
            if len(set(ids)) < len(ids) or not ids:
                yield "offers an option twice, or none"

    return check


def session_05_no_call_is_open_after_its_prompt() -> Check:
    calls, asked = _Calls(), _Open()

    def check(wire: WireMessage) -> Iterator[str]:
        asked.see(wire)
        if wire.asked is not None and wire.answers == "session/prompt" and not _began_no_turn(wire):
            session = wire.asked.params.get("sessionId")
            left = [id for (of, id), state in calls.states.items() if of == session and state not in OVER]
            if left and not asked.running("session/prompt", session):
                yield f"calls {left} are open when the turn is over"
        calls.see(wire)

    return check


def _began_no_turn(wire: WireMessage) -> bool:
    """Return whether a prompt was refused, or is a command that is answered beside turns: a running turn of its session
    is another's.
    """
    error = wire.message.get("error") or {}
    if error and (error.get("data") or {}).get("kind") not in ENDS_OF_TURNS:
        return True
    match None if wire.asked is None else wire.asked.params.get("prompt"):
        case [{"text": str(text)}, *_]:
            return text.strip().partition(" ")[0] in BESIDE_TURNS
        case _:
            return False


def session_06_updates_belong_to_a_prompt() -> Check:
    asked = _Open()

    def check(wire: WireMessage) -> Iterator[str]:
        asked.see(wire)
        update = _update(wire)
        if update is None or update["sessionUpdate"] in AT_ANY_TIME:
            return
        session = wire.params["sessionId"]
        if not asked.running("session/load", session) and not asked.running("session/prompt", session):
            yield f"{update['sessionUpdate']} while no prompt is running"

    return check


def session_07_what_is_current_is_offered() -> Check:
    def check(wire: WireMessage) -> Iterator[str]:
        shown = wire.result if isinstance(wire.result, dict) else _update(wire)
        if wire.sent or shown is None:
            return
        modes = shown.get("modes")
        if modes and modes["currentModeId"] not in [each["id"] for each in modes["availableModes"]]:
            yield "the current mode is not offered"
        for option in shown.get("configOptions") or ():
            if option["currentValue"] not in [each["value"] for each in option["options"]]:
                yield f"the value of {option['id']} is not offered"

    return check


def session_08_a_call_is_announced_once_and_goes_forward() -> Check:
    """Check calls, except while a session is opened again: then its calls are announced from the beginning, beside
    those that run.
    """
    calls, asked = _Calls(), _Open()

    def check(wire: WireMessage) -> Iterator[str]:
        update = _update(wire)
        asked.see(wire)
        opened_again = any(asked.running(method, wire.params.get("sessionId")) for method in OPENS_SESSIONS)
        if opened_again:
            pass
        elif update is not None and update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            status = update.get("status")
            before = calls.states.get((wire.params["sessionId"], update["toolCallId"]))
            if update["sessionUpdate"] == "tool_call" and before is not None:
                yield "a call is announced twice"
            if update["sessionUpdate"] == "tool_call_update" and before is None:
                yield "a call changes before it was announced"
            if status is not None and before is not None and _goes_back(before, status):
                yield f"a call goes from {before} to {status}"
        calls.see(wire)

    return check


def _goes_back(before: str, status: str) -> bool:
    return ORDER[status] < ORDER[before] or (before in OVER and status != before)


def session_09_paths_are_absolute() -> Check:
    def check(wire: WireMessage) -> Iterator[str]:
        update = _update(wire)
        if update is not None and update["sessionUpdate"] in ("tool_call", "tool_call_update"):
            places = [*(update.get("locations") or []), *(update.get("content") or [])]
            if any("path" in each and not os.path.isabs(each["path"]) for each in places):
                yield "a path is not absolute"

    return check


SESSION_RULES: Sequence[Rule] = (
    session_01_every_message_has_the_version,
    session_02_a_session_is_known_by_an_answer,
    session_03_a_question_follows_its_call,
    session_04_a_question_offers_each_option_once,
    session_05_no_call_is_open_after_its_prompt,
    session_06_updates_belong_to_a_prompt,
    session_07_what_is_current_is_offered,
    session_08_a_call_is_announced_once_and_goes_forward,
    session_09_paths_are_absolute,
)
