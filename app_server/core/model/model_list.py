"""Requests the list of a provider's models, with limits. A failure is a result, not an exception."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

import anyio
from msgspec import Struct

from app_server.core.auth.credentials import Credentials
from app_server.core.caller import ClientIdentity
from app_server.core.config.types import ProviderConfig
from app_server.core.errors import ModelError
from app_server.core.http.exchange import Http, HttpFailure, HttpRequest
from app_server.core.model.endpoints import endpoint
from app_server.core.model.model_errors import excerpt, status_line
from app_server.core.model.payload import mapping, parse_object, text_of

TOTAL_SECONDS = 10.0
BODY_LIMIT = 4 * 1024 * 1024


class ModelList(Struct, frozen=True):
    names: tuple[str, ...]


class ModelsUnknown(Struct, frozen=True):
    """The provider could not be asked, or did not say."""

    reason: str
    status: int | None = None
    """Of its response, where one came."""
    unreachable: bool = False
    """There was no response."""


async def list_models(
    provider: ProviderConfig,
    http: Http,
    *,
    env: Mapping[str, str],
    identity: ClientIdentity,
    login: Credentials | None = None,
) -> ModelList | ModelsUnknown:
    """`GET models`, as OpenAI and the local servers answer it."""
    try:
        target = endpoint(
            provider,
            "models",
            env=env,
            identity=identity,
            login=login if provider.requires_openai_auth else None,
        )
    except ModelError as error:
        return ModelsUnknown(str(error))
    request = HttpRequest(
        method="GET",
        url=target.url,
        headers={**target.headers, "accept": "application/json"},
        idle_seconds=TOTAL_SECONDS,
        header_seconds=TOTAL_SECONDS,
    )
    body = bytearray()
    try:
        with anyio.fail_after(TOTAL_SECONDS):
            async with http.send(request) as answer:
                if answer.status != 200:
                    return ModelsUnknown(f"unexpected status {status_line(answer.status)}", answer.status)
                async with aclosing(answer.chunks()) as chunks:
                    async for chunk in chunks:
                        body += chunk
                        if len(body) > BODY_LIMIT:
                            return ModelsUnknown("the list is too long")
    except HttpFailure as failure:
        return ModelsUnknown(excerpt(failure.reason), unreachable=True)
    except TimeoutError:
        return ModelsUnknown("no answer in time", unreachable=True)
    return _names(bytes(body))


def _names(body: bytes) -> ModelList | ModelsUnknown:
    answer = mapping(parse_object(body))
    entries = answer.get("data") or answer.get("models")
    if not isinstance(entries, list):
        return ModelsUnknown("the answer is no list of models")
    objects = [mapping(entry) for entry in entries]
    names = [
        text_of(entry.get("id")) or text_of(entry.get("slug")) or text_of(entry.get("name"))
        for entry in objects
    ]
    return ModelList(tuple(name for name in names if name))
