from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest

from app_server.engine.auth.credentials import AuthMethod, Credentials
from app_server.engine.config.config_values import WireApi
from app_server.engine.http.interface import Fault, HttpFailure
from app_server.engine.model.discovery import Discovery
from app_server.engine.model.model_errors import (
    Unauthorized,
    UnexpectedStatus,
)
from app_server.engine.model.prompt import (
    Completed,
    Created,
    ModelEvent,
    OutputItemDone,
    RateLimits,
)
from app_server.engine.model.served_models import ModelsUnknown, ServedModels
from app_server.engine.support.engine_errors import AuthError, ModelError, StreamDisconnected
from app_server.engine.turn.emitter import turn_error
from app_server_protocol.encoding import Json
from app_server_protocol.engine.token_usage import RateLimitSnapshot, RateLimitWindow
from app_server_protocol.responses import MessageItem, OutputText
from app_server_protocol.values import replace
from tests.engine.model.scripted import (
    COMPLETED,
    CREATED,
    IDENTITY,
    SETTINGS,
    ScriptedAnswer,
    ScriptedHttp,
    answer,
    ask,
    client_for,
    prompt,
    provider_config,
    refused,
    sse,
    text_delta,
)
from tests.support.written_texts import text_deltas

FINE = answer(CREATED, text_delta("a"), COMPLETED)
NO_LIMITS = RateLimits(RateLimitSnapshot())
WHOLE_MESSAGE = OutputItemDone(MessageItem(role="assistant", content=(OutputText(text="a"),)))
EVENTS: list[ModelEvent] = [NO_LIMITS, Created(), *text_deltas("a"), WHOLE_MESSAGE, Completed(None)]


class Login:
    """Login with a list of credentials: the next ones are used when the last were refused."""

    def __init__(self, *tokens: str | None, fails: str = "") -> None:
        self._tokens = list(tokens)
        self._fails = fails
        self.refreshes = 0

    async def credentials(self) -> Credentials | None:
        if self._fails == "credentials":
            raise AuthError("the login has ended")
        return self._next()

    async def refresh(self, refused: Credentials | None = None) -> Credentials | None:
        self.refreshes += 1
        if self._fails == "refresh":
            raise AuthError("the login cannot be renewed")
        return self._next()

    def _next(self) -> Credentials | None:
        token = self._tokens.pop(0)
        return None if token is None else Credentials(token, "account", AuthMethod.CHATGPT)


class Naps:
    """Waits between attempts. They take no time here."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await anyio.lowlevel.checkpoint()


async def failing(
    *outcomes: ScriptedAnswer | HttpFailure, request_max_retries: int = 0, sleep: Naps | None = None
) -> tuple[ModelError, ScriptedHttp]:
    http = ScriptedHttp(*outcomes)
    with pytest.raises(ModelError) as caught:
        await ask(client_for(http, request_max_retries=request_max_retries, sleep=sleep or Naps()))
    assert http.open == 0
    return caught.value, http


async def test_an_answer_and_how_it_was_asked_for() -> None:
    http = ScriptedHttp(FINE)
    assert await ask(client_for(http)) == EVENTS
    [request] = http.requests
    assert request.method == "POST"
    assert request.url == "http://provider.test/v1/responses"
    assert request.headers == {
        "originator": "tests",
        "user-agent": "tests/1.0",
        "accept": "text/event-stream",
        "content-type": "application/json",
        "conversation_id": "conversation-1",
        "session_id": "conversation-1",
    }
    assert request.idle_seconds == 300
    assert http.body()["input"][0]["content"][0]["text"] == "hi"
    assert http.open == 0


async def test_events_of_one_chunk_come_together() -> None:
    http = ScriptedHttp(
        answer(CREATED + text_delta("a"), text_delta("b")[:9], text_delta("b")[9:] + COMPLETED)
    )
    async with client_for(http).stream(prompt(), SETTINGS) as batches:
        sizes = [len(batch) async for batch in batches]
    assert sizes == [1, 2, 3]  # the message, complete, and the end come with the last piece


async def test_limits_come_first() -> None:
    http = ScriptedHttp(answer(COMPLETED, x_codex_primary_used_percent="12.5"))
    events = await ask(client_for(http))
    assert events[0] == RateLimits(RateLimitSnapshot(primary=RateLimitWindow(used_percent=12.5)))


async def test_chat_providers_are_asked_their_way() -> None:
    http = ScriptedHttp(answer(sse({"choices": [{"delta": {"content": "x"}}]}), b"data: [DONE]\n\n"))
    events = await ask(client_for(http, wire_api=WireApi.CHAT))
    assert isinstance(events[-1], Completed)
    assert http.requests[0].url == "http://provider.test/v1/chat/completions"
    assert "conversation_id" not in http.requests[0].headers
    assert http.body()["messages"][0] == {"role": "system", "content": "Be useful."}


@pytest.mark.parametrize("named", ["stream_options", "include_usage"])
async def test_a_provider_that_counts_no_tokens_is_asked_without_that_from_then_on(named: str) -> None:
    done = answer(sse({"choices": [{"delta": {"content": "x"}}]}), b"data: [DONE]\n\n")
    http = ScriptedHttp(refused(422, {"detail": [{"loc": ["body", named]}]}), done, done)
    client = client_for(http, wire_api=WireApi.CHAT, request_max_retries=0)
    for _ in range(2):
        assert isinstance((await ask(client, replace(SETTINGS, live_chat=True)))[-1], Completed)
    assert ["stream_options" in http.body(n) for n in range(3)] == [True, False, False]


async def test_events_before_a_failure_are_yielded_before_it() -> None:
    failed = sse({"type": "response.failed", "response": {"error": {"message": "fell over"}}})
    http = ScriptedHttp(answer(CREATED + text_delta("par") + failed))
    events: list[ModelEvent] = []
    with pytest.raises(StreamDisconnected, match="fell over"):
        await ask(client_for(http), into=events)
    assert events == [NO_LIMITS, Created(), *text_deltas("par")]
    assert http.open == 0


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        (
            [CREATED, HttpFailure(Fault.CUT, "x")],
            "Transport error: Error while reading the server response: error decoding response body",
        ),
        (
            [CREATED, HttpFailure(Fault.IDLE, "x")],
            "idle timeout waiting for SSE (`stream_idle_timeout_ms` of the provider)",
        ),
        ([CREATED], "stream closed before response.completed"),
        ([], "stream closed before response.completed"),
        ([CREATED, COMPLETED[:-20]], "stream closed before response.completed"),
    ],
)
async def test_streams_that_break(parts: Sequence[bytes | HttpFailure], reason: str) -> None:
    error, http = await failing(answer(*parts), request_max_retries=3)
    assert str(error) == f"stream disconnected before completion: {reason}"
    assert error.retryable
    assert len(http.requests) == 1, "a stream that has begun is not asked for again here"


async def test_a_last_frame_without_its_empty_line_completes() -> None:
    assert await ask(client_for(ScriptedHttp(answer(CREATED, text_delta("a"), COMPLETED.rstrip())))) == EVENTS


async def test_requests_are_retried() -> None:
    naps = Naps()
    http = ScriptedHttp(
        refused(500), refused(429, retry_after="1"), HttpFailure(Fault.UNREACHABLE, "refused"), FINE
    )
    assert await ask(client_for(http, sleep=naps, request_max_retries=4)) == EVENTS
    assert naps.taken == pytest.approx([0.2, 1.0, 0.8])
    assert len({request.body for request in http.requests}) == 1


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (refused(500), "is failing or overloaded"),
        (refused(429), "exceeded retry limit, last status: 429"),
        (refused(503), "exceeded retry limit, last status: 503"),
        (HttpFailure(Fault.UNREACHABLE, "Connection refused"), "No connection to"),
        (HttpFailure(Fault.NO_ANSWER, "closed"), "No connection to"),
    ],
)
async def test_retries_end(outcome: ScriptedAnswer | HttpFailure, said: str) -> None:
    naps = Naps()
    error, http = await failing(*[outcome] * 3, request_max_retries=2, sleep=naps)
    assert said in str(error)
    assert error.retryable
    assert len(http.requests) == 3
    assert len(naps.taken) == 2


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (refused(400, {"error": {}}), "unexpected status 400"),
        (refused(403), "unexpected status 403"),
        (refused(404), "unexpected status 404"),
        (refused(302, location="http://elsewhere.test/"), "unexpected status 302"),
        (refused(401), "last status: 401"),
        (refused(200, {"no": "stream"}), "instead of an event stream"),
        (HttpFailure(Fault.UNTRUSTED, "certificate"), "No connection to"),
    ],
)
async def test_what_would_not_change_is_not_retried(outcome: ScriptedAnswer | HttpFailure, said: str) -> None:
    error, http = await failing(outcome, request_max_retries=4)
    assert said in str(error)
    assert not error.retryable
    assert len(http.requests) == 1


async def test_waiting_for_headers_is_for_the_turn_to_repeat() -> None:
    error, http = await failing(HttpFailure(Fault.HEADERS_LATE, "late"), request_max_retries=4)
    assert "did not begin to answer in time" in str(error)
    assert error.retryable
    assert len(http.requests) == 1


async def test_a_connection_that_was_closed_meanwhile_uses_no_retry() -> None:
    stale = HttpFailure(Fault.NO_ANSWER, "closed", reused_connection=True)
    http = ScriptedHttp(stale, FINE)
    assert await ask(client_for(http)) == EVENTS
    error, http = await failing(stale, stale)
    assert "No connection to" in str(error)


async def test_errors_show_no_secret_and_no_query() -> None:
    http = ScriptedHttp(refused(400, {"error": {"message": "key key-1 is odd"}}))
    with pytest.raises(UnexpectedStatus) as caught:
        await ask(client_for(http, env={"KEY": "key-1"}, env_key="KEY"))
    assert "key-1" not in str(caught.value)
    quoted = {"error": {"message": "odd: plain-1, plain-2, password=plain-3", "code": "x"}}
    http = ScriptedHttp(refused(400, quoted))
    with pytest.raises(UnexpectedStatus, match="odd: ") as caught:
        await ask(client_for(http, http_headers={"X-Api-Key": "plain-1"}, query_params={"sig": "plain-2"}))
    assert "plain-" not in str(caught.value)
    http = ScriptedHttp(HttpFailure(Fault.UNREACHABLE, "Connection refused"))
    with pytest.raises(ModelError, match="No connection to") as unreached:
        await ask(client_for(http, query_params={"key": "key-1"}))
    assert "http://provider.test: Connection refused" in str(unreached.value)
    assert "key-1" not in str(unreached.value)
    assert "key-1" not in repr(http.requests)


async def test_a_missing_key_sends_nothing() -> None:
    http = ScriptedHttp()
    with pytest.raises(ModelError, match="Missing environment variable"):
        await ask(client_for(http, env_key="KEY"))
    assert http.requests == []


async def test_a_refused_login_is_renewed_once() -> None:
    http, login = ScriptedHttp(refused(401), FINE), Login("old", "new")
    assert await ask(client_for(http, login=login, requires_openai_auth=True)) == EVENTS
    assert [request.headers["authorization"] for request in http.requests] == ["Bearer old", "Bearer new"]
    assert http.requests[1].headers["chatgpt-account-id"] == "account"
    http, login = ScriptedHttp(refused(401), refused(401)), Login("old", "new", "newest")
    with pytest.raises(Unauthorized):
        await ask(client_for(http, login=login, requires_openai_auth=True, request_max_retries=4))
    assert login.refreshes == 1


@pytest.mark.parametrize("login", [Login("old", None), Login("old", fails="refresh")])
async def test_a_login_that_cannot_be_renewed(login: Login) -> None:
    http = ScriptedHttp(refused(401))
    with pytest.raises(ModelError):
        await ask(client_for(http, login=login, requires_openai_auth=True))
    assert len(http.requests) == 1


async def test_a_login_that_has_ended_sends_nothing() -> None:
    http = ScriptedHttp()
    with pytest.raises(ModelError, match="the login has ended"):
        await ask(client_for(http, login=Login(fails="credentials"), requires_openai_auth=True))


async def test_where_nobody_is_logged_in_the_provider_is_not_asked() -> None:
    http = ScriptedHttp()
    with pytest.raises(Unauthorized, match="Nobody is logged in; set OPENAI_API_KEY"):
        await ask(client_for(http, login=Login(None), requires_openai_auth=True))
    assert http.requests == []


async def test_a_refused_key_is_named_by_its_source_and_not_shown() -> None:
    client = client_for(ScriptedHttp(refused(401)), env={"MOCK_KEY": "sk-secret"}, env_key="MOCK_KEY")
    with pytest.raises(Unauthorized) as caught:
        await ask(client)
    assert str(caught.value) == (
        "unexpected status 401 Unauthorized: "
        "The provider `mock` refused the key in MOCK_KEY; replace it by one that is valid there."
    )


async def test_a_key_that_is_not_configured_is_told_beside_the_text() -> None:
    """Clients of the conversation API compare the text itself."""
    with pytest.raises(Unauthorized) as caught:
        await ask(client_for(ScriptedHttp(refused(401))))
    assert str(caught.value) == "exceeded retry limit, last status: 401 Unauthorized"
    assert "`env_key` in [model_providers.mock]" in (turn_error(caught.value).details or "")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"error": {"message": "The model `some-model` does not exist.", "type": "NotFoundError"}}),
        (404, {"error": {"message": "no", "code": "model_not_found"}}),
        (404, {"error": {"message": "model 'some-model' not found, try pulling it first"}}),
        (400, {"error": {"message": "some-model is not a valid model ID", "code": 400}}),
        (400, {"detail": "The 'some-model' model is not supported when using a ChatGPT account."}),
    ],
)
async def test_an_unknown_model_is_told_as_such(status: int, body: Json) -> None:
    with pytest.raises(ModelError, match="does not offer the model") as caught:
        await ask(client_for(ScriptedHttp(refused(status, body))))
    assert str(caught.value).startswith(f"unexpected status {status} ")
    assert str(caught.value).endswith(
        ". The provider `mock` does not offer the model `some-model`; set `model` to one that it offers."
    )


async def test_an_address_without_a_version_at_which_nothing_is_served_is_named() -> None:
    named = "http://provider.test/responses"
    with pytest.raises(ModelError, match="404 Not Found") as caught:
        await ask(client_for(ScriptedHttp(refused(404, {})), base_url="http://me:pass@provider.test"))
    assert f"Nothing is served at {named}; see `base_url` of the provider `mock`" in str(caught.value)
    assert "pass" not in str(caught.value)
    with pytest.raises(ModelError, match="404 Not Found") as caught:
        await ask(client_for(ScriptedHttp(refused(404, {}))))
    assert "base_url" not in str(caught.value)


async def test_a_login_is_not_shown_to_other_providers() -> None:
    http = ScriptedHttp(FINE)
    await ask(client_for(http, login=Login("secret")))
    assert "authorization" not in http.requests[0].headers


async def test_a_key_of_its_own_is_not_renewed() -> None:
    http, login = ScriptedHttp(refused(401)), Login("old", "new")
    with pytest.raises(Unauthorized):
        await ask(client_for(http, login=login, requires_openai_auth=True, experimental_bearer_token="own"))
    assert login.refreshes == 0


async def test_leaving_early_closes_the_answer() -> None:
    http = ScriptedHttp(answer(CREATED, anyio.Event()))
    async with client_for(http).stream(prompt(), SETTINGS) as batches:
        await anext(aiter(batches))
        assert http.open == 1
    assert http.open == 0


async def test_cancelling_ends_a_wait_between_attempts() -> None:
    http = ScriptedHttp(refused(429, retry_after="100"))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(ask, client_for(http, request_max_retries=1))
            await anyio.wait_all_tasks_blocked()
            assert len(http.requests) == 1
            group.cancel_scope.cancel()


async def test_a_providers_models() -> None:
    async def listed(outcome: ScriptedAnswer | HttpFailure, **fields: str) -> tuple[str, ...] | ModelsUnknown:
        found = await Discovery(
            provider_config(**fields), ScriptedHttp(outcome), env={}, identity=IDENTITY
        ).ask()
        return found.names if isinstance(found, ServedModels) else found

    assert await listed(refused(200, {"data": [{"id": "a"}, {"slug": "b"}, {}]})) == ("a", "b")
    assert await listed(refused(200, {"models": [{"name": "c"}]})) == ("c",)
    assert await listed(refused(404)) == ModelsUnknown("unexpected status 404", 404)
    assert await listed(HttpFailure(Fault.UNREACHABLE, "Connection refused")) == ModelsUnknown(
        "Connection refused", unreachable=True
    )
    for odd in (b"<html>", b"{}", b"[]", b'{"data": 3}', b"x" * 5_000_000):
        assert isinstance(await listed(refused(200, odd)), ModelsUnknown)
    assert isinstance(await listed(FINE, env_key="ABSENT"), ModelsUnknown)
