"""The HTTP client of MCP servers, logins and telemetry over real sockets: httpx2 within the bounds of all requests."""

import base64
import gzip
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

import anyio
import pytest

from app_server.cli.demo.scripted_model import LAST_CHUNK as END
from app_server.cli.demo.scripted_model import chunk
from app_server.engine.http.http_client import HttpClient
from app_server.engine.http.interface import Fault, HttpFailure, HttpRequest
from tests.engine.model.provider_server import ProviderServer, Then, head, provider_server, whole
from tests.support.loading import modules_loaded_by


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    opened = HttpClient({})
    yield opened
    await opened.aclose()


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with provider_server() as running:
        yield running


def request_to(
    url: str,
    method: str = "POST",
    body: bytes | None = b"{}",
    *,
    header_seconds: float = 5,
    idle_seconds: float = 5,
    headers: Mapping[str, str] | None = None,
) -> HttpRequest:
    return HttpRequest(
        method=method,
        url=url,
        headers=headers or {},
        body=body,
        idle_seconds=idle_seconds,
        header_seconds=header_seconds,
    )


async def asked(client: HttpClient, request: HttpRequest) -> tuple[int, Mapping[str, str], bytes]:
    body = bytearray()
    with anyio.fail_after(10):
        async with client.send(request) as response, aclosing(response.chunks()) as chunks:
            async for piece in chunks:
                body += piece
            return response.status, response.headers, bytes(body)


async def fault_of(client: HttpClient, request: HttpRequest) -> HttpFailure:
    with pytest.raises(HttpFailure) as caught:
        await asked(client, request)
    return caught.value


async def test_an_answer_over_a_connection_that_is_used_again(
    server: ProviderServer, client: HttpClient
) -> None:
    for _ in range(3):
        server.answer(*whole(200, b"hello", x="1"))
        status, headers, body = await asked(
            client, request_to(f"{server.url}/mcp?a=b%20c", headers={"accept": "x/y"})
        )
        assert (status, headers["x"], body) == (200, "1", b"hello")
    assert [request.connection for request in server.asked] == [1, 1, 1]
    asked_for = server.asked[0]
    assert asked_for.line == "POST /v1/mcp?a=b%20c HTTP/1.1"
    assert asked_for.headers["host"] == server.url.removeprefix("http://").removesuffix("/v1")
    assert set(asked_for.headers) == {"host", "accept", "accept-encoding", "content-length"}
    assert asked_for.headers["accept-encoding"] == "identity"


async def test_only_one_encoding_is_asked_for(server: ProviderServer, client: HttpClient) -> None:
    server.answer(*whole(200, b""))
    await asked(client, request_to(server.url, "GET", None, headers={"Accept-Encoding": "gzip"}))
    assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_no_cookie_is_kept(server: ProviderServer, client: HttpClient) -> None:
    for _ in range(2):
        server.answer(*whole(200, b"", set_cookie="session=secret; Path=/"))
        await asked(client, request_to(server.url))
    assert len(server.asked) == 2
    assert all("cookie" not in request.headers for request in server.asked)


@pytest.mark.parametrize("location", ["/elsewhere", "http://other.test/", "http://[bad", "\xff", ""])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(
    server: ProviderServer, client: HttpClient, status: int, location: str
) -> None:
    server.answer(*whole(status, b"gone", location=location))
    answer = await asked(client, request_to(server.url, headers={"authorization": "Bearer secret"}))
    assert (answer[0], answer[2]) == (status, b"gone")
    assert len(server.asked) == 1


async def test_the_name_and_the_password_of_a_url_are_sent(
    server: ProviderServer, client: HttpClient
) -> None:
    url = server.url.replace("http://", "http://me:p%40ss@")
    for headers in (None, {"Authorization": "Bearer mine"}):
        server.answer(*whole(200, b""))
        await asked(client, request_to(url, headers=headers))
    basic = "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert [request.headers["authorization"] for request in server.asked] == [basic, "Bearer mine"]
    assert "me" not in server.asked[0].headers["host"]


async def test_a_proxy_is_used_that_the_users_environment_names(
    server: ProviderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    client = HttpClient({"http_proxy": server.url.removesuffix("/v1")})
    server.answer(*whole(200, b"through"))
    assert (await asked(client, request_to("http://mcp.test/x")))[2] == b"through"
    assert server.asked[0].line == "POST http://mcp.test/x HTTP/1.1"
    await client.aclose()


@pytest.mark.parametrize(
    "url",
    [
        *("nonsense://x", "http://", "http:///x", "http://[::1", "http://h:99999/v1", "ws://h/", "/x"),
        "http://h\n.test/",
    ],
)
async def test_an_address_that_leads_nowhere(url: str, client: HttpClient) -> None:
    failure = await fault_of(client, request_to(url))
    assert failure.fault is Fault.UNTRUSTED
    assert failure.reason == "the address, the proxy or a header cannot be used"


@pytest.mark.parametrize("headers", [{"bad name": "1"}, {"näme": "1"}, {"name": "a\r\nb: c"}])
async def test_a_header_that_cannot_be_sent(
    server: ProviderServer, client: HttpClient, headers: dict[str, str]
) -> None:
    failure = await fault_of(client, request_to(server.url, headers=headers))
    assert failure.fault is Fault.UNTRUSTED
    assert server.asked == []


async def test_a_refused_connection_is_told_in_the_systems_words(client: HttpClient) -> None:
    async with provider_server() as gone:
        pass
    failure = await fault_of(client, request_to(gone.url))
    assert (failure.fault, failure.reason) == (Fault.UNREACHABLE, "Connection refused")


async def test_certificates_that_cannot_be_read_are_an_error() -> None:
    client = HttpClient({"SSL_CERT_FILE": "/none.pem"})
    failure = await fault_of(client, request_to("https://127.0.0.1:9/"))
    assert failure.fault is Fault.UNTRUSTED
    assert "SSL_CERT_FILE" in failure.reason
    await client.aclose()


async def test_a_connection_that_was_closed_meanwhile_is_told_apart(
    server: ProviderServer, client: HttpClient
) -> None:
    server.answer(Then.HANG_UP)
    failure = await fault_of(client, request_to(server.url))
    assert (failure.fault, failure.reused_connection) == (Fault.NO_ANSWER, False)
    server.answer(*whole(200, b""))
    await asked(client, request_to(server.url))
    server.answer(Then.HANG_UP)
    failure = await fault_of(client, request_to(server.url))
    assert (failure.fault, failure.reused_connection) == (Fault.NO_ANSWER, True)


async def test_the_limits_of_waiting(server: ProviderServer, client: HttpClient) -> None:
    server.answer(Then.HOLD)
    late = await fault_of(client, request_to(server.url, header_seconds=0.1, idle_seconds=60))
    server.answer(head(), chunk(b"a"), Then.HOLD)
    idle = await fault_of(client, request_to(server.url, idle_seconds=0.1))
    assert (late.fault, idle.fault) == (Fault.HEADERS_LATE, Fault.IDLE)


async def test_an_answer_that_breaks_off(server: ProviderServer, client: HttpClient) -> None:
    server.answer(head(), chunk(b"a"), Then.HANG_UP)
    assert (await fault_of(client, request_to(server.url))).fault is Fault.CUT


async def test_a_body_is_decompressed_within_bounds(server: ProviderServer, client: HttpClient) -> None:
    server.answer(head(content_encoding="gzip"), chunk(gzip.compress(b"hello")), END)
    assert (await asked(client, request_to(server.url)))[2] == b"hello"
    server.answer(head(content_encoding="gzip"), chunk(gzip.compress(bytes(64 << 20))), END)
    assert (await fault_of(client, request_to(server.url))).fault is Fault.TOO_LARGE
    server.answer(*whole(200, b"x", content_encoding="br"))
    assert (await fault_of(client, request_to(server.url))).fault is Fault.ENCODED


async def test_an_answer_that_is_left_unread_ends_at_once(server: ProviderServer, client: HttpClient) -> None:
    server.answer(head(), chunk(b"a"), Then.HOLD)
    with anyio.fail_after(10):
        async with client.send(request_to(server.url)) as response:
            chunks = response.chunks()
            assert await anext(chunks) == b"a"
            await chunks.aclose()


async def test_addresses_are_not_logged(
    server: ProviderServer, client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer(*whole(200, b""))
    with caplog.at_level(logging.DEBUG):
        await asked(
            client, request_to(f"{server.url}?key=secret", headers={"authorization": "Bearer secret"})
        )
    assert "secret" not in caplog.text


def test_providers_are_asked_without_the_client() -> None:
    """Importing it would slow down each first turn."""
    loaded = modules_loaded_by("import app_server.engine.http.http_transport")
    assert "httpcore2" in loaded
    assert loaded & {"httpx2", "http.cookiejar", "idna"} == set()
