"""The model client over real sockets: the effects of HTTP itself on an answer."""

import gzip
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from app_server.cli.demo.scripted_model import LAST_CHUNK as END
from app_server.cli.demo.scripted_model import chunk
from app_server.engine.http.interface import Fault, HttpFailure, HttpRequest
from app_server.engine.http.lazy_http import LazyProviderHttp
from app_server.engine.http.pool import MAX_IDLE_CONNECTIONS
from app_server.engine.model.model_client import ModelClient, Pacing
from app_server.engine.model.model_errors import (
    ResponseTooLarge,
    UnexpectedStatus,
)
from app_server.engine.model.prompt import Completed, Created, ModelEvent, OutputItemDone
from app_server.engine.support.engine_errors import ModelError, StreamDisconnected
from app_server_protocol.encoding import Json
from app_server_protocol.responses import MessageItem, OutputText
from tests.engine.model.provider_server import ProviderServer, Then, head, provider_server, whole
from tests.engine.model.scripted import COMPLETED, CREATED, IDENTITY, ask, provider_config, text_delta
from tests.support.loading import modules_loaded_by
from tests.support.waiting import until
from tests.support.written_texts import text_deltas

ANSWER = CREATED + text_delta("grüße 😀") + COMPLETED
WHOLE_MESSAGE = OutputItemDone(MessageItem(role="assistant", content=(OutputText(text="grüße 😀"),)))
EVENTS: list[ModelEvent] = [Created(), *text_deltas("grüße 😀"), WHOLE_MESSAGE, Completed(None)]


@pytest.fixture
async def http() -> AsyncIterator[LazyProviderHttp]:
    shared = LazyProviderHttp({})
    yield shared
    await shared.aclose()


def client_of(provider: ProviderServer, http: LazyProviderHttp, **fields: Json) -> ModelClient:
    config = provider_config(**{"base_url": provider.url, **fields})
    return ModelClient(config, http, env={}, identity=IDENTITY, pacing=Pacing(lambda: 0.0))


async def asked(provider: ProviderServer, http: LazyProviderHttp, **fields: Json) -> list[ModelEvent]:
    with anyio.fail_after(10):
        return (await ask(client_of(provider, http, **fields)))[1:]


async def test_an_answer_over_a_connection_that_is_used_again(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    for _ in range(3):
        provider.answer(head(), chunk(ANSWER), END)
        assert await asked(provider, http) == EVENTS
    assert [request.connection for request in provider.asked] == [1, 1, 1]
    assert provider.asked[0].line == "POST /v1/responses HTTP/1.1"
    assert provider.asked[0].headers["user-agent"] == "tests/1.0"
    assert provider.asked[0].headers["accept-encoding"] == "identity"


async def test_a_compressed_answer_that_is_none(provider: ProviderServer, http: LazyProviderHttp) -> None:
    provider.answer(head(content_encoding="gzip"), chunk(ANSWER), END)
    with pytest.raises(StreamDisconnected, match="Transport error"):
        await asked(provider, http)


async def test_an_answer_that_ends_with_its_connection(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(head(transfer_encoding="", connection="close"), ANSWER, Then.HANG_UP)
    assert await asked(provider, http) == EVENTS


async def test_a_connection_cut_in_the_middle(provider: ProviderServer, http: LazyProviderHttp) -> None:
    provider.answer(head(), chunk(CREATED), Then.HANG_UP)
    with pytest.raises(StreamDisconnected, match="Error while reading the server response"):
        await asked(provider, http)


async def test_an_answer_that_is_no_http(provider: ProviderServer, http: LazyProviderHttp) -> None:
    provider.answer(b"220 smtp.test ready\r\n\r\n", Then.HANG_UP)
    with pytest.raises(ModelError, match="No connection to") as caught:
        await asked(provider, http)
    assert caught.value.retryable


async def test_a_stream_that_falls_silent(provider: ProviderServer, http: LazyProviderHttp) -> None:
    provider.answer(head(), chunk(CREATED), Then.HOLD)
    with pytest.raises(StreamDisconnected, match="idle timeout waiting for SSE"):
        await asked(provider, http, stream_idle_timeout_ms=100)


async def test_waiting_for_response_headers_times_out(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(Then.HOLD)
    with pytest.raises(ModelError, match="did not begin to answer in time"):
        await asked(provider, http, stream_idle_timeout_ms=100)


async def test_headers_have_a_time_limit_of_their_own(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(b"HTTP/1.1 200 X\r\n", Then.HOLD)
    request = HttpRequest(
        method="POST", url=provider.url, headers={}, body=b"{}", idle_seconds=60, header_seconds=0.1
    )
    with anyio.fail_after(10), pytest.raises(HttpFailure) as caught:
        async with http.send(request):
            pass
    assert caught.value.fault is Fault.HEADERS_LATE


async def test_completion_needs_no_end_of_the_response(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(head(), chunk(ANSWER), Then.HOLD)
    assert await asked(provider, http) == EVENTS


async def test_redirects_are_not_followed(provider: ProviderServer, http: LazyProviderHttp) -> None:
    provider.answer(*whole(302, b"", location=f"{provider.url}/elsewhere"))
    with pytest.raises(UnexpectedStatus, match="302 Found"):
        await asked(provider, http)
    assert len(provider.asked) == 1


async def test_an_error_body_without_end_is_cut(provider: ProviderServer, http: LazyProviderHttp) -> None:
    provider.answer(head(400), *[chunk(b"x" * 65_536)] * 3, Then.HOLD)
    with pytest.raises(UnexpectedStatus, match="400 Bad Request: xxx"):
        await asked(provider, http)


async def test_a_connection_closed_between_requests(provider: ProviderServer, http: LazyProviderHttp) -> None:
    provider.answer(head(), chunk(ANSWER), END)
    await asked(provider, http)
    provider.answer(Then.HANG_UP)  # like a server that closes at this very moment
    provider.answer(head(), chunk(ANSWER), END)
    assert await asked(provider, http) == EVENTS
    assert [request.connection for request in provider.asked] == [1, 1, 2]


async def test_a_new_connection_that_is_closed_is_a_failure(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(Then.HANG_UP)
    with pytest.raises(ModelError, match="No connection to"):
        await asked(provider, http)
    assert len(provider.asked) == 1


async def test_a_refused_connection_is_an_error(http: LazyProviderHttp) -> None:
    async with provider_server() as gone:
        pass
    with pytest.raises(ModelError, match="Connection refused"):
        await asked(gone, http)


@pytest.mark.parametrize("base_url", ["nonsense://x", "http://", "http://[::1", "http://h:99999/v1"])
async def test_an_address_that_leads_nowhere(
    base_url: str, provider: ProviderServer, http: LazyProviderHttp
) -> None:
    with pytest.raises(ModelError, match="No connection to"):
        await asked(provider, http, base_url=base_url)


async def test_a_proxy_is_used(provider: ProviderServer) -> None:
    http = LazyProviderHttp({"http_proxy": provider.url.removesuffix("/v1")})
    provider.answer(head(), chunk(ANSWER), END)
    assert await asked(provider, http, base_url="http://provider.test/v1") == EVENTS
    assert provider.asked[0].line == "POST http://provider.test/v1/responses HTTP/1.1"
    await http.aclose()


async def test_only_the_given_environment_counts(
    provider: ProviderServer, http: LazyProviderHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    provider.answer(head(), chunk(ANSWER), END)
    assert await asked(provider, http) == EVENTS


async def test_addresses_are_not_logged(
    provider: ProviderServer, http: LazyProviderHttp, caplog: pytest.LogCaptureFixture
) -> None:
    provider.answer(head(), chunk(ANSWER), END)
    with caplog.at_level(logging.INFO):
        await asked(provider, http, query_params={"key": "secret"})
    assert provider.asked[0].line == "POST /v1/responses?key=secret HTTP/1.1"
    assert "secret" not in caplog.text


async def test_warming_up_makes_no_connection(provider: ProviderServer, http: LazyProviderHttp) -> None:
    await http.warm_up()
    assert provider.asked == []
    with pytest.raises(ModelError):
        await asked(provider, http)


def test_http_is_imported_late() -> None:
    assert modules_loaded_by("import app_server.engine.model.model_client") & {"httpx2", "httpcore2"} == set()


async def test_requests_at_once_have_a_connection_each(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    at_once = MAX_IDLE_CONNECTIONS + 5
    for _ in range(at_once):
        provider.answer(head(), chunk(CREATED), Then.HOLD)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(at_once):
                group.start_soon(ask, client_of(provider, http))
            await until(lambda: len(provider.asked) == at_once)
            group.cancel_scope.cancel()
    assert sorted(request.connection for request in provider.asked) == list(range(1, at_once + 1))


async def test_a_connection_that_was_given_up_is_not_used_again(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(head(), chunk(CREATED), Then.HANG_UP)
    with pytest.raises(StreamDisconnected):
        await asked(provider, http)
    provider.answer(head(), chunk(ANSWER), END)
    assert await asked(provider, http) == EVENTS
    assert [request.connection for request in provider.asked] == [1, 2]


async def test_one_encoding_that_nobody_asked_for_is_refused_once(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(head(content_encoding="gzip, gzip"), chunk(gzip.compress(gzip.compress(ANSWER))), END)
    with pytest.raises(ModelError, match="encoded as gzip, gzip"):
        await asked(provider, http, request_max_retries=3, stream_max_retries=3)
    assert len(provider.asked) == 1


async def test_an_answer_that_expands_too_much_is_given_up(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(head(content_encoding="gzip"), chunk(gzip.compress(b": still here\n\n" * 4_000_000)), END)
    with pytest.raises(ResponseTooLarge, match="more than 100 times as large"):
        await asked(provider, http)
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    ("encoding", "body", "told"),
    [
        ("gzip", gzip.compress(b'{"error":{"message":"boom-7"}}', mtime=0), "boom-7"),
        ("gzip", gzip.compress(b"x" * 40_000_000, mtime=0), "xxx"),
        ("gzip, gzip", b"", "encoded as gzip, gzip, which nobody asked for"),
        ("deflate", b"\xff\xff\xff\xff", "400 Bad Request"),
    ],
    ids=["compressed", "expanding", "twice", "damaged"],
)
async def test_the_body_of_a_refusal_is_read_within_the_same_bounds(
    provider: ProviderServer, http: LazyProviderHttp, encoding: str, body: bytes, told: str
) -> None:
    provider.answer(*whole(400, body, content_encoding=encoding))
    with pytest.raises(UnexpectedStatus, match=told):
        await asked(provider, http)


async def test_only_one_encoding_is_asked_for_whatever_is_configured(
    provider: ProviderServer, http: LazyProviderHttp
) -> None:
    provider.answer(head(), chunk(ANSWER), END)
    await asked(provider, http, http_headers={"Accept-Encoding": "gzip", "X": "1"})
    assert provider.asked[0].headers["accept-encoding"] == "identity"
    assert provider.asked[0].headers["x"] == "1"


async def test_unreadable_certificates_are_reported(provider: ProviderServer, tmp_path: Path) -> None:
    http = LazyProviderHttp({"SSL_CERT_FILE": str(tmp_path / "none.pem")})
    with pytest.raises(ModelError, match="SSL_CERT_FILE names no file") as caught:
        await asked(provider, http, base_url="https://127.0.0.1:9/v1")
    assert not caught.value.retryable
    await http.aclose()
