"""Logins without a browser on this machine, and at MCP servers: where tokens come from, and what is stored of them."""

import json
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from urllib.parse import parse_qsl, urlsplit

import anyio
import httpx2
import pytest

from app_server.engine.auth import login
from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.browser import code_challenge, is_safe_url
from app_server.engine.auth.credentials import AuthMethod, Credentials, LoginOutcome, read_auth
from app_server.engine.auth.issuer import Issuer
from app_server.engine.auth.login import (
    LoginAttempt,
    LoginFlow,
    McpLogins,
    listen_for_browser,
    open_device_login,
)
from app_server.engine.auth.mcp_tokens import (
    CREDENTIALS_FILE,
    McpTokens,
    McpTokenSource,
    read_mcp_tokens,
    write_mcp_tokens,
)
from app_server.engine.auth.oauth_client import McpLoginOver, covers, find_resource, lacking_scopes
from app_server.engine.auth.oauth_http import OAuthAnswer, OAuthHttp
from app_server.engine.config.config_values import LoginSettings
from app_server.engine.config.mcp_server_settings import McpHttpTransport, McpLoginSettings
from app_server.engine.support.engine_errors import AuthError
from app_server_protocol.encoding import Json
from tests.engine.auth.oauth_issuer import NOW, ScriptedIssuer
from tests.support.protected_mcp_server import ProtectedMcpServer, protected_mcp_server


@pytest.fixture
def remote() -> Iterator[ProtectedMcpServer]:
    with protected_mcp_server() as server:
        yield server


async def open_flow(
    home: Path, remote: ProtectedMcpServer, scopes: Sequence[str] | None = None, **settings: Json
) -> LoginFlow:
    logins = McpLogins(home, OAuthHttp({}), lambda: NOW, secrets.token_bytes)
    return await logins.open_login("remote", McpHttpTransport(url=remote.mcp_url, **settings), scopes)


def asked_for(flow: LoginFlow) -> dict[str, str]:
    """Return the query of the address for the browser."""
    return dict(parse_qsl(urlsplit(flow.auth_url).query))


async def log_in(
    home: Path,
    remote: ProtectedMcpServer,
    scopes: Sequence[str] | None = None,
    settings: dict[str, Json] | None = None,
    **answer: str,
) -> LoginOutcome:
    flow = await open_flow(home, remote, scopes, **(settings or {}))
    async with ending(flow) as ended, httpx2.AsyncClient(trust_env=False) as browser:
        await browser.get(remote.browser(flow.auth_url, **answer))
    return ended[0]


@asynccontextmanager
async def ending(flow: LoginAttempt) -> AsyncIterator[list[LoginOutcome]]:
    """Run a login; after the block the list has its outcome."""
    ended: list[LoginOutcome] = []

    async def run() -> None:
        with anyio.fail_after(20):
            ended.append(await flow.run_login())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield ended


def source(home: Path, now: float = NOW) -> McpTokenSource:
    return McpTokenSource(home, OAuthHttp({}), lambda: now, anyio.Lock())


# --- discovery
@pytest.mark.parametrize("tells", [True, False])
async def test_a_login(tmp_path: Path, remote: ProtectedMcpServer, tells: bool) -> None:
    remote.tells_metadata = tells
    assert await log_in(tmp_path, remote) == LoginOutcome(True)
    stored = read_mcp_tokens(tmp_path, "remote", remote.mcp_url)
    assert stored is not None
    assert (stored.client_id, stored.scopes, stored.resource) == ("client-1", ("read",), remote.mcp_url)
    assert stored.expires_at_ms == int((NOW + 3600) * 1000)
    assert "secret" not in repr(stored)
    assert read_mcp_tokens(tmp_path, "remote", f"{remote.mcp_url}/other") is None
    assert read_mcp_tokens(tmp_path, "other", remote.mcp_url) is None


async def test_a_server_that_describes_nothing_is_its_own_authorization_server(
    tmp_path: Path, remote: ProtectedMcpServer
) -> None:
    remote.tells_metadata = False
    for path in ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"):
        remote.overrides[path] = lambda fields: (404, {})
    assert await log_in(tmp_path, remote) == LoginOutcome(True)


@pytest.mark.parametrize(
    ("resource", "server", "text"),
    [
        ({"authorization_servers": []}, {}, "names no authorization server"),
        ({"resource": "https://other.example/mcp"}, {}, "are those of another server"),
        ({"authorization_servers": ["http://other.example"]}, {}, "leads to an address that is not safe"),
        ({"authorization_servers": ["javascript:alert(1)"]}, {}, "leads to an address that is not safe"),
        ({}, {"issuer": "https://other.example"}, "are those of another one"),
        ({}, {"issuer": None}, "are those of another one"),
        ({}, {"code_challenge_methods_supported": ["plain"]}, "does not support PKCE with S256"),
        ({}, {"code_challenge_methods_supported": None}, "does not support PKCE with S256"),
        ({}, {"authorization_endpoint": "file:///etc/passwd"}, "leads to an address that is not safe"),
        ({}, {"authorization_endpoint": None}, "no logins through the browser"),
        ({}, {"token_endpoint": None}, "does not describe itself"),
        ({}, {"registration_endpoint": None}, "registers no clients"),
    ],
)
async def test_servers_that_are_not_trusted_with_a_login(
    tmp_path: Path, remote: ProtectedMcpServer, resource: Json, server: Json, text: str
) -> None:
    right = {"resource": remote.mcp_url, "authorization_servers": [remote.url]}
    remote.resource_metadata, remote.server_metadata = right | resource, server
    with pytest.raises(AuthError, match=text):
        await log_in(tmp_path, remote)


async def test_a_server_elsewhere_cannot_lead_to_this_machine(remote: ProtectedMcpServer) -> None:
    class Elsewhere(OAuthHttp):
        async def get(self, url: str, *, reads: bool = True, **others: object) -> OAuthAnswer:
            assert not reads
            return OAuthAnswer(401, {}, f'Bearer resource_metadata="{remote.url}/inside"')

    with pytest.raises(AuthError, match="not safe"):
        await find_resource(Elsewhere({}), "https://mcp.example/mcp")
    assert remote.requests == []


async def test_answers_without_a_token_are_told_without_their_content(
    tmp_path: Path, remote: ProtectedMcpServer
) -> None:
    answers: list[tuple[int, Json]] = [
        (400, {"error": "invalid_grant", "error_description": "secret-detail"}),
        (200, {"access_token": "secret token"}),
        (200, {"access_token": "secret", "token_type": "mac"}),
        (200, ["secret"]),
        (302, {}),
    ]
    for answer in answers:
        remote.overrides["/token"] = lambda fields, answer=answer: answer  # type: ignore[misc]
        outcome = await log_in(tmp_path, remote)
        assert not outcome.success
        assert "secret" not in (outcome.error or "secret")
    remote.overrides["/register"] = lambda fields: (403, {"error": "no_strangers"})
    with pytest.raises(AuthError, match=r"did not register this client \(status 403, no_strangers\)"):
        await log_in(tmp_path, remote)


async def test_a_server_that_does_not_answer_is_not_waited_for_long(
    tmp_path: Path, remote: ProtectedMcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Event()

    def wait(fields: Json) -> tuple[int, Json]:
        waits.wait(20)
        return 404, {}

    monkeypatch.setattr(login, "OPEN_SECONDS", 0.05)
    remote.overrides["/register"] = wait
    try:
        with pytest.raises(AuthError, match="not found out in time"):
            await log_in(tmp_path, remote)
    finally:
        waits.set()


async def test_an_answer_that_names_no_issuer_counts_only_where_none_was_announced(
    tmp_path: Path, remote: ProtectedMcpServer
) -> None:
    remote.server_metadata = {"authorization_response_iss_parameter_supported": True}
    outcome = await log_in(tmp_path, remote, iss="")
    assert outcome.error == "the answer comes from another authorization server"
    remote.server_metadata = {}
    assert await log_in(tmp_path, remote, iss="") == LoginOutcome(True)


@pytest.mark.parametrize(
    ("resource", "is_covered"),
    [
        ("https://a.example/mcp", True),
        ("https://a.example", True),
        ("https://a.example/", True),
        ("https://A.example:443/mcp", True),
        ("https://a.example/mc", False),
        ("https://a.example/mcp/deeper", False),
        ("http://a.example/mcp", False),
        ("https://a.example:8443/mcp", False),
        ("https://b.example/mcp", False),
    ],
)
def test_a_resource_covers_what_is_below_it(resource: str, is_covered: bool) -> None:
    assert covers(resource, "https://a.example/mcp") is is_covered


SAFE = "https://a.example https://a.example/x?y=1 http://127.0.0.1:1/ http://[::1]/ http://localhost"
UNSAFE = "http://a.example ftp://a https://u:p@a.example https:// https://a.example/#x x"


def test_addresses_for_secrets() -> None:
    assert all(map(is_safe_url, SAFE.split()))
    assert not any(map(is_safe_url, (*UNSAFE.split(), "https://a b")))


# --- clients that are registered beforehand, scopes
@pytest.mark.parametrize(
    ("methods", "in_header"),
    [
        (["client_secret_post", "client_secret_basic"], False),
        (["client_secret_post"], False),
        (["client_secret_basic"], True),
        (None, True),
    ],
)
async def test_a_client_of_the_user_is_used_and_none_registered(
    tmp_path: Path, remote: ProtectedMcpServer, methods: list[str] | None, in_header: bool
) -> None:
    remote.server_metadata = {
        "registration_endpoint": None,
        "token_endpoint_auth_methods_supported": methods,
    }
    remote.client, remote.own_resource = ("mine", "hush:1/ü"), "https://tools.example/all"
    login = McpLoginSettings(client_id="mine", client_secret="hush:1/ü")
    settings: dict[str, Json] = {"login": login, "oauth_resource": "https://tools.example/all"}
    assert await log_in(tmp_path, remote, settings=settings) == LoginOutcome(True)
    assert remote.asked("/register") == []
    assert "hush" not in repr(McpHttpTransport(url="https://x.example", login=login))
    assert await source(tmp_path, NOW + 3590).token("remote", remote.mcp_url) == "secret-access-2"
    (_, refreshed) = remote.asked("/token")
    assert refreshed.get("client_secret") == (None if in_header else "hush:1/ü")
    assert ("client_id" in refreshed, "basic" in refreshed) == (not in_header, in_header)
    assert refreshed["resource"] == "https://tools.example/all"


async def test_a_client_is_used_at_the_users_authorization_server_alone(
    tmp_path: Path, remote: ProtectedMcpServer
) -> None:
    elsewhere = McpLoginSettings(client_id="client-1", issuer="https://login.example")
    with pytest.raises(AuthError, match="another authorization server"):
        await open_flow(tmp_path, remote, login=elsewhere)
    assert remote.asked("/register") == remote.asked("/token") == []
    there = McpLoginSettings(client_id="client-1", issuer=f"{remote.url}/")
    assert await log_in(tmp_path, remote, settings={"login": there}) == LoginOutcome(True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_user_says_where_the_browser_returns(
    tmp_path: Path, remote: ProtectedMcpServer, host: str
) -> None:
    free, port = await listen_for_browser((0,))
    await free.aclose()
    for url, expected in ((f"http://{host}:{port}/back", f":{port}/back"), (f"http://{host}/", "/")):
        flow = await open_flow(tmp_path, remote, login=McpLoginSettings(callback_url=url))
        redirect = asked_for(flow)["redirect_uri"]
        assert redirect.startswith(f"http://{host}:")
        assert redirect.endswith(expected)
        async with ending(flow) as ended, httpx2.AsyncClient(trust_env=False) as browser:
            usual = f"http://{urlsplit(redirect).netloc}/auth/callback"
            assert (await browser.get(usual)).status_code == 404
            await browser.get(remote.browser(flow.auth_url))
        assert ended == [LoginOutcome(True)]


@pytest.mark.parametrize(
    "url",
    ["https://127.0.0.1/x", "http://example.org/x", "http://127.0.0.1/x?y=1", "http://127.0.0.1/cancel", "x"],
)
async def test_the_browser_returns_to_this_machine_only(
    tmp_path: Path, remote: ProtectedMcpServer, url: str
) -> None:
    with pytest.raises(AuthError, match=r"oauth\.callback_url"):
        await open_flow(tmp_path, remote, login=McpLoginSettings(callback_url=url))
    assert remote.requests == []


@pytest.mark.parametrize(
    ("offered", "scopes", "asked"),
    [
        (["offline_access"], ["a"], "a offline_access"),
        (["a", "offline_access"], None, "read offline_access"),
        (["offline_access"], ["offline_access", "a"], "offline_access a"),
        (["a"], ["a"], "a"),
        (["offline_access"], [], None),
    ],
)
async def test_refresh_tokens_are_asked_for_where_that_is_offered(
    tmp_path: Path,
    remote: ProtectedMcpServer,
    offered: list[str],
    scopes: list[str] | None,
    asked: str | None,
) -> None:
    remote.server_metadata = {"scopes_supported": offered}
    flow = await open_flow(tmp_path, remote, scopes)
    assert asked_for(flow).get("scope") == asked
    await flow.close()


@pytest.mark.parametrize(
    ("challenge", "lacking"),
    [
        ('Bearer error="insufficient_scope", scope="write files:read"', ("write", "files:read")),
        ("Bearer scope=x, error=insufficient_scope", ()),
        ('Bearer error="insufficient_scope", scope="a;rm $(x) b"', ("b",)),
        ('Bearer error="invalid_token", scope="a"', None),
        ('Bearer my_error="insufficient_scope"', None),
        ("", None),
    ],
)
def test_scopes_that_a_token_lacks(challenge: str, lacking: tuple[str, ...] | None) -> None:
    assert lacking_scopes(challenge) == lacking


# --- tokens
async def test_a_token_is_refreshed_before_it_expires(tmp_path: Path, remote: ProtectedMcpServer) -> None:
    await log_in(tmp_path, remote)
    url = remote.mcp_url
    assert await source(tmp_path).token("remote", url) == "secret-access-1"
    late = source(tmp_path, NOW + 3590)
    found: list[str | None] = []

    async def ask() -> None:
        found.append(await late.token("remote", url))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert found == ["secret-access-2"] * 5
    assert len(remote.asked("/token")) == 2
    assert await late.renewed("remote", url, "secret-access-1") == "secret-access-2"
    assert await late.token("other", url) is None


async def test_a_refresh_that_fails_keeps_what_is_still_good(
    tmp_path: Path, remote: ProtectedMcpServer
) -> None:
    await log_in(tmp_path, remote)
    remote.overrides["/token"] = lambda fields: (500, {})
    assert await source(tmp_path, NOW + 3590).token("remote", remote.mcp_url) == "secret-access-1"
    with pytest.raises(AuthError, match="status 500"):
        await source(tmp_path, NOW + 3601).token("remote", remote.mcp_url)
    remote.overrides["/token"] = lambda fields: (400, {"error": "invalid_grant"})
    with pytest.raises(McpLoginOver):
        await source(tmp_path, NOW + 3601).token("remote", remote.mcp_url)


async def test_a_login_of_codex_is_refreshed_after_its_server_was_found(
    tmp_path: Path, remote: ProtectedMcpServer
) -> None:
    remote.refresh_tokens["theirs"] = "x"
    entry = {
        "server_name": "remote",
        "server_url": remote.mcp_url,
        "client_id": "client-1",
        "access_token": "old",
        "refresh_token": "theirs",
        "expires_at": 1,
        "scopes": [],
    }
    (tmp_path / CREDENTIALS_FILE).write_text(json.dumps({"remote|0": entry, "kept": {"more": 1}}))
    assert await source(tmp_path).token("remote", remote.mcp_url) == "secret-access-1"
    stored = json.loads((tmp_path / CREDENTIALS_FILE).read_text())
    assert stored["kept"] == {"more": 1}
    assert "remote|0" not in stored


def test_a_file_that_is_damaged_is_left_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / CREDENTIALS_FILE
    tokens = McpTokens(server="s", url="https://x.example", client_id="c", access_token="secret-1")
    for damaged in (b'{"secret-2', b"[]", b"\xff"):
        path.write_bytes(damaged)
        assert read_mcp_tokens(tmp_path, "s", "https://x.example") is None
        with pytest.raises(AuthError, match="cannot be used"):
            write_mcp_tokens(tmp_path, tokens)
        assert path.read_bytes() == damaged
    path.write_text('{"a": {"server_name": "s", "server_url": "https://x.example", "client_id": 7}}')
    assert read_mcp_tokens(tmp_path, "s", "https://x.example") is None
    write_mcp_tokens(tmp_path, tokens)
    assert read_mcp_tokens(tmp_path, "s", "https://x.example") == tokens
    assert path.stat().st_mode & 0o777 == 0o600
    assert "secret" not in caplog.text


PENDING = (403, {"error": "authorization_pending"})


async def outcome(flow: LoginAttempt) -> LoginOutcome:
    async with ending(flow) as ended:
        pass
    return ended[0]


async def test_a_login_with_a_device_code(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    issuer.device_polls = [PENDING, (404, {}), PENDING]
    flow = await open_device_login(auth)
    assert (flow.verification_url, flow.user_code) == (f"{issuer.url}/codex/device", "ABCD-1234")
    assert await outcome(flow) == LoginOutcome(True)
    assert await auth.credentials() == Credentials("access-1", "acct-1", AuthMethod.CHATGPT)
    (exchange,) = issuer.fields("authorization_code")
    assert (exchange["code"], exchange["redirect_uri"]) == ("the-code", f"{issuer.url}/deviceauth/callback")
    polls = [fields for path, fields in issuer.requests if path.endswith("/deviceauth/token")]
    assert polls == [{"device_auth_id": "device-1", "user_code": "ABCD-1234"}] * 4
    assert "ABCD" not in repr(flow._code)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((404, {}), "no logins with a device code"),
        ((500, {"error": "sorry"}), r"gave no device code \(status 500, sorry\)"),
        ((200, {}), "answered without a device code"),
        ((200, {"device_auth_id": "d", "user_code": "a\nb"}), "answered without a device code"),
        ((200, [1]), "answered without a device code"),
    ],
)
async def test_an_issuer_that_gives_no_code(
    auth: AuthManager, issuer: ScriptedIssuer, answer: tuple[int, Json], text: str
) -> None:
    issuer.device = answer
    with pytest.raises(AuthError, match=text):
        await open_device_login(auth)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            (400, {"error": "expired_token"}),
            "the login server refused the device (status 400, expired_token)",
        ),
        ((200, {}), "the login server answered without the code of a login"),
        (
            (200, {"authorization_code": "c", "code_verifier": "v", "code_challenge": code_challenge("w")}),
            "the login server's verifier does not belong to its code",
        ),
    ],
)
async def test_a_device_that_is_refused(
    auth: AuthManager, issuer: ScriptedIssuer, answer: tuple[int, Json], text: str
) -> None:
    issuer.device_polls = [answer]
    assert await outcome(await open_device_login(auth)) == LoginOutcome(False, text)
    assert read_auth(auth.home) is None


async def test_a_login_that_is_cancelled_while_the_issuer_is_asked(
    auth: AuthManager, issuer: ScriptedIssuer
) -> None:
    flow = await open_device_login(auth)
    issuer.gate.clear()
    issuer.asked.clear()
    async with ending(flow) as ended:
        await issuer.until_asked()
        flow.cancel()
    issuer.gate.set()
    assert ended == [LoginOutcome(False, "the login was cancelled")]
    early = await open_device_login(auth)
    early.cancel()
    assert await outcome(early) == LoginOutcome(False, "the login was cancelled")
    assert read_auth(auth.home) is None


async def test_a_login_that_nobody_finishes_ends(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    issuer.device_polls = [PENDING] * 10_000
    flow = await open_device_login(auth)
    assert await flow.run_login(0.05) == LoginOutcome(False, "the login was not finished in time")


async def test_an_issuer_that_cannot_be_reached_for_a_while_is_asked_again(
    auth: AuthManager, issuer: ScriptedIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = await open_device_login(auth)
    url, tries = issuer.url, [0]
    ask = Issuer.poll_device_code

    async def poll(self: Issuer, code: object) -> object:
        tries[0] += 1
        self._base_url = "http://127.0.0.1:1" if tries[0] == 1 else url
        return await ask(self, code)  # type: ignore[arg-type]

    monkeypatch.setattr(Issuer, "poll_device_code", poll)
    assert await outcome(flow) == LoginOutcome(True)
    assert tries == [2]


async def test_settings_that_forbid_the_login(auth: AuthManager) -> None:
    auth.settings = LoginSettings(forced_method="api")
    with pytest.raises(AuthError, match="forced_login_method"):
        await open_device_login(auth)
    auth.settings = LoginSettings(workspace_id="acct-2")
    refused = await outcome(await open_device_login(auth))
    assert "forced_chatgpt_workspace_id" in (refused.error or "")
