"""Reads a response that is no answer of a model: the useful part of its body, with the credentials of the request
redacted.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from urllib.parse import parse_qsl, urlsplit

import anyio

from app_server.engine.http.interface import Fault, HttpFailure, HttpResponse
from app_server.engine.model.api_failures import RequestFailure, request_failure
from app_server.engine.model.endpoints import Endpoint
from app_server.engine.model.model_errors import excerpt
from app_server.engine.support import redaction
from app_server.engine.support.engine_errors import ModelError
from app_server_protocol.values import replace

log = logging.getLogger(__name__)

BODY_LIMIT = 64 * 1024
"""Maximum size of the body of an error response that is read, in bytes."""

BODY_SECONDS = 10.0

SHORTEST_SECRET = 4
"""Minimum length of a credential that is redacted in responses, in characters: a shorter one occurs in too many words.
"""


async def refusal(answer: HttpResponse, content_type: str, target: Endpoint) -> RequestFailure:
    """Read why a response is no answer of a model."""
    beginning = _without_secrets(await _beginning(answer), target)
    if 200 <= answer.status < 300:
        kind, quoted = excerpt(content_type), excerpt(beginning.decode("utf-8", "replace"))
        text = f"The provider answered with {kind} instead of an event stream: {quoted}"
        failed = RequestFailure(ModelError(text))
    else:
        failed = request_failure(answer.status, answer.headers, beginning)
    return replace(failed, status=answer.status)


def _without_secrets(answer: bytes, target: Endpoint) -> bytes:
    """Return an answer with the credentials of the request redacted."""
    text = answer.decode("utf-8", "replace")
    query = parse_qsl(urlsplit(target.url).query)
    for name, value in (("token", target.secret or ""), *target.headers.items(), *query):
        if len(value) >= SHORTEST_SECRET and redaction.is_secret_name(name):
            text = text.replace(value, redaction.MASK)
    return redaction.masked_text(text).encode()


async def _beginning(answer: HttpResponse) -> bytes:
    """Read the useful part of a body; return what has arrived if it breaks off or takes too long."""
    body = bytearray()
    try:
        with anyio.move_on_after(BODY_SECONDS):
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) >= BODY_LIMIT:
                        break
    except HttpFailure as failure:
        log.debug("the body of an error answer broke off after %d bytes", len(body))
        if not body and failure.fault in (Fault.TOO_LARGE, Fault.ENCODED):
            body += f"({failure.reason})".encode()
    return bytes(body[:BODY_LIMIT])
