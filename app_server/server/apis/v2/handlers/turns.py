"""Turns: begin one or join the running one, steer it, interrupt it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app_server.engine.session.additional_context import ContextEntry
from app_server.engine.session.session_commands import (
    NoActiveTurn,
    OtherTurnActive,
    StartTurn,
    TurnNotSteerable,
)
from app_server.engine.support.engine_errors import CoreError
from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.router import Route, route, route_in
from app_server.server.apis.v2.open_threads import find_open, thread_of
from app_server.server.apis.v2.thread_items import user_inputs
from app_server.server.apis.v2.thread_settings import settings_change
from app_server.server.apis.v2.turn_shapes import pending_turn
from app_server.server.apis.v2.v2_errors import parse_thread_id
from app_server.server.conversations.live import LiveConversation
from app_server_protocol.jsonrpc import INVALID_PARAMS
from app_server_protocol.rpc_errors import RpcError, invalid_field, invalid_params, invalid_request
from app_server_protocol.v2 import turn as wire
from app_server_protocol.v2.item_parts import TextUserInput, UserInput

KEY: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
MOST_ENTRIES: Final = 64
MOST_CONTEXT_BYTES: Final = 64 * 1024
"""Maximum size of one context value that a client adds, in bytes."""

MAX_INPUT_CHARACTERS = 1_048_576
"""Maximum length of the text of one input, in characters: the bound of the reference implementation."""


async def turn_start(thread: ConversationContext, params: wire.TurnStartParams) -> wire.TurnStartResponse:
    session = thread.live.session
    _check_length(params.input)
    thread.connection.require_existing_folder(params.cwd)
    if params.output_schema is not None:
        try:
            await session.check_schema(params.output_schema)
        except CoreError as error:
            raise invalid_params(str(error), "outputSchema", "invalid_output_schema") from error
    items = user_inputs(params.input)
    change = session.facts.permitted(settings_change(params, session.facts.config))
    turn_input = None
    context_entries = _entries(params.additional_context) if params.additional_context else ()
    if items or context_entries:
        id = params.client_user_message_id
        turn_input = await session.prepare_input(items, id, change=change, context=context_entries)
        session.facts.permitted(change)  # the settings may have changed meanwhile
    try:
        command = StartTurn(turn_input=turn_input, change=change, output_schema=params.output_schema)
        started = session.turns.start(command, thread.turn_caller())
    except CoreError as error:
        raise _refused(error) from error
    return wire.TurnStartResponse(turn=pending_turn(started.turn))


async def turn_steer(thread: ConversationContext, params: wire.TurnSteerParams) -> wire.TurnSteerResponse:
    session = thread.live.session
    if not params.expected_turn_id:
        raise invalid_field("expectedTurnId must not be empty", "expectedTurnId")
    if not params.input:
        raise invalid_field("input must not be empty", "input")
    _check_length(params.input)
    given = None if params.additional_context is None else _entries(params.additional_context)
    turn_input = await session.prepare_input(
        user_inputs(params.input), params.client_user_message_id, context=given
    )
    try:
        return wire.TurnSteerResponse(turn_id=session.turns.steer(params.expected_turn_id, turn_input))
    except CoreError as error:
        raise _refused(error) from error


async def turn_interrupt(context: ConnectionContext, params: wire.TurnInterruptParams) -> None:
    """Interrupt a turn, and respond at once: `turn/completed` reports its end. An empty turn id asks for the thread to
    become idle, and is accepted if it is idle already.
    """
    live = find_open(context, params.thread_id) if params.thread_id else _running(context, params.turn_id)
    try:
        live.session.turns.interrupt(params.turn_id)
    except CoreError as error:
        wants_rest = params.turn_id == "" and "turn_id" in params.model_fields_set
        if not wants_rest or not isinstance(error, NoActiveTurn):
            raise _refused(error) from error


def _running(context: ConnectionContext, turn_id: str) -> LiveConversation:
    """Return the thread that runs the turn, for clients that do not name the thread."""
    parse_thread_id(turn_id)
    for live in context.conversations.all():
        if live.session.turns.current_id == turn_id:
            return live
    raise invalid_request("no active turn to interrupt", "no_active_turn")


def _entries(given: Mapping[str, wire.AdditionalContextEntry]) -> tuple[ContextEntry, ...]:
    """Return the context that a client adds. Raises RpcError for a key that is not a valid name, and for a value that
    is too long.
    """
    entries = tuple(
        ContextEntry(key, entry.value, trusted=entry.kind == "application") for key, entry in given.items()
    )
    if len(entries) > MOST_ENTRIES:
        raise invalid_params(
            f"additionalContext: at most {MOST_ENTRIES} entries are taken", "additionalContext"
        )
    for entry in entries:
        if not KEY.fullmatch(entry.key):
            text = "additionalContext: a key has 1 to 128 letters, digits, `.`, `_` and `-`"
            raise invalid_params(text, "additionalContext")
        if len(entry.value.encode()) > MOST_CONTEXT_BYTES:
            text = f"additionalContext.{entry.key}: a value has at most {MOST_CONTEXT_BYTES} bytes"
            raise invalid_params(text, f"additionalContext.{entry.key}")
    return entries


def _check_length(items: tuple[UserInput, ...]) -> None:
    length = sum(len(item.text) for item in items if isinstance(item, TextUserInput))
    if length > MAX_INPUT_CHARACTERS:
        data = {
            "kind": "input_too_large",
            "input_error_code": "input_too_large",
            "max_chars": MAX_INPUT_CHARACTERS,
            "actual_chars": length,
        }
        text = f"Input exceeds the maximum length of {MAX_INPUT_CHARACTERS} characters."
        raise RpcError(INVALID_PARAMS, text, data)


def _refused(error: CoreError) -> RpcError:
    """Return the error for a refused turn; clients match these texts."""

    match error:
        case NoActiveTurn():
            return invalid_request(str(error), "no_active_turn")
        case OtherTurnActive():
            return invalid_request(str(error), "other_turn_active")
        case TurnNotSteerable():
            refused = invalid_request(str(error), "turn_not_steerable")
            info = {"activeTurnNotSteerable": {"turnKind": error.turn.value}}
            data = {**(refused.data or {}), "message": str(error), "codexErrorInfo": info}
            return RpcError(refused.code, refused.message, data)
        case _:
            return invalid_request(str(error), "conversation")


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    thread = thread_of(context)
    return (
        route_in(wire.TURN_START, turn_start, thread),
        route_in(wire.TURN_STEER, turn_steer, thread),
        route(wire.TURN_INTERRUPT, turn_interrupt, context),
    )
