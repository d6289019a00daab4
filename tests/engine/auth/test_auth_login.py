"""A browser login from its address to the stored tokens, and every other way in which it may end."""

import json
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest

from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.browser import CANCELLED, Granted, NotGranted, page, read_callback
from app_server.engine.auth.credentials import AuthMethod, Credentials, LoginOutcome, read_auth
from app_server.engine.auth.login import LoginFlow, open_login
from app_server.engine.config.config_values import LoginSettings
from app_server.engine.support.engine_errors import AuthError
from tests.engine.auth.oauth_issuer import ScriptedIssuer


class Attempt:
    """Running login flow, and the browser of the user."""

    def __init__(self, flow: LoginFlow) -> None:
        self.flow = flow
        self.query = {key: values[0] for key, values in parse_qs(urlsplit(flow.auth_url).query).items()}
        self.outcome: LoginOutcome | None = None

    async def run(self) -> None:
        with anyio.fail_after(10):
            self.outcome = await self.flow.run_login()

    @property
    def error(self) -> str:
        assert self.outcome is not None
        assert not self.outcome.success
        return self.outcome.error or ""

    async def visit(
        self, path: str, query: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        async with httpx2.AsyncClient(trust_env=False) as browser:
            url = f"http://127.0.0.1:{self.flow.port}{path}"
            return await browser.get(url, params=query, headers=headers)

    async def come_back(self, **query: str) -> httpx2.Response:
        """Request the address to which the issuer's last page redirects the browser."""
        return await self.visit("/auth/callback", {"state": self.query["state"], "code": "the-code"} | query)


async def opened(auth: AuthManager, *ports: int) -> LoginFlow:
    return await open_login(auth, random=secrets.token_bytes, ports=ports or (0,))


@asynccontextmanager
async def attempt(auth: AuthManager) -> AsyncIterator[Attempt]:
    """Run a login until its end."""
    one = Attempt(await opened(auth))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.run)
        yield one


async def test_a_login(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    async with attempt(auth) as one:
        issuer.challenge = one.query["code_challenge"]
        response = await one.come_back()
    assert response.status_code == 200
    assert "You are logged in" in response.text
    assert one.outcome == LoginOutcome(True)
    assert await auth.credentials() == Credentials("access-1", "acct-1", AuthMethod.CHATGPT)
    (exchange,) = issuer.fields("authorization_code")
    assert exchange["code"] == "the-code"
    assert exchange["redirect_uri"] == f"http://localhost:{one.flow.port}/auth/callback"
    (trade,) = issuer.fields("token-exchange")
    assert trade["requested_token"] == "openai-api-key"


async def test_the_address_for_the_browser(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    auth.settings = LoginSettings(workspace_id="acct-1")
    one = Attempt(await opened(auth))
    await one.flow.close()
    assert one.flow.auth_url.startswith(f"{issuer.url}/oauth/authorize?response_type=code&client_id=app_")
    assert "+" not in one.flow.auth_url
    challenge, state = one.query.pop("code_challenge"), one.query.pop("state")
    assert (len(challenge), len(state)) == (43, 43)
    assert one.query == {
        "response_type": "code",
        "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
        "redirect_uri": f"http://localhost:{one.flow.port}/auth/callback",
        "scope": "openid profile email offline_access",
        "code_challenge_method": "S256",
        "id_token_add_organizations": "true",
        "codex_cli_simplified_flow": "true",
        "originator": "codex_cli_rs",
        "allowed_workspace_id": "acct-1",
    }


async def test_an_api_key_that_the_issuer_gives_is_stored(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    issuer.api_key = (200, {"access_token": "sk-exchanged"})
    async with attempt(auth) as one:
        await one.come_back()
    raw = json.loads((auth.home / "auth.json").read_text())
    assert (raw["OPENAI_API_KEY"], raw["tokens"]["account_id"]) == ("sk-exchanged", "acct-1")


async def test_a_wrong_state_leaves_the_login_waiting(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    async with attempt(auth) as one:
        assert (await one.come_back(state="guess")).status_code == 400
        assert (await one.come_back(state="guess", error="access_denied")).status_code == 400
        assert (await one.come_back(code="")).status_code == 400
        assert (await one.visit("/")).status_code == 404
        assert issuer.requests == []
        assert one.outcome is None
        assert (await one.come_back()).status_code == 200
    assert one.outcome == LoginOutcome(True)


async def test_a_refusal_by_the_user_ends_it(auth: AuthManager) -> None:
    async with attempt(auth) as one:
        await one.come_back(error="access_denied")
    assert one.outcome == LoginOutcome(False, "the login was refused: access_denied")
    assert read_auth(auth.home) is None


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((400, {"error": "invalid_request"}), "refused the login code (status 400, invalid_request)"),
        ((500, b"the-code"), "refused the login code (status 500)"),
        ((200, {"access_token": "a"}), "without the tokens of a login"),
        ((200, b"[]"), "without the tokens of a login"),
    ],
)
async def test_a_failed_exchange_ends_it(
    auth: AuthManager, issuer: ScriptedIssuer, answer: tuple[int, object], problem: str
) -> None:
    issuer.login = answer
    async with attempt(auth) as one:
        response = await one.come_back()
    assert response.status_code == 502
    assert problem in one.error
    assert "the-code" not in one.error + response.text


async def test_a_login_of_another_workspace_is_not_stored(auth: AuthManager) -> None:
    auth.settings = LoginSettings(workspace_id="acct-2")
    async with attempt(auth) as one:
        await one.come_back()
    assert "forced_chatgpt_workspace_id" in one.error
    assert read_auth(auth.home) is None


async def test_cancelling_during_the_exchange_stores_nothing(
    auth: AuthManager, issuer: ScriptedIssuer
) -> None:
    issuer.gate.clear()
    async with attempt(auth) as one, anyio.create_task_group() as tasks:
        tasks.start_soon(tolerant_visit, one)
        await issuer.until_asked()
        one.flow.cancel()
    issuer.gate.set()
    assert one.outcome == LoginOutcome(False, "the login was cancelled")
    assert read_auth(auth.home) is None


async def test_a_second_callback_does_not_spend_the_code_twice(
    auth: AuthManager, issuer: ScriptedIssuer
) -> None:
    issuer.gate.clear()
    async with attempt(auth) as one, anyio.create_task_group() as tasks:
        tasks.start_soon(tolerant_visit, one)
        await issuer.until_asked()
        assert (await one.come_back()).status_code == 400
        issuer.gate.set()
    assert one.outcome == LoginOutcome(True)
    assert len(issuer.fields("authorization_code")) == 1


async def test_another_program_may_ask_for_the_port(auth: AuthManager) -> None:
    async with attempt(auth) as one:
        assert (await one.visit("/cancel", headers={"Sec-Fetch-Mode": "no-cors"})).status_code == 404
        assert one.outcome is None
        assert (await one.visit("/cancel")).status_code == 200
    assert one.outcome == LoginOutcome(False, "the login was cancelled")


async def test_a_login_that_nobody_finishes_ends(auth: AuthManager) -> None:
    flow = await opened(auth)
    assert await flow.run_login(limit_seconds=0) == LoginOutcome(False, "the login was not finished in time")


async def test_idle_and_broken_connections_do_not_stand_in_the_way(auth: AuthManager) -> None:
    async with attempt(auth) as one:
        idle, broken, long = [await anyio.connect_tcp("127.0.0.1", one.flow.port) for _ in range(3)]
        await broken.send(b"GET /auth/call")
        await broken.aclose()
        await long.send(b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000)
        assert (await long.receive()).startswith(b"HTTP/1.1 431 ")
        assert (await one.come_back()).status_code == 200
        await idle.aclose()
        await long.aclose()
    assert one.outcome == LoginOutcome(True)


async def test_a_taken_port_is_passed_over(auth: AuthManager) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flow = await opened(auth, port, 0)
        assert flow.port != port
        await flow.close()
        with pytest.raises(AuthError, match="no port for the login is free"):
            await opened(auth, port)


async def test_only_the_loopback_address_is_bound(auth: AuthManager) -> None:
    flow = await opened(auth)
    # This is another address of the same machine. A listener on all addresses would answer.
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp("127.0.0.2", flow.port)
    await flow.close()


async def test_settings_may_forbid_it(auth: AuthManager) -> None:
    auth.settings = LoginSettings(forced_method="api")
    with pytest.raises(AuthError, match="use API key login"):
        await opened(auth)


async def tolerant_visit(one: Attempt) -> None:
    """Visit like a browser, and tolerate that the login's server is gone."""
    try:
        await one.come_back()
    except httpx2.HTTPError:
        pass


@pytest.mark.parametrize(
    ("head", "ends"),
    [
        ("GET /auth/callback?code=c&state=s HTTP/1.1", None),
        ("GET /auth/callback?error=access_denied&state=s HTTP/1.1", "the login was refused: access_denied"),
        ("GET /auth/callback?error=%3Cb%3E&state=s HTTP/1.1", "the login was refused: unknown reason"),
        ("GET /cancel HTTP/1.1", CANCELLED),
    ],
)
def test_login_callback_requests_are_parsed(head: str, ends: str | None) -> None:
    for host in (
        b"Host: localhost:1455",
        b"host:127.0.0.1:1457",
        b"Host: [::1]",
        b"Accept: */*\r\nHost: LOCALHOST",
    ):
        found = read_callback(head.encode() + b"\r\n" + host + b"\r\n\r\n", "s")
        assert found == Granted("c") if ends is None else isinstance(found, NotGranted) and found.ends == ends


@pytest.mark.parametrize(
    "headers",
    [
        b"",
        b"Host: evil.example:1455",
        b"Host: localhost.evil.example",
        b"Host: evil.example\r\nHost: localhost",
        b"Host: localhost\r\nHost: evil.example",
        b"Host: localhost:1455@evil.example",
        b"Host:",
        b"X-Host: localhost",
    ],
)
@pytest.mark.parametrize("target", [b"/cancel", b"/auth/callback?code=c&state=s"])
def test_requests_to_another_host_decide_nothing(target: bytes, headers: bytes) -> None:
    meaning = read_callback(b"GET " + target + b" HTTP/1.1\r\n" + headers + b"\r\n\r\n", "s")
    assert isinstance(meaning, NotGranted)
    assert (meaning.status, meaning.ends) == (HTTPStatus.BAD_REQUEST, None)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /auth/callback?code=c&state=t HTTP/1.1", 400),
        (b"GET /auth/callback?code=c HTTP/1.1", 400),
        (b"GET /auth/callback?state=s HTTP/1.1", 400),
        (b"GET /auth/callback?state=%ff HTTP/1.1", 400),
        (b"GET /auth/callback?code=c&state=t&state=s HTTP/1.1", 400),
        (b"GET /auth/callback?code=c&state=s&state=s HTTP/1.1", 400),
        (b"GET /auth/callback?code=c&code=d&state=s HTTP/1.1", 400),
        (b"GET /auth/callback?" + b"a=1&" * 100 + b"code=c&state=s HTTP/1.1", 400),
        (b"POST /auth/callback?code=c&state=s HTTP/1.1", 405),
        (b"GET /favicon.ico HTTP/1.1", 404),
        (b"GET //[ HTTP/1.1", 400),
        (b"\x16\x03\x01 tls", 400),
        (b"", 400),
    ],
)
def test_other_requests_to_the_login_callback_are_ignored(head: bytes, status: int) -> None:
    meaning = read_callback(head + b"\r\nHost: localhost\r\n\r\n", "s")
    assert isinstance(meaning, NotGranted)
    assert (meaning.status, meaning.ends) == (status, None)


def test_a_page_escapes_what_it_shows() -> None:
    assert b"<script>" not in page(HTTPStatus.OK, "<script>")
