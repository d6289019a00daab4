"""The HTTP side of a door: checks the request of a client and opens a WebSocket, or answers and closes.

A page in a browser can send requests to this machine under many names, and other users reach its ports. So the checks
have one order, in which no check reveals more than the one before: `Host`, `Origin`, path, token, the process at the
other end, upgrade. The health paths need no token. A refused connection is not read any further. Accepting connections,
and inspecting their first byte, is left to a listener.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import anyio
from anyio.abc import ByteStream
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from app_server.server.transport.socket_streams import LongMessageSlot
from app_server.server.transport.websocket import UNFRAGMENTED, WebSocketTransport, server_protocol

log = logging.getLogger(__name__)

HEAD_LIMIT = 16 << 10
"""Maximum size of a request line with its headers, in bytes."""
HEAD_SECONDS = 10
"""Time in which the whole request has to arrive, in seconds."""
HEAD_END = b"\r\n\r\n"

PATHS = ("/", "/rpc")
"""Paths at which a WebSocket is opened. Clients of codex request the second on a unix socket."""
READY, HEALTHY = "/readyz", "/healthz"
LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::(\d{1,5}))?", re.IGNORECASE | re.ASCII)
"""Valid values of `Host`, with the port."""
MOST_UNFRAGMENTED = "x-codex-websocket-max-unfragmented-message-bytes"
"""Header by which clients of codex learn the size above which a message has to be sent in fragments."""

WRONG_TOKENS, WRONG_TOKENS_SECONDS = 10, 60
"""Number of wrong tokens in an interval that are answered at once, and the interval, in seconds."""
WRONG_TOKEN_DELAY = 1
"""Delay of the answer to each further wrong token, in seconds."""


class WebSocketListener:
    """The HTTP requests at one address."""

    def __init__(
        self,
        *,
        port: int | None,
        token_sha256: bytes | None,
        line_limit: int,
        unavailable: Callable[[], str | None] = lambda: None,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """Begin without requests. `port` is that of a TCP address. A unix socket has none, and a tunnel that leads to
        it may have any. If there is no token, every client that reaches the address may enter. `unavailable` returns
        the reason why no client can enter now, None if clients can; a server that serves but is not `is_ready` reports
        at its health path that it is not ready.
        """
        self._port, self._token_sha256, self._line_limit = port, token_sha256, line_limit
        self._unavailable, self._is_ready = unavailable, is_ready
        self._wrong_tokens: deque[float] = deque(maxlen=WRONG_TOKENS)
        """Times of the last wrong tokens."""

    async def enter(
        self,
        stream: ByteStream,
        received: bytes,
        slot: LongMessageSlot | None = None,
        is_welcome: Callable[[], Awaitable[bool]] | None = None,
    ) -> WebSocketTransport | None:
        """Return the WebSocket of a client of which `received` was read. None if it was refused or only requested the
        health; its connection is then to be closed. `is_welcome` returns whether a client with the token may enter.
        """
        read = await _read_head(stream, received)
        if read is None:
            return None
        head, rest = read
        protocol = server_protocol(self._line_limit)
        answer = self._answer(head, protocol)
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            await self._delay_wrong_token()
        opens = answer.status_code == HTTPStatus.SWITCHING_PROTOCOLS
        if opens and is_welcome is not None and not await is_welcome():
            answer = protocol.reject(
                HTTPStatus.FORBIDDEN, "expected a client that this server has not started\n"
            )
        if answer.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            log.info("answered a client that speaks HTTP with %d", answer.status_code)
            await _send(stream, answer.serialize())
            return None
        answer.headers[MOST_UNFRAGMENTED] = str(min(UNFRAGMENTED, self._line_limit))
        protocol.send_response(answer)
        sent = await _send(stream, b"".join(protocol.data_to_send()))
        return WebSocketTransport(stream, protocol, unread=rest, slot=slot) if sent else None

    def _answer(self, head: bytes, protocol: ServerProtocol) -> Response:
        protocol.receive_data(head)
        requests = [event for event in protocol.events_received() if isinstance(event, Request)]
        if not requests or not head.startswith(b"GET ") or not head.isascii():
            return protocol.reject(HTTPStatus.BAD_REQUEST, "expected a GET request of HTTP/1.1, in ASCII\n")
        [request] = requests
        if judged := self._judge(request):
            status, text = judged
            return protocol.reject(status, f"{text}\n")
        return protocol.accept(request)

    def _judge(self, request: Request) -> tuple[HTTPStatus, str] | None:
        """Return the answer to a request that opens no WebSocket; None if it opens one."""
        path = request.path.partition("?")[0]
        if not self._is_own_host(request.headers.get_all("Host")):
            return HTTPStatus.FORBIDDEN, "expected a Host of this machine, with the port of this server"
        if request.headers.get_all("Origin"):
            return HTTPStatus.FORBIDDEN, "expected no Origin: pages of a browser are not served"
        if path == HEALTHY:
            return HTTPStatus.OK, "ok"
        why_not = self._unavailable()
        if path == READY:
            why_not = why_not or (None if self._is_ready() else "loading")
            return (HTTPStatus.SERVICE_UNAVAILABLE, why_not) if why_not else (HTTPStatus.OK, "ready")
        if path not in PATHS:
            return HTTPStatus.NOT_FOUND, f"expected one of the paths {' '.join((*PATHS, READY, HEALTHY))}"
        if not self._is_token(request.headers.get_all("Authorization")):
            return HTTPStatus.UNAUTHORIZED, "expected the server's token, as in `Authorization: Bearer TOKEN`"
        return (HTTPStatus.SERVICE_UNAVAILABLE, why_not) if why_not else None

    def _is_own_host(self, hosts: list[str]) -> bool:
        match = LOOPBACK.fullmatch(hosts[0]) if len(hosts) == 1 else None
        return match is not None and (self._port is None or (match[1] or "80") == str(self._port))

    def _is_token(self, credentials: list[str]) -> bool:
        if self._token_sha256 is None:
            return True
        scheme, _, token = credentials[0].partition(" ") if len(credentials) == 1 else ("", "", "")
        given = hashlib.sha256(token.strip().encode()).digest()
        return hmac.compare_digest(given, self._token_sha256) and scheme.lower() == "bearer"

    async def _delay_wrong_token(self) -> None:
        now = anyio.current_time()
        full = len(self._wrong_tokens) == WRONG_TOKENS
        delayed = full and now - self._wrong_tokens[0] < WRONG_TOKENS_SECONDS
        self._wrong_tokens.append(now)
        if delayed:
            await anyio.sleep(WRONG_TOKEN_DELAY)


async def _read_head(stream: ByteStream, received: bytes) -> tuple[bytes, bytes] | None:
    """Return the request, and the bytes after it; None if it is too large, too slow or incomplete."""
    buffer = bytearray(received)
    with anyio.move_on_after(HEAD_SECONDS):
        searched = 0
        while (end := buffer.find(HEAD_END, searched, HEAD_LIMIT)) < 0:
            if len(buffer) >= HEAD_LIMIT:
                return None
            searched = max(0, len(buffer) - len(HEAD_END) + 1)
            try:
                buffer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
        end += len(HEAD_END)
        return bytes(buffer[:end]), bytes(buffer[end:])
    return None


async def _send(stream: ByteStream, data: bytes) -> bool:
    try:
        await stream.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return False
    return True
