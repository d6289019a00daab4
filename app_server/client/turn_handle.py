"""A turn that this client has begun: its progress, its result, and methods to wait for it, steer and interrupt it.

A result may have structured output: a pydantic model or a JSON Schema is sent with the request, and the final message
is parsed as an instance of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Generic, TypeVar, cast

import anyio
from msgspec import Struct
from pydantic import BaseModel, ValidationError

from app_server.client.connection import ServerConnection
from app_server.client.events import ServerEvent
from app_server.client.failures import AppServerError, OutputInvalid, TurnFailed
from app_server.client.options import Prompt, parts_of
from app_server_protocol.encoding import Json
from app_server_protocol.v2 import turn as wire
from app_server_protocol.v2.items import (
    AgentMessageThreadItem,
    ItemCompletedNotification,
    MessagePhase,
    ThreadItem,
)
from app_server_protocol.v2.server import ErrorNotification, TurnError
from app_server_protocol.v2.thread import ThreadTokenUsageUpdatedNotification, TokenUsageBreakdown

T = TypeVar("T")


class TurnResult(Struct, Generic[T], frozen=True):
    """Result of a turn. `usage` counts the tokens of this turn alone; None if no request of it was counted."""

    turn_id: str
    status: wire.TurnStatus
    items: tuple[ThreadItem, ...]
    usage: TokenUsageBreakdown | None = None
    error: TurnError | None = None
    parsed: T | None = None
    invalid: str | None = "the turn was not given an output schema"
    """Reason why there is no output. None if there is output."""

    @property
    def final_message(self) -> str | None:
        """The last message of the model. A commentary counts only if there is no other message."""
        messages = [item for item in self.items if isinstance(item, AgentMessageThreadItem)]
        answers = [item for item in messages if item.phase is not MessagePhase.COMMENTARY]
        return next((item.text for item in reversed(answers or messages)), None)

    @property
    def completed(self) -> bool:
        return self.status is wire.TurnStatus.COMPLETED

    @property
    def output(self) -> T:
        """The final message as an instance of what `output=` requested. Raises TurnFailed, OutputInvalid."""
        if not self.completed:
            why = self.error.message if self.error else f"the turn was {self.status}"
            raise TurnFailed(why)
        if self.invalid is not None:
            raise OutputInvalid(self.invalid)
        return cast("T", self.parsed)


class TurnProgress:
    """Progress of one turn, for callers that wait for it."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.status = wire.TurnStatus.IN_PROGRESS
        self._items: list[ThreadItem] = []
        self._before: TokenUsageBreakdown | None = None
        self._total: TokenUsageBreakdown | None = None
        self._error: TurnError | None = None
        self._failure: Exception | None = None
        self._over = anyio.Event()
        """Event that is set when the turn has ended, or callers have to stop waiting."""
        self._ended = anyio.Event()

    @property
    def running(self) -> bool:
        return self.status is wire.TurnStatus.IN_PROGRESS

    def observe(self, event: ServerEvent) -> None:
        match event:
            case ItemCompletedNotification(item=item):
                self._items.append(item)
            case ThreadTokenUsageUpdatedNotification(token_usage=usage):
                if self._before is None:
                    self._before = _difference(usage.total, usage.last)
                self._total = usage.total
            case ErrorNotification(error=error, will_retry=False):
                self._error = error
            case wire.TurnCompletedNotification(turn=turn):
                self.status = turn.status
                self._error = turn.error or (self._error if turn.status is wire.TurnStatus.FAILED else None)
                self._over.set()
                self._ended.set()
            case _:
                pass

    def fail(self, error: Exception, *, final: bool = False) -> None:
        """Raise this error in all callers that wait for the turn. The turn may still run, unless the error is `final`:
        then no more events of it arrive.
        """
        self._failure = self._failure or error
        self._over.set()
        if final:
            self._ended.set()

    async def wait(self) -> TurnResult[None]:
        """Wait for the end of the turn and return the result. Raises the error of `fail`."""
        await self._over.wait()
        if self._failure is not None:
            raise self._failure
        return self.result()

    async def ended(self) -> None:
        """Wait for the end of the turn itself."""
        await self._ended.wait()

    def result(self) -> TurnResult[None]:
        """Return the result so far."""
        usage = None
        if self._before is not None and self._total is not None:
            usage = _difference(self._total, self._before)
        return TurnResult(self.turn_id, self.status, tuple(self._items), usage, self._error)


def _difference(more: TokenUsageBreakdown, less: TokenUsageBreakdown) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        **{
            name: max(0, getattr(more, name) - getattr(less, name))
            for name in TokenUsageBreakdown.__struct_fields__
        }
    )


INTERRUPT_WITHIN = 5.0
"""Timeout for an abandoned turn to end before its caller continues, in seconds."""


class TurnHandle:
    """A turn by its id."""

    def __init__(self, connection: ServerConnection, thread_id: str, progress: TurnProgress) -> None:
        self._connection, self._progress, self.thread_id = connection, progress, thread_id

    @property
    def id(self) -> str:
        return self._progress.turn_id

    @property
    def running(self) -> bool:
        return self._progress.running

    async def result(self) -> TurnResult[None]:
        """Wait for the end of the turn and return its result. A failed turn is a result. Raises ServerEnded,
        HandlerFailed.

        Cancelling the call leaves the turn running.
        """
        return await self._progress.wait()

    async def steer(self, prompt: Prompt) -> None:
        """Send a prompt to the running turn. Raises RequestRefused if it has ended."""
        params = wire.TurnSteerParams(
            thread_id=self.thread_id, input=parts_of(prompt), expected_turn_id=self.id
        )
        await self._connection.request(wire.TURN_STEER, params)

    async def interrupt(self) -> None:
        """Interrupt the turn; its result then has the status `interrupted`."""
        await self._connection.request(
            wire.TURN_INTERRUPT, wire.TurnInterruptParams(thread_id=self.thread_id, turn_id=self.id)
        )

    async def abandon(self) -> None:
        """Interrupt the turn if it still runs, and wait a bounded time for its end. Raises nothing."""
        if not self.running or not self.id:  # or it has not begun
            return
        with anyio.move_on_after(INTERRUPT_WITHIN, shield=True):
            try:
                await self.interrupt()
                await self._progress.ended()
            except AppServerError:
                return  # the turn has ended by now, or the server has


M = TypeVar("M", bound=BaseModel)

LONGEST_ECHO = 2000
"""Maximum length of the model's message in an error, in characters."""

SCHEMAS_BY_NAME = ("properties", "$defs", "definitions")
LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMAS = ("items", "not", "additionalProperties")


class OutputModel(Struct, Generic[M], frozen=True):
    """Type of the final message."""

    model: type[M]

    def schema(self) -> Json:
        return strict(self.model.model_json_schema())

    def parsed(self, result: TurnResult[None]) -> TurnResult[M]:
        """Return the result with its output, or with the reason why there is none."""
        text = result.final_message
        if text is None:
            return _with_output(result, None, "the model said nothing")
        try:
            return _with_output(result, self.model.model_validate_json(text), None)
        except ValidationError as error:
            return _with_output(result, None, f"{error}\nthe final message was: {text[:LONGEST_ECHO]}")


def parsed_json(result: TurnResult[None]) -> TurnResult[Json]:
    """Parse the final message as plain JSON. It is not validated against the schema."""
    text = result.final_message or ""
    try:
        return _with_output(result, json.loads(text), None)
    except ValueError as error:
        return _with_output(result, None, f"{error}\nthe final message was: {text[:LONGEST_ECHO]}")


def _with_output(result: TurnResult[None], parsed: T | None, invalid: str | None) -> TurnResult[T]:
    return TurnResult(
        result.turn_id, result.status, result.items, result.usage, result.error, parsed, invalid
    )


def strict(schema: Json) -> Json:
    """Return the schema as providers require it: objects list all of their properties as required, and allow no others.

    A property with a default is required, too; the model then writes its value.
    """
    if not isinstance(schema, Mapping):
        return schema  # true and false are schemas
    made: dict[str, Json] = {}
    for key, value in schema.items():
        if key in SCHEMAS_BY_NAME and isinstance(value, Mapping):
            made[key] = {name: strict(each) for name, each in value.items()}
        elif key in LISTS_OF_SCHEMAS and isinstance(value, list):
            made[key] = [strict(each) for each in value]
        elif key in SCHEMAS:
            made[key] = strict(value)
        elif key != "default":
            made[key] = value
    if made.get("type") == "object" and "properties" in made:
        made |= {"required": [*made["properties"]], "additionalProperties": False}
    return made
