"""HTTP without a network: each request takes the next scripted outcome. The module also has frames for answers."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from hypothesis import strategies as st

from app_server.engine.client_context import ClientIdentity
from app_server.engine.config.config_values import ProviderConfig, WireApi
from app_server.engine.http.interface import HttpFailure, HttpRequest
from app_server.engine.model.catalogue import PLAIN
from app_server.engine.model.endpoints import CredentialSource
from app_server.engine.model.model_client import ModelClient, Pacing, RequestGate
from app_server.engine.model.prompt import ModelEvent, Prompt, RequestSettings
from app_server.engine.model.quirks import Lessons
from app_server.engine.support.worker_threads import PIECE_BYTES
from app_server_protocol.encoding import Json
from app_server_protocol.responses import InputText, MessageItem

LETTERS = 'ab 1"\\{}[]:é😀'
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(LETTERS, max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(LETTERS, max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Strategy for any value that a provider may send in place of the expected one."""

SSE = {"content-type": "text/event-stream"}
SETTINGS = RequestSettings(model="some-model", row=PLAIN, conversation_id="conversation-1")
IDENTITY = ClientIdentity(originator="tests", user_agent="tests/1.0")


def sse(payload: Json) -> bytes:
    return b"data: " + json.dumps(payload).encode() + b"\n\n"


def event(kind: str, **fields: Json) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


CREATED = event("response.created", response={"id": "r1"})
COMPLETED = event("response.completed", response={"id": "r1", "usage": None})


def text_delta(text: str) -> bytes:
    return event("response.output_text.delta", delta=text)


def item_done(**item: Json) -> bytes:
    return event("response.output_item.done", item=item)


def message_done(text: str) -> bytes:
    return item_done(type="message", role="assistant", content=[{"type": "output_text", "text": text}])


@dataclass
class ScriptedAnswer:
    """Scripted response. `parts` are chunks, cut as the transport cuts them; a failure among them is raised in
    its place, an event is waited for.
    """

    parts: Sequence[bytes | HttpFailure | anyio.Event] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: dict(SSE))

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        for part in self.parts:
            match part:
                case bytes():
                    for at in range(0, max(len(part), 1), PIECE_BYTES):
                        yield part[at : at + PIECE_BYTES]
                case HttpFailure():
                    raise part
                case _:
                    await part.wait()


def answer(*parts: bytes | HttpFailure | anyio.Event, **headers: str) -> ScriptedAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ScriptedAnswer(parts, headers={**SSE, **named})


def refused(status: int, body: Json = None, **headers: str) -> ScriptedAnswer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ScriptedAnswer((raw,), status, {"content-type": "application/json", **named})


class ScriptedHttp:
    def __init__(self, *outcomes: ScriptedAnswer | HttpFailure) -> None:
        self.outcomes = list(outcomes)
        self.requests: list[HttpRequest] = []
        self.open = 0

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncIterator[ScriptedAnswer]:
        self.requests.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, HttpFailure):
            raise outcome
        self.open += 1
        try:
            yield outcome
        finally:
            self.open -= 1

    def body(self, request: int = 0) -> Json:
        return json.loads(self.requests[request].body or b"null")


def provider_config(**fields: Json) -> ProviderConfig:
    defaults: dict[str, Json] = {
        "id": "mock",
        "name": "Mock",
        "base_url": "http://provider.test/v1",
        "wire_api": WireApi.RESPONSES,
        "request_max_retries": 0,
    }
    return ProviderConfig(**{**defaults, **fields})


def client_for(
    http: ScriptedHttp,
    *,
    env: Mapping[str, str] | None = None,
    login: CredentialSource | None = None,
    gate: RequestGate | None = None,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    lessons: Lessons | None = None,
    **provider: Json,
) -> ModelClient:
    return ModelClient(
        provider_config(**provider),
        http,
        env=env or {},
        identity=IDENTITY,
        login=login,
        pacing=Pacing(lambda: 0.5, gate, sleep),
        lessons=lessons,
    )


def prompt(text: str = "hi") -> Prompt:
    return Prompt(
        instructions="Be useful.", input=[MessageItem(role="user", content=(InputText(text=text),))]
    )


async def ask(
    client: ModelClient,
    settings: RequestSettings = SETTINGS,
    into: list[ModelEvent] | None = None,
) -> list[ModelEvent]:
    """Return all events of one answer. With `into`, the events before a failure are available, too."""
    events = [] if into is None else into
    async with client.stream(prompt(), settings) as batches:
        async for batch in batches:
            assert batch
            events += batch
    return events
