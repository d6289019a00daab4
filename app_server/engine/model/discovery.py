"""Asks a provider which models it has, with limits. A failure is a result, not an exception.

Each kind of server has an endpoint of its own (`served_models` reads the answers). A server that does not answer there
is asked for the list that all servers have.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

import anyio
from msgspec import Struct

from app_server.engine.auth.credentials import AuthMethod, Credentials
from app_server.engine.client_context import ClientIdentity
from app_server.engine.config.config_values import ProviderConfig
from app_server.engine.http.interface import Http, HttpFailure, HttpRequest
from app_server.engine.model import served_models as reading
from app_server.engine.model.catalogue import bundled
from app_server.engine.model.endpoints import ANTHROPIC_VERSION, endpoint, own_key
from app_server.engine.model.event_json import parse_object
from app_server.engine.model.model_errors import excerpt
from app_server.engine.model.quirks import quirks_of
from app_server.engine.model.served_models import ModelsUnknown, ServedModel, ServedModels, ServerKind
from app_server.engine.support.engine_errors import ModelError
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.values import replace

TOTAL_SECONDS = 10.0
"""Longest time that all requests to one provider may take together, in seconds."""

BODY_LIMIT = 4 * 1024 * 1024
"""Maximum size of an answer, in bytes."""

MOST_SHOWN = 8
"""Maximum number of Ollama models whose capabilities are requested one by one, if its list does not have them."""


class _Answer(Struct, frozen=True):
    """The JSON object of a provider's answer."""

    body: Mapping[str, Json]
    headers: Mapping[str, str]


class Discovery:
    """One round of requests to a provider."""

    def __init__(
        self,
        provider: ProviderConfig,
        http: Http,
        *,
        env: Mapping[str, str],
        identity: ClientIdentity,
        login: Credentials | None = None,
    ) -> None:
        self._provider, self._http, self._env, self._identity = provider, http, env, identity
        self._login = login if provider.requires_openai_auth else None
        self._quirks = quirks_of(provider, "")

    async def ask(self, model: str = "") -> ServedModels | ModelsUnknown:
        """Return the provider's models. `model` is the one that the user means to use, which is asked about first."""
        try:
            with anyio.fail_after(TOTAL_SECONDS):
                return await self._ask(model)
        except TimeoutError:
            return ModelsUnknown("no answer in time", unreachable=True)

    async def names(self) -> ServedModels | ModelsUnknown:
        """Return the provider's models from a single request. Of an Ollama, it is not known then whether they call
        tools.
        """
        if self._quirks.list != "ollama":
            return await self.ask()
        tags = await self._get("api/tags", root=True)
        if isinstance(tags, ModelsUnknown):
            return tags
        return ServedModels(
            kind="ollama", models=reading.read_ollama(reading.entries_of(tags.body) or (), ())
        )

    async def _ask(self, model: str) -> ServedModels | ModelsUnknown:
        match self._quirks.list:
            case "ollama":
                return await self._ollama(model) or await self._plain(model)
            case "lmstudio":
                return await self._lmstudio() or await self._plain(model)
            case "openai" if self._is_chatgpt():
                return await self._listed("chatgpt", *self._chatgpt())
            case "anthropic":
                headers = {"anthropic-version": ANTHROPIC_VERSION}
                return await self._listed("anthropic", {"limit": "1000"}, headers)
            case "any" | "openai" | "llamacpp" | "vllm" | "openrouter" | "litellm":
                return await self._plain(model)

    def _is_chatgpt(self) -> bool:
        if self._login is None or self._login.method is not AuthMethod.CHATGPT:
            return False
        try:
            return own_key(self._provider, self._env, self._login) is None
        except ModelError:
            return False

    def _chatgpt(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        version = bundled().follows
        return {"client_version": version}, {"version": version}

    async def _listed(
        self, kind: ServerKind, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> ServedModels | ModelsUnknown:
        """Request the list at `models`; the kind of the list is known."""
        found = await self._get("models", query=query, headers=headers)
        if isinstance(found, ModelsUnknown):
            return found
        entries = reading.entries_of(found.body)
        if entries is None:
            return ModelsUnknown("the answer is no list of models")
        etag = found.headers.get("etag", "")
        return ServedModels(kind=kind, models=reading.READERS[kind](entries), etag=etag)

    async def _plain(self, model: str) -> ServedModels | ModelsUnknown:
        """Request the list that all servers have, and detect from it which other requests this server answers."""
        found = await self._get("models")
        if isinstance(found, ModelsUnknown):
            return found
        entries = reading.entries_of(found.body)
        if entries is None:
            return ModelsUnknown("the answer is no list of models")
        kind = reading.kind_of(entries, found.headers, self._quirks.list)
        served = ServedModels(kind=kind, models=reading.READERS[kind](entries))
        match kind:
            case "ollama" if self._quirks.list != "ollama":
                return await self._ollama(model) or served
            case "litellm":
                info = await self._get("model/info", root=True)
                entries = None if isinstance(info, ModelsUnknown) else reading.entries_of(info.body)
                known = reading.read_litellm(entries or ())
                plain = reading.read_plain(reading.entries_of(found.body) or ())
                return replace(served, models=known or plain)
            case "llamacpp":
                return await self._llamacpp(served, model)
            case "any" | "openai" | "anthropic" | "ollama" | "lmstudio" | "vllm" | "openrouter":
                return served

    async def _llamacpp(self, served: ServedModels, model: str) -> ServedModels:
        """Ask a llama.cpp server about one model whose context window its list lacks."""
        wanted = served.find(model) if model else None
        if wanted is None or wanted.row.context_window is not None:
            return served
        props = await self._get("props", root=True, query={"model": wanted.name})
        if isinstance(props, ModelsUnknown):
            return served
        more = reading.with_props(wanted, props.body)
        return replace(served, models=tuple(more if each is wanted else each for each in served.models))

    async def _ollama(self, model: str) -> ServedModels | None:
        """Ask an Ollama by its own API; return None if the server does not have it."""
        tags = await self._get("api/tags", root=True)
        if isinstance(tags, ModelsUnknown) or (entries := reading.entries_of(tags.body)) is None:
            return None
        running = await self._get("api/ps", root=True)
        loaded = None if isinstance(running, ModelsUnknown) else reading.entries_of(running.body)
        served = ServedModels(kind="ollama", models=reading.read_ollama(entries, loaded or ()))
        chosen = served.find(model) if model else None
        shown: dict[str, ServedModel] = {}
        for each in [chosen] if chosen is not None else _candidates(served):
            answer = await self._get("api/show", root=True, body={"model": each.name})
            if not isinstance(answer, ModelsUnknown):
                shown[each.name] = reading.with_shown(each, answer.body)
        return replace(served, models=tuple(shown.get(each.name, each) for each in served.models))

    async def _lmstudio(self) -> ServedModels | None:
        """Ask an LM Studio by its own API; return None if the server does not have it."""
        for path in ("api/v1/models", "api/v0/models"):
            found = await self._get(path, root=True)
            if not isinstance(found, ModelsUnknown) and (entries := reading.entries_of(found.body)):
                return ServedModels(kind="lmstudio", models=reading.read_lmstudio(entries))
            if isinstance(found, ModelsUnknown) and found.unreachable:
                return None
        return None

    async def _get(
        self,
        path: str,
        *,
        root: bool = False,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Json = None,
    ) -> _Answer | ModelsUnknown:
        """Send one request. `root`: the path is below the server's root instead of its `/v1`. `body`: send it
        by POST.
        """
        asked = _at_root(self._provider) if root else self._provider
        if query:
            asked = replace(asked, query_params={**asked.query_params, **query})
        try:
            target = endpoint(asked, path, env=self._env, identity=self._identity, login=self._login)
        except ModelError as error:
            return ModelsUnknown(str(error))
        request = HttpRequest(
            method="GET" if body is None else "POST",
            url=target.url,
            headers={
                **target.headers,
                "accept": "application/json",
                **(headers or {}),
                **({} if body is None else {"content-type": "application/json"}),
            },
            body=None if body is None else json_bytes(body),
            idle_seconds=TOTAL_SECONDS,
            header_seconds=TOTAL_SECONDS,
        )
        try:
            return await self._send(request)
        except HttpFailure as failure:
            return ModelsUnknown(excerpt(failure.reason), unreachable=True)

    async def _send(self, request: HttpRequest) -> _Answer | ModelsUnknown:
        body = bytearray()
        async with self._http.send(request) as answer:
            if answer.status != 200:
                return ModelsUnknown(f"unexpected status {answer.status}", answer.status)
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > BODY_LIMIT:
                        return ModelsUnknown("the list is too long")
            parsed = parse_object(bytes(body))
            if parsed is None:
                return ModelsUnknown("the answer is no list of models")
            return _Answer(parsed, answer.headers)


def _candidates(served: ServedModels) -> list[ServedModel]:
    """Return the models that may become the default and whose support of tools is unknown, loaded ones first."""
    unknown = [each for each in served.models if each.tools is None]
    return sorted(unknown, key=lambda each: not each.loaded)[:MOST_SHOWN]


def _at_root(provider: ProviderConfig) -> ProviderConfig:
    """Return a provider with the address of its server's root."""
    base = (provider.base_url or "").rstrip("/")
    return replace(provider, base_url=base.removesuffix("/v1").removesuffix("/api"))
