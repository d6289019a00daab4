"""The client's half of JSON-RPC: requests with their answers, and messages that the server initiates.

One task reads and never waits for other tasks: answers settle requests, everything else goes to the `Receiver`. One
task writes (`server.rpc.outgoing`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

import anyio
import msgspec
from msgspec import Struct
from pydantic import ValidationError

from app_server.client.failures import AppServerError, RequestRefused, ServerEnded, UnexpectedAnswer
from app_server.client.link import ServerLink
from app_server.server.rpc.outgoing import OutboundQueue
from app_server_protocol import jsonrpc
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.framing import Oversized, TransportClosed
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.parse import read
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.wire_fields import describe_validation_error

log = logging.getLogger(__name__)

P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=JsonSerializable)

UNSENT_BYTES = 1 << 20
"""Maximum size of unsent data, in bytes. Above it, requests wait before they are sent."""

LINES_AT_ONCE = 64
"""Number of lines that are read before other tasks run."""


class Receiver(Protocol):
    """Receives the messages that the server initiates. No method waits or raises."""

    def notified(self, method: str, params: Json) -> None: ...

    def asked(self, request: jsonrpc.Request, connection: ServerConnection) -> None:
        """Handle a request of the server, and ensure that it is answered."""
        ...

    def ended(self, error: ServerEnded) -> None: ...


class SentRequest(Struct):
    """A request without an answer yet."""

    method: str
    on_result: Callable[[Json], None]
    answered: anyio.Event = msgspec.field(default_factory=anyio.Event)
    error: AppServerError | None = None


class ServerConnection:
    """One open connection. `read` and `write` run for its lifetime."""

    def __init__(self, link: ServerLink, receiver: Receiver) -> None:
        self._link, self._receiver = link, receiver
        self._outgoing = OutboundQueue(link.write, UNSENT_BYTES)
        self._next_id = 0
        self._sent: dict[jsonrpc.RequestId, SentRequest] = {}
        self._error: ServerEnded | None = None
        self._ended = anyio.Event()

    # --- requests
    async def request(
        self,
        row: ClientRequest[P, R],
        params: P,
        *,
        received: Callable[[R], None] | None = None,
        late: Callable[[R], None] | None = None,
    ) -> R:
        """Send a request and return its result. Raises RequestRefused, ServerEnded, UnexpectedAnswer.

        `received` is called as soon as the answer is read, before any later message of the server is handled. `late` is
        called with an answer that this method cannot return, because its caller was cancelled. Neither may wait.
        """
        results: list[R] = []
        abandoned = False

        def on_result(raw: Json) -> None:
            try:
                result = read(row.result, raw)
            except ValidationError as error:
                where = describe_validation_error(error)[0]
                raise UnexpectedAnswer(f"{row.method}: unexpected answer: {where}") from error
            if abandoned:
                if late is not None:
                    late(result)
                return
            results.append(result)
            if received is not None:
                received(result)

        try:
            await self._exchange(row.method, chosen_fields(params), on_result)
        except BaseException:
            abandoned = True
            if results and late is not None:
                late(results[0])  # the answer and the cancellation came at the same time
            raise
        return results[0]

    async def request_raw(self, method: str, params: Json = None) -> Json:
        """Call a method that need not be known to this library, with plain JSON. Raises RequestRefused, ServerEnded."""
        results: list[Json] = []
        await self._exchange(method, params, results.append)
        return results[0]

    async def _exchange(self, method: str, params: Json, on_result: Callable[[Json], None]) -> None:
        await self._outgoing.wait_for_capacity()
        sent = self._send(method, params, on_result)
        await sent.answered.wait()
        if sent.error is not None:
            raise sent.error

    def _send(self, method: str, params: Json, on_result: Callable[[Json], None]) -> SentRequest:
        if self._error is not None:
            raise self._error
        id = self._next_id
        self._next_id += 1
        sent = self._sent[id] = SentRequest(method, on_result)
        dumped = None if params is None else json.dumps(params, separators=(",", ":")).encode()
        self._outgoing.send(jsonrpc.dump_request(id, method, dumped))
        return sent

    def send_and_forget(self, method: str, params: Json) -> None:
        """Send a request without waiting for its answer. Nothing happens if the connection has ended."""
        if self._error is None:
            self._send(method, params, lambda _: None)

    def notify(self, method: str) -> None:
        self._outgoing.send(jsonrpc.dump_notification(method))

    def respond(self, id: jsonrpc.RequestId, result: JsonSerializable) -> None:
        self._outgoing.respond(id, result.to_json())

    def refuse(self, id: jsonrpc.RequestId, error: RpcError) -> None:
        self._outgoing.fail(id, error)

    # --- the two tasks
    async def read(self) -> None:
        """Read until the server closes its end, or the client leaves. If the client leaves, the cause of the server's
        end is not awaited.
        """
        cause = "the client left the connection"
        try:
            async for batch in self._link.lines():
                for number, line in enumerate(batch, 1):
                    self._receive(line)
                    if number % LINES_AT_ONCE == 0:
                        await anyio.lowlevel.checkpoint()
            with anyio.CancelScope(shield=True):
                cause = await self._link.cause_of_end()
        finally:
            self._end(cause)

    async def write(self) -> None:
        try:
            await self._outgoing.write_queued()
        except TransportClosed:
            self._outgoing.close()  # the reader finds the cause

    async def close(self) -> None:
        """End the server's input, after all queued messages were sent. Return once the server has closed its output."""
        await self._outgoing.finish()
        await self._link.close()
        await self._ended.wait()

    def _end(self, cause: str) -> None:
        self._error = ServerEnded(cause)
        self._outgoing.close()
        for sent in self._sent.values():
            sent.error = self._error
            sent.answered.set()
        self._sent.clear()
        self._receiver.ended(self._error)
        self._ended.set()

    def _receive(self, line: bytes | Oversized) -> None:
        if isinstance(line, Oversized):
            log.warning("the server sent a line of %d bytes, which is over the limit", line.size)
            return
        if not line or line.isspace():
            return
        try:
            self._dispatch(jsonrpc.parse_message(line))
        except jsonrpc.ParseError as error:
            log.warning("the server sent a line that is no message: %s", error.message)

    def _dispatch(self, message: jsonrpc.Message) -> None:
        match message:
            case jsonrpc.Notification(method, params):
                self._receiver.notified(method, params)
            case jsonrpc.Request():
                self._receiver.asked(message, self)
            case jsonrpc.Response(id, result):
                self._settle(id, lambda sent: sent.on_result(result))
            case jsonrpc.ErrorAnswer(id, code, text, data):

                def refuse(sent: SentRequest) -> None:
                    sent.error = RequestRefused(sent.method, code, text, data)

                self._settle(id, refuse)

    def _settle(self, id: jsonrpc.RequestId, answer: Callable[[SentRequest], None]) -> None:
        sent = self._sent.pop(id, None)
        if sent is None:
            log.info("the server answered a request that is not open: id %s", id)
            return
        try:
            answer(sent)
        except AppServerError as error:
            sent.error = error
        sent.answered.set()


def chosen_fields(params: WireModel) -> Json:
    """Return the parameters as JSON, without the fields that the caller did not set."""
    value = params.to_value()
    if not isinstance(value, dict) or params.__pydantic_root_model__:
        return value
    fields, chosen = type(params).model_fields, params.model_fields_set
    names = {field.alias or name for name, field in fields.items() if name in chosen}
    return {name: each for name, each in value.items() if name in names}
