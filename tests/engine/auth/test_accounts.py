"""Login and logout of a real server, with an OAuth issuer on loopback. The test is the browser."""

import json
import stat
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
import pytest

from app_server_protocol.encoding import Json
from tests.engine.auth.oauth_issuer import ScriptedIssuer, id_token, scripted_issuer
from tests.support.client import Client, Refused
from tests.support.places import Place, place_in
from tests.support.scripted_model import failure, reply, says, script

pytestmark = pytest.mark.process

NEEDS_LOGIN = "requires_openai_auth = true"
KEY = "sk-of-the-user-0123456789"


@pytest.fixture
def issuer() -> Iterator[ScriptedIssuer]:
    with scripted_issuer() as running:
        yield running


@asynccontextmanager
async def place_with(root: Path, issuer: ScriptedIssuer, **environment: str) -> AsyncIterator[Place]:
    async with place_in(root, tables=NEEDS_LOGIN) as place:
        place.environment |= {"APP_SERVER_AUTH_ISSUER": issuer.url, **environment}
        settings = place.home / "config.toml"
        settings.write_text(f'chatgpt_base_url = "{issuer.url}/backend-api/"\n' + settings.read_text())
        yield place


async def browse(auth_url: str, **answer: str) -> int:
    """Act as a browser after the user has agreed, or refused, at the issuer."""
    asked = parse_qs(urlsplit(auth_url).query)
    port = urlsplit(asked["redirect_uri"][0]).port
    query = "&".join(f"{name}={value}" for name, value in {"state": asked["state"][0], **answer}.items())
    url = f"http://127.0.0.1:{port}/auth/callback?{query}"

    def get() -> int:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=20) as page:
                return int(page.status)
        except urllib.error.HTTPError as error:
            return error.code

    return await anyio.to_thread.run_sync(get)


async def log_in(client: Client) -> Json:
    """Log in; return the notification at the end of the login."""
    begun = await client.call("loginChatGpt")
    assert await browse(begun["authUrl"], code="code-1") == 200
    done = await client.expect("loginChatGptComplete")
    assert done["params"]["loginId"] == begun["loginId"]
    return done["params"]


async def status_change(client: Client) -> str | None:
    changed: Json = (await client.expect("authStatusChange"))["params"]
    return changed["authMethod"]  # type: ignore[no-any-return]


async def one_turn(place: Place, client: Client, *events: Json) -> dict[str, str]:
    """Run one turn; return the headers that the model received."""
    place.model.replies[:] = (
        [reply(*events, says("ok"))] if not events else [reply(*events), reply(says("ok"))]
    )
    await client.turn(await client.open(cwd=str(place.workspace)))
    return place.model.requests[-1].headers


async def test_an_api_key_is_used_until_the_user_logs_out(tmp_path: Path, issuer: ScriptedIssuer) -> None:
    async with place_with(tmp_path, issuer) as place, place.server() as server:
        client = server.client
        nobody = {"authMethod": None, "authToken": None, "requiresOpenaiAuth": True}
        assert await client.call("getAuthStatus", {"includeToken": True}) == nobody
        await client.call("loginApiKey", {"apiKey": KEY})
        assert await status_change(client) == "apikey"
        stored = place.home / "auth.json"
        assert json.loads(stored.read_text())["OPENAI_API_KEY"] == KEY
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
        assert (await one_turn(place, client))["authorization"] == f"Bearer {KEY}"
        status = await client.call("getAuthStatus", {"includeToken": True})
        assert (status["authMethod"], status["authToken"]) == ("apikey", KEY)
        assert (await client.call("getAuthStatus", {"includeToken": False}))["authToken"] is None
        assert await client.call("userInfo") == {"allegedUserEmail": None}
        await client.call("logoutChatGpt")
        assert await status_change(client) is None
        assert not stored.exists()
        assert (await client.call("getAuthStatus", {}))["authMethod"] is None
        assert issuer.requests == [], "a key is nothing of the issuer's"


async def test_a_login_through_the_browser_is_used_renewed_and_revoked(
    tmp_path: Path, issuer: ScriptedIssuer
) -> None:
    async with place_with(tmp_path, issuer) as place:
        async with place.server() as server:
            client = server.client
            begun = await client.call("loginChatGpt")
            assert begun["authUrl"].startswith(f"{issuer.url}/oauth/authorize?")
            asked = parse_qs(urlsplit(begun["authUrl"]).query)
            issuer.challenge = asked["code_challenge"][0]
            assert asked["code_challenge_method"] == ["S256"]
            assert await browse(begun["authUrl"], code="code-1") == 200
            done = (await client.expect("loginChatGptComplete"))["params"]
            assert done == {"loginId": begun["loginId"], "success": True, "error": None}
            assert await status_change(client) == "chatgpt"
            assert await client.call("userInfo") == {"allegedUserEmail": "user@example.com"}

            headers = await one_turn(place, client)
            assert headers["authorization"] == "Bearer access-1"
            assert headers["chatgpt-account-id"] == "acct-1"

            place.model.replies[:] = [failure(401, {"error": {"message": "expired"}}), reply(says("ok"))]
            assert (await client.turn(await client.open(cwd=str(place.workspace)))).last_message == "ok"
            assert place.model.requests[-1].headers["authorization"] == "Bearer access-2"

        async with place.server() as server:  # the account outlives the server
            status = await server.client.call("getAuthStatus", {"includeToken": True})
            assert (status["authMethod"], status["authToken"]) == ("chatgpt", "access-2")
            await server.client.call("logoutChatGpt")
            assert await status_change(server.client) is None
            assert (await server.client.call("getAuthStatus", {}))["authMethod"] is None
        (revoked,) = [fields for path, fields in issuer.requests if path == "/oauth/revoke"]
        assert (revoked["token"], revoked["token_type_hint"]) == ("refresh-2", "refresh_token")
        assert not (place.home / "auth.json").exists()


async def test_a_login_can_be_cancelled_and_begun_again(tmp_path: Path, issuer: ScriptedIssuer) -> None:
    async with place_with(tmp_path, issuer) as place, place.server() as server:
        client = server.client
        begun = await client.call("loginChatGpt")
        await client.call("cancelLoginChatGpt", {"loginId": begun["loginId"]})
        done = (await client.expect("loginChatGptComplete"))["params"]
        assert (done["loginId"], done["success"]) == (begun["loginId"], False)
        assert done["error"]
        with pytest.raises(Refused, match="not found"):
            await client.call("cancelLoginChatGpt", {"loginId": begun["loginId"]})
        assert not (place.home / "auth.json").exists()
        assert (await log_in(client))["success"] is True


async def test_an_issuer_without_tls_is_refused_unless_it_is_on_this_machine(
    tmp_path: Path, issuer: ScriptedIssuer
) -> None:
    elsewhere = {"APP_SERVER_AUTH_ISSUER": "http://issuer.example"}
    async with place_with(tmp_path, issuer, **elsewhere) as place, place.server() as server:
        with pytest.raises(Refused, match="APP_SERVER_AUTH_ISSUER"):
            await server.client.call("loginChatGpt")
        assert (await server.client.call("getAuthStatus", {}))["authMethod"] is None


async def test_credentials_reach_neither_log_nor_events_nor_files_nor_commands(
    tmp_path: Path, issuer: ScriptedIssuer
) -> None:
    """A whole session at the most verbose log level, with a model that asks for the environment."""
    looks = script("env; tr '\\0' '\\n' < /proc/self/environ; tr '\\0' '\\n' < /proc/$PPID/environ", "call-1")
    secrets = {"access-1", "access-2", "refresh-1", "refresh-2", "code-1", KEY, "sk-of-the-environment"}
    more = {"APP_SERVER_LOG": "debug", "OPENAI_API_KEY": "sk-of-the-environment"}
    async with place_with(tmp_path, issuer, **more) as place:
        async with place.server() as server:
            client = server.client
            await one_turn(place, client, looks)  # with the key of the environment
            await client.call("loginApiKey", {"apiKey": KEY})
            await one_turn(place, client, looks)
            await log_in(client)
            await one_turn(place, client, looks)
            place.model.replies[:] = [failure(401, {"error": {"message": "expired"}}), reply(says("ok"))]
            await client.turn(await client.open(cwd=str(place.workspace)))
            await client.call("getAuthStatus", {"refreshToken": True})
            conversation = await client.open(cwd=str(place.workspace))
            await client.submit(conversation, {"type": "add_to_history", "text": "words"})
            await client.call("getUserSavedConfig")
            await client.call("logoutChatGpt")
            (code,) = issuer.fields("authorization_code")
            secrets.add(code["code_verifier"])
            told = json.dumps(client.received())
        used = {request.headers["authorization"] for request in place.model.requests}
        assert used == {f"Bearer {key}" for key in ("sk-of-the-environment", KEY, "access-1", "access-2")}
        asked = json.dumps([request.body for request in place.model.requests])
        kept = {
            path: path.read_bytes().decode("utf-8", "replace")
            for path in place.root.rglob("*")
            if path.is_file()
        }
        assert any(path.name.startswith("rollout-") for path in kept)
        assert place.root / "server.log" in kept
        for secret in sorted(secrets):
            assert secret not in told, "an event"
            assert secret not in asked, "what the model is told"
            assert [str(path) for path, text in kept.items() if secret in text] == []
        assert id_token() not in told + asked + "".join(kept.values())


async def test_a_login_over_the_thread_api_tells_the_plan(tmp_path: Path, issuer: ScriptedIssuer) -> None:
    async with place_with(tmp_path, issuer) as place, place.server() as server:
        client = server.client
        begun = await client.call("account/login/start", {"type": "chatgpt"})
        assert await browse(begun["authUrl"], code="code-1") == 200
        done = (await client.expect("account/login/completed"))["params"]
        assert done == {"loginId": begun["loginId"], "success": True, "error": None}
        updated = (await client.expect("account/updated"))["params"]
        assert updated == {"authMode": "chatgpt", "planType": "pro", "reason": None}
        account = (await client.call("account/read"))["account"]
        assert {"type": "chatgpt", "email": "user@example.com", "planType": "pro"}.items() <= account.items()
        limits = await client.call("account/rateLimits/read")
        window = {"usedPercent": 42, "windowDurationMins": 300, "resetsAt": None}
        assert (limits["accountId"], limits["rateLimits"]["primary"]) == ("acct-1", window)
        assert limits["rateLimitsByLimitId"] == {"codex": limits["rateLimits"]}
        issuer.usage = (500, {})
        with pytest.raises(Refused, match="failed to fetch codex rate limits"):
            await client.call("account/rateLimits/read")
