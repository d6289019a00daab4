"""Status, API keys, logout, and a login that is refreshed once and in time."""

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from app_server.engine.auth.auth_manager import AuthManager, AuthStatus
from app_server.engine.auth.credentials import (
    AuthMethod,
    Credentials,
    IdClaims,
    StoredAuth,
    Tokens,
    read_auth,
    write_auth,
)
from app_server.engine.auth.issuer import Issuer, LoginExpiredError
from app_server.engine.auth.oauth_http import MAX_BODY_BYTES
from app_server.engine.config.config_values import LoginSettings
from app_server.engine.support.engine_errors import AuthError
from app_server.engine.support.lazy import Lazy
from tests.engine.auth.oauth_issuer import NOW, ScriptedIssuer, id_token, jwt

NOBODY = AuthStatus(None, None, requires_openai_auth=True)


def login(access: str = "access-1", *, age: timedelta = timedelta(days=1)) -> StoredAuth:
    return StoredAuth(
        tokens=Tokens(
            id_token=id_token(), access_token=access, refresh_token="refresh-1", account_id="acct-1"
        ),
        last_refresh=datetime.fromtimestamp(NOW, UTC) - age,
    )


def ending_in(seconds: float) -> str:
    return jwt(exp=NOW + seconds)


def chatgpt(bearer: str) -> Credentials:
    return Credentials(bearer, "acct-1", AuthMethod.CHATGPT)


def saved(auth: AuthManager) -> StoredAuth:
    stored = read_auth(auth.home)
    assert stored is not None
    return stored


@pytest.fixture
def alone(tmp_path: Path) -> AuthManager:
    """Return a manager whose issuer cannot be reached."""
    return AuthManager(tmp_path, clock=lambda: NOW, issuer=Lazy(lambda: Issuer("http://127.0.0.1:1", {})))


async def test_a_provider_without_login_says_so_whatever_is_stored(auth: AuthManager) -> None:
    auth.login_with_api_key("sk")
    status = await auth.status(requires_openai_auth=False, include_token=True)
    assert status == AuthStatus(None, None, requires_openai_auth=False)


async def test_an_api_key_comes_and_goes(auth: AuthManager) -> None:
    assert await auth.status(requires_openai_auth=True, include_token=True) == NOBODY
    assert await auth.credentials() is None
    auth.login_with_api_key(" sk-1\n")
    with_token = await auth.status(requires_openai_auth=True, include_token=True)
    assert with_token == AuthStatus(
        AuthMethod.API_KEY, "sk-1", requires_openai_auth=True, has_credentials=True
    )
    assert (await auth.status(requires_openai_auth=True)).token is None
    assert await auth.credentials() == Credentials("sk-1", None, AuthMethod.API_KEY)
    assert await auth.refresh() is None
    assert auth.identity() is None
    assert await auth.logout() is True
    assert await auth.logout() is False
    assert await auth.status(requires_openai_auth=True) == NOBODY


@pytest.mark.parametrize("key", ["", "  ", "two words", "line\nbreak", "schlüssel"])
async def test_what_is_no_key_is_refused_and_not_repeated(auth: AuthManager, key: str) -> None:
    with pytest.raises(AuthError, match=r"^that is not an API key$"):
        auth.login_with_api_key(key)
    assert read_auth(auth.home) is None


async def test_a_key_of_the_environment_stands_in(alone: AuthManager) -> None:
    auth = alone.with_keys({"OPENAI_API_KEY": "sk-env"})
    assert await auth.credentials() == Credentials("sk-env", None, AuthMethod.API_KEY)
    auth.login_with_api_key("sk-own")
    assert await auth.credentials() == Credentials("sk-own", None, AuthMethod.API_KEY)
    auth.settings = LoginSettings(forced_method="chatgpt")
    assert await auth.credentials() is None


async def test_a_key_that_counts_first_is_used_where_there_is_a_login(alone: AuthManager) -> None:
    alone.login_with_api_key("sk-own")
    auth = alone.with_keys({"OPENAI_API_KEY": "sk-env"}, {"CODEX_API_KEY": "sk-first"})
    assert await auth.credentials() == Credentials("sk-first", None, AuthMethod.API_KEY)
    auth.settings = LoginSettings(forced_method="chatgpt")
    assert await auth.credentials() is None


async def test_a_key_of_the_environment_is_no_login_for_clients(alone: AuthManager) -> None:
    auth = alone.with_keys({"OPENAI_API_KEY": "sk-env"})
    status = await auth.status(requires_openai_auth=True, include_token=True)
    assert status == AuthStatus(None, None, requires_openai_auth=True, has_credentials=True)
    assert (auth.method(), auth.login_method()) == (AuthMethod.API_KEY, None)
    auth.login_with_api_key("sk-own")
    status = await auth.status(requires_openai_auth=True, include_token=True)
    assert status == AuthStatus(AuthMethod.API_KEY, "sk-own", requires_openai_auth=True, has_credentials=True)
    assert auth.login_method() is AuthMethod.API_KEY


async def test_a_variable_that_a_provider_claims_is_no_login(alone: AuthManager) -> None:
    both = alone.with_keys({"CODEX_API_KEY": "sk-first", "OPENAI_API_KEY": "sk-env"})
    claimed = both.under(LoginSettings(claimed_variables=frozenset({"CODEX_API_KEY"})))
    assert await claimed.credentials() == Credentials("sk-env", None, AuthMethod.API_KEY)
    none_left = both.under(LoginSettings(claimed_variables=frozenset({"CODEX_API_KEY", "OPENAI_API_KEY"})))
    assert await none_left.credentials() is None
    none_left.login_with_api_key("sk-own")
    assert await none_left.credentials() == Credentials("sk-own", None, AuthMethod.API_KEY)


async def test_a_login_is_used_while_it_is_good(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    write_auth(auth.home, login(ending_in(3600)))
    assert await auth.credentials() == chatgpt(ending_in(3600))
    assert auth.identity() == IdClaims("user@example.com", "pro", "acct-1")
    assert issuer.requests == []


@pytest.mark.parametrize(
    "stored", [login(ending_in(10)), login(ending_in(-10)), login("opaque", age=timedelta(days=30))]
)
async def test_a_login_near_its_end_is_renewed_before_use(
    auth: AuthManager, issuer: ScriptedIssuer, stored: StoredAuth
) -> None:
    write_auth(auth.home, stored)
    assert await auth.credentials() == chatgpt("access-2")
    (fields,) = issuer.fields("refresh_token")
    assert fields == {
        "client_id": "app_EMoamEEZ73f0CkXaXp7hrann",
        "grant_type": "refresh_token",
        "refresh_token": "refresh-1",
        "scope": "openid profile email",
    }
    kept = Tokens(
        id_token=id_token(), access_token="access-2", refresh_token="refresh-2", account_id="acct-1"
    )
    assert saved(auth) == StoredAuth(tokens=kept, last_refresh=datetime.fromtimestamp(NOW, UTC))


async def test_an_answer_that_leaves_tokens_out_keeps_the_old_ones(
    auth: AuthManager, issuer: ScriptedIssuer
) -> None:
    issuer.renewal = (200, {"access_token": "access-2"})
    write_auth(auth.home, login())
    await auth.refresh()
    assert saved(auth).tokens == Tokens(
        id_token=id_token(), access_token="access-2", refresh_token="refresh-1", account_id="acct-1"
    )


async def test_many_refused_requests_renew_once(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    write_auth(auth.home, login())
    refused = await auth.credentials()
    renewed: list[Credentials | None] = []

    async def renew() -> None:
        renewed.append(await auth.refresh(refused))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(renew)
    assert renewed == [chatgpt("access-2")] * 5
    assert len(issuer.fields("refresh_token")) == 1


async def test_a_login_that_another_process_renewed_is_used(
    auth: AuthManager, issuer: ScriptedIssuer
) -> None:
    write_auth(auth.home, login())
    refused = await auth.credentials()
    write_auth(auth.home, login("access-of-the-other"))
    assert await auth.refresh(refused) == chatgpt("access-of-the-other")
    assert issuer.requests == []


@pytest.mark.parametrize(
    ("then", "lost"),
    [(None, False), (login("access-of-the-other"), False), (login("access-of-the-other"), True)],
    ids=["logout", "login", "login, and the token was used by another"],
)
async def test_a_logout_or_login_during_a_renewal_is_kept(
    auth: AuthManager, issuer: ScriptedIssuer, then: StoredAuth | None, lost: bool
) -> None:
    write_auth(auth.home, login())
    if lost:
        issuer.renewal = (400, {"error": {"code": "refresh_token_reused"}})
    issuer.gate.clear()
    renewed: list[Credentials | None] = []

    async def renew() -> None:
        renewed.append(await auth.refresh())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(renew)
        await issuer.until_asked()
        if then is None:
            (auth.home / "auth.json").unlink()
        else:
            write_auth(auth.home, then)
        issuer.gate.set()
    assert renewed == [then and chatgpt("access-of-the-other")]
    assert read_auth(auth.home) == then


async def test_a_renewal_under_way_is_stored_though_its_turn_is_interrupted(
    auth: AuthManager, issuer: ScriptedIssuer
) -> None:
    write_auth(auth.home, login())
    issuer.gate.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(auth.refresh)
        await issuer.until_asked()
        tasks.cancel_scope.cancel()
        issuer.gate.set()
    tokens = saved(auth).tokens
    assert tokens is not None
    assert tokens.refresh_token == "refresh-2"


@pytest.mark.parametrize(
    ("answer", "gone"),
    [
        ((401, {"error": {"code": "refresh_token_expired"}}), True),
        ((400, {"error": "invalid_grant"}), True),
        ((401, {}), True),
        ((500, {"error": "oops refresh-1"}), False),
        ((502, b"<html>refresh-1</html>"), False),
    ],
)
async def test_a_refused_renewal_is_an_error_without_secrets(
    auth: AuthManager, issuer: ScriptedIssuer, answer: tuple[int, object], gone: bool
) -> None:
    issuer.renewal = answer
    write_auth(auth.home, login(ending_in(-10)))
    with pytest.raises(AuthError) as caught:
        await auth.credentials()
    assert isinstance(caught.value, LoginExpiredError) is gone
    assert "refresh-1" not in str(caught.value)
    assert f"status {answer[0]}" in str(caught.value)


async def test_an_answer_without_end_is_given_up(auth: AuthManager, issuer: ScriptedIssuer) -> None:
    issuer.renewal = (200, {"access_token": "x" * MAX_BODY_BYTES})
    write_auth(auth.home, login(ending_in(-10)))
    with pytest.raises(AuthError, match="too long"):
        await auth.credentials()


async def test_logins_go_the_way_that_the_users_environment_names(
    auth: AuthManager, issuer: ScriptedIssuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    write_auth(auth.home, login(ending_in(-10)))
    assert await auth.credentials() is not None  # the process's own environment is not used

    tokens = login().tokens
    assert tokens is not None
    named = {"SSL_CERT_FILE": str(tmp_path / "none.pem")}
    with pytest.raises(AuthError, match="SSL_CERT_FILE names no file"):
        await Issuer("https://issuer.test", named).refresh(tokens)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as proxy,
        anyio.create_task_group() as group,
    ):
        asked: list[bytes] = []

        async def refuse(stream: SocketStream) -> None:
            async with stream:
                asked.append(await stream.receive())

        group.start_soon(proxy.serve, refuse)
        port = proxy.extra(SocketAttribute.local_port)
        with pytest.raises(AuthError, match="cannot be reached"):
            await Issuer("https://issuer.test", {"https_proxy": f"127.0.0.1:{port}"}).refresh(tokens)
        group.cancel_scope.cancel()
    assert asked[0].startswith(b"CONNECT issuer.test:443 ")


async def test_a_login_that_is_still_good_survives_an_issuer_out_of_reach(alone: AuthManager) -> None:
    write_auth(alone.home, login(ending_in(10)))
    assert await alone.credentials() == chatgpt(ending_in(10))
    write_auth(alone.home, login(ending_in(-10)))
    with pytest.raises(AuthError, match=r"cannot be reached: Connection refused"):
        await alone.credentials()
    assert await alone.status(requires_openai_auth=True, refresh=True) == NOBODY


async def test_status_renews_when_asked(auth: AuthManager) -> None:
    write_auth(auth.home, login(ending_in(3600)))
    status = await auth.status(requires_openai_auth=True, include_token=True, refresh=True)
    assert status == AuthStatus(
        AuthMethod.CHATGPT, "access-2", requires_openai_auth=True, has_credentials=True
    )


def test_a_stored_key_comes_before_a_login_unless_forbidden(auth: AuthManager) -> None:
    both = StoredAuth(api_key="sk", tokens=login(ending_in(3600)).tokens)
    write_auth(auth.home, both)
    assert auth.method() is AuthMethod.API_KEY
    assert auth.under(LoginSettings(forced_method="chatgpt")).method() is AuthMethod.CHATGPT
    assert auth.method() is AuthMethod.API_KEY, "settings of a conversation are its own"


async def test_settings_can_forbid_a_login_method(auth: AuthManager) -> None:
    auth.settings = LoginSettings(forced_method="chatgpt")
    with pytest.raises(AuthError, match="use ChatGPT login"):
        auth.login_with_api_key("sk")
    auth.settings = LoginSettings(forced_method="api")
    with pytest.raises(AuthError, match="use API key login"):
        auth.store_login(Tokens(id_token=id_token(), access_token="a", refresh_token="r"), None)
    assert read_auth(auth.home) is None


def test_a_login_of_another_workspace_does_not_count(auth: AuthManager) -> None:
    write_auth(auth.home, login(ending_in(3600)))
    auth.settings = LoginSettings(workspace_id="acct-2")
    assert auth.stored_credentials() is None


async def test_logging_out_needs_no_issuer(alone: AuthManager) -> None:
    write_auth(alone.home, login())
    assert await alone.logout() is True
    assert read_auth(alone.home) is None


async def test_no_secret_reaches_a_log_or_a_repr(
    auth: AuthManager, issuer: ScriptedIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.renewal = (500, {"error": "no"})
    write_auth(auth.home, login(ending_in(10)))
    with caplog.at_level(logging.DEBUG):
        status = await auth.status(requires_openai_auth=True, include_token=True, refresh=True)
        credentials = await auth.credentials()
        await auth.logout()
    said = caplog.text + repr(status) + repr(credentials) + repr(auth)
    for secret in ("refresh-1", ending_in(10), id_token()):
        assert secret not in said
