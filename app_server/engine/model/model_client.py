"""Sends a prompt to a model, retries the request if that may help, and streams the response as events.

The client retries requests until a response begins. If a stream breaks later, the turn retries, because only the turn
knows which events it has processed. Cancellation ends any wait at once.

A gate decides when each request is sent, and learns its outcome: it is for a provider that other conversations or other
servers use, too. A server without a gate sends every request at once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from typing import Protocol

import anyio
from msgspec import Struct

from app_server.engine.auth.credentials import Credentials
from app_server.engine.client_context import ClientIdentity
from app_server.engine.config.config_values import OPENAI, ProviderConfig
from app_server.engine.http.address import origin
from app_server.engine.http.interface import Fault, Http, HttpFailure, HttpRequest, HttpResponse
from app_server.engine.model import error_bodies, refusal_advice
from app_server.engine.model.api_failures import RequestFailure
from app_server.engine.model.catalogue import is_other_model
from app_server.engine.model.endpoints import CredentialSource, Endpoint, endpoint, key_source
from app_server.engine.model.model_errors import (
    TOO_MANY_REQUESTS,
    Unauthorized,
    backoff,
    connection_failed,
)
from app_server.engine.model.prompt import ModelEvent, Prompt, RequestSettings, Rerouted
from app_server.engine.model.quirks import Lessons
from app_server.engine.model.request_form import MOST_LESSONS, RequestForm
from app_server.engine.model.stream import EventStream
from app_server.engine.model.wires import ModelRequest
from app_server.engine.support.engine_errors import AuthError, ModelError, StreamDisconnected
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.engine.token_usage import TokenUsage

log = logging.getLogger(__name__)

MODEL = "openai-model"
"""Header with the name of the model that answers."""
ETAG = "x-models-etag"
"""Header with the version of the provider's list of models."""

DRAIN_SECONDS = 0.02
"""Longest wait for the end of the response after a complete answer, in seconds; the connection can be reused then."""

LISTED_HEADERS = frozenset({"anthropic-beta"})
"""Headers whose value is a list: the configured value is joined with the value of the request."""

OnAttempt = Callable[[int, float, int | None, str | None], None]
"""Receives each attempt of a request: its number, counted from 0, its duration in seconds, the response status, the
error.
"""


class GatedRequest(Struct):
    """One request: its sender, its size, and its outcome."""

    conversation_id: str
    model: str
    size: int
    """Size of its body, in bytes."""
    status: int | None = None
    """HTTP status of the refusal; None if the request was not refused."""
    retry_after: float | None = None
    """Wait that the provider requests, in seconds; None if it requests none."""
    limited: bool = False
    """Whether the provider asks for fewer requests. The request is then sent again when the gate lets it pass, which
    does not count as a retry.
    """
    usage: TokenUsage | None = None
    """Token usage of the complete answer; None until then."""

    def refused(self, failure: RequestFailure, longest_pause: float) -> None:
        """Record why the request was refused. `longest_pause`: longest wait for the provider, in seconds."""
        self.status, self.retry_after = failure.status, failure.delay
        waits = failure.delay is not None and failure.delay <= longest_pause
        self.limited = failure.status == TOO_MANY_REQUESTS and (failure.again or waits)


class RequestGate(Protocol):
    """Decides when requests are sent."""

    longest_pause: float
    """Longest wait when a provider asks for fewer requests, in seconds; a request that would wait longer fails."""

    def passing(self, request: GatedRequest) -> AbstractAsyncContextManager[None]:
        """Wait until the request may be sent; while the block runs, it is under way. `request` has the outcome when the
        block is left.
        """
        ...


class Pacing(Struct, frozen=True):
    """The pacing of a conversation's requests."""

    rng: Callable[[], float]
    """Random numbers from 0 up to 1, for the jitter of the waits between attempts."""
    gate: RequestGate | None = None
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


class PreparedRequest(Struct):
    """One request with the number of its retries and what was tried to have it accepted."""

    prompt: Prompt
    asked: ModelRequest
    """The prompt in the form that the provider accepts."""
    body: bytes
    login: Credentials | None
    target: Endpoint
    sent: GatedRequest
    """The last attempt."""
    retries: int = 0
    """Number of attempts after the first that had to wait."""
    lessons: int = 0
    """Number of lessons from refusals."""
    renewed: bool = False
    """Whether the login was renewed."""
    reconnected: bool = False
    """Whether an idle connection had ended."""


class ModelClient:
    """The connection of one conversation to its provider."""

    def __init__(
        self,
        provider: ProviderConfig,
        http: Http,
        *,
        env: Mapping[str, str],
        identity: ClientIdentity,
        login: CredentialSource | None = None,
        pacing: Pacing,
        lessons: Lessons | None = None,
        watch: OnAttempt | None = None,
    ) -> None:
        self.provider = provider
        self._http, self._env, self._identity = http, env, identity
        self._rng, self._gate, self._sleep = pacing.rng, pacing.gate, pacing.sleep
        self._login = login if provider.requires_openai_auth else None
        """OpenAI login; None if the provider does not require it, so that other providers never receive its
        credentials.
        """
        self._watch = watch
        self._endpoint: tuple[str, Credentials | None, Endpoint] | None = None
        """Endpoint of the last request, after the path and the login it is for."""
        self._form = RequestForm(provider, lessons or Lessons())
        self.known: refusal_advice.KnownProvider | None = None
        """Knowledge about the provider; None if there is none."""

    def retry_delay(self, attempt: int) -> float:
        """Return the wait before a retry, in seconds. The first retry has number 1."""
        return backoff(attempt, self._rng)

    @asynccontextmanager
    async def stream(self, prompt: Prompt, settings: RequestSettings) -> AsyncIterator[EventStream]:
        """Yield the events of a response. Entering and iterating raise ModelError."""
        self._form.begin_answer()
        async with AsyncExitStack() as stack:
            try:
                request = await self._prepare(prompt, settings)
                while isinstance(answer := await self._send(request, stack), RequestFailure | HttpFailure):
                    await self._retry(request, answer)
            except ModelError as error:
                self._form.learn_window(error, settings.model)
                raise
            self._form.wire_taken()
            chunks = await stack.enter_async_context(aclosing(answer.chunks()))
            first = [
                *self._form.wire.first_events(answer.headers),
                *self._about_models(answer, settings.model),
            ]
            is_document = _content_type(answer) == "application/json"
            decoder = self._form.wire.decoder(request.asked)
            events = EventStream(chunks, decoder, first, is_document=is_document)
            try:
                yield events
            except ModelError as error:
                error.unanswered = error.unanswered or events.is_blank
                self._form.learn_window(error, settings.model)
                if error.error_class is ErrorClass.RATE_LIMIT_EXCEEDED:
                    request.sent.limited, request.sent.retry_after = True, error.retry_after
                raise
            finally:
                request.sent.usage = events.usage
            if decoder.completed:
                with anyio.move_on_after(DRAIN_SECONDS):
                    await events.drain()

    async def _prepare(self, prompt: Prompt, settings: RequestSettings) -> PreparedRequest:
        """Return the request in the form that the provider accepts, with its credentials. Raises ModelError."""
        asked = self._form.request(prompt, settings)
        body = self._form.wire.body(asked)
        login = await self._credentials()
        if self._login is not None and key_source(self.provider, self._env, login) is None:
            # The provider would refuse the request, too, and a provider that cannot be reached would cost all retries
            # first.
            raise await self._refused(login)
        sent = GatedRequest(settings.conversation_id, settings.model, len(body))
        return PreparedRequest(prompt, asked, body, login, self._target(asked, login), sent)

    async def _send(
        self, request: PreparedRequest, stack: AsyncExitStack
    ) -> HttpResponse | RequestFailure | HttpFailure:
        """Send the request when the gate lets it pass, again if the provider only asks for fewer requests. Return the
        response, which `stack` closes, or the failure.
        """
        settings, target = request.asked.settings, request.target
        idle = self.provider.stream_idle_timeout_ms / 1000
        while True:
            sent = request.sent = GatedRequest(settings.conversation_id, settings.model, len(request.body))
            async with AsyncExitStack() as opened:
                if self._gate is not None:
                    await opened.enter_async_context(self._gate.passing(sent))
                began = anyio.current_time()
                outcome: HttpResponse | RequestFailure | HttpFailure
                try:
                    answer = await opened.enter_async_context(self._http.send(_http_request(request, idle)))
                    kind, is_success = _content_type(answer), 200 <= answer.status < 300
                    is_answer = is_success and kind != "text/html"
                    outcome = answer if is_answer else await error_bodies.refusal(answer, kind, target)
                except HttpFailure as failure:
                    outcome = failure
                if self._watch is not None:
                    self._watch(request.retries, anyio.current_time() - began, *_reported(outcome))
                if isinstance(outcome, RequestFailure):
                    sent.refused(outcome, 0.0 if self._gate is None else self._gate.longest_pause)
                if self._gate is not None and sent.limited:
                    continue
                if not isinstance(outcome, RequestFailure | HttpFailure):
                    stack.push_async_exit(opened.pop_all())
            return outcome

    async def _retry(self, request: PreparedRequest, failure: RequestFailure | HttpFailure) -> None:
        """Prepare the next attempt of a request after a failure, and wait for its time. Raises ModelError if there is
        none.
        """
        if isinstance(failure, HttpFailure):
            if failure.reused_connection and not request.reconnected:
                request.reconnected = True
                return
            failure = _broken(failure, request.target, self.provider.id)
        failure = self._form.read(failure, request.asked)
        learns = request.lessons < MOST_LESSONS and self._form.learns(failure, request.asked, request.body)
        if learns or self._form.changes_wire(failure):
            request.lessons += learns
            request.asked = self._form.request(request.prompt, request.asked.settings)
            request.body = self._form.wire.body(request.asked)
            request.target = self._target(request.asked, request.login)
            return
        if isinstance(failure.error, Unauthorized):
            login = request.login
            if login is not None and request.target.secret == login.bearer and not request.renewed:
                request.renewed = True
                login = request.login = await self._credentials(login)
                if login is not None:
                    request.target = self._target(request.asked, login)
                    return
            raise await self._refused(login)
        failure = self._form.wire_refused(failure)
        if not failure.again or request.retries >= self.provider.request_max_retries:
            settings = request.asked.settings
            raise await refusal_advice.with_advice(
                failure.error, self.provider, settings.model, request.target, self.known
            )
        request.retries += 1
        log.info("request attempt %d failed: %s", request.retries, failure.error)
        request.target = self._target(request.asked, request.login)
        await self._sleep(self.retry_delay(request.retries) if failure.delay is None else failure.delay)

    async def _refused(self, login: Credentials | None) -> Unauthorized:
        needs_login = self._login is not None
        return await refusal_advice.unauthorized(
            self.provider, self._env, login, self.known, needs_login=needs_login
        )

    def _about_models(self, answer: HttpResponse, model: str) -> list[ModelEvent]:
        """Read the headers of an answer about models: which model answers, and the version of the list of models."""
        if self.known is not None and (etag := answer.headers.get(ETAG)):
            self.known.saw_list(etag)
        served = answer.headers.get(MODEL) if self.provider.id == OPENAI else None
        return [Rerouted(served)] if served and is_other_model(model, served) else []

    def _target(self, asked: ModelRequest, login: Credentials | None) -> Endpoint:
        path, known = self._form.wire.path, self._endpoint
        if known is None or known[0] != path or known[1] is not login:
            target = endpoint(self.provider, path, env=self._env, identity=self._identity, login=login)
            known = self._endpoint = path, login, target
        target = known[2]
        headers = {
            **target.headers,
            "accept": "text/event-stream",
            "content-type": "application/json",
        }
        for name, value in self._form.wire.headers(asked).items():
            listed = name in LISTED_HEADERS and name in headers
            headers[name] = f"{headers[name]},{value}" if listed else value
        return Endpoint(target.url, headers, target.secret)

    async def _credentials(self, refused: Credentials | None = None) -> Credentials | None:
        """Return the present credentials, or credentials that differ from the refused ones."""
        if self._login is None:
            return None
        try:
            return await (self._login.credentials() if refused is None else self._login.refresh(refused))
        except AuthError as error:
            raise ModelError(str(error), ErrorClass.UNAUTHORIZED) from error


def _http_request(request: PreparedRequest, idle_seconds: float) -> HttpRequest:
    return HttpRequest(
        method="POST",
        url=request.target.url,
        headers=request.target.headers,
        body=request.body,
        idle_seconds=idle_seconds,
        header_seconds=idle_seconds,
    )


def _broken(failure: HttpFailure, target: Endpoint, provider: str) -> RequestFailure:
    if failure.fault is Fault.HEADERS_LATE:
        # The request took as long as a stream may be idle. The turn decides whether to wait that long again.
        late = "the provider took the request and did not begin to answer in time"
        return RequestFailure(StreamDisconnected(late))
    useless = failure.fault is Fault.UNTRUSTED
    where = origin(target.url) or "the provider"
    error = connection_failed(provider, where, failure.reason, retryable=not useless)
    error.unanswered = failure.fault is Fault.NO_ANSWER
    return RequestFailure(error, again=not useless)


def _reported(outcome: HttpResponse | RequestFailure | HttpFailure) -> tuple[int | None, str | None]:
    """Return the status and the error of an attempt."""
    if isinstance(outcome, HttpFailure):
        return None, outcome.reason
    return outcome.status, str(outcome.error) if isinstance(outcome, RequestFailure) else None


def _content_type(response: HttpResponse) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()
