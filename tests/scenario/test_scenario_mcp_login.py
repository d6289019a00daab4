"""Logins at MCP servers through the browser: from the request to a server that is used with the token."""

import json
import stat
from collections.abc import Iterator

import httpx
import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.protected_mcp_server import ProtectedMcpServer, protected_mcp_server
from tests.support.world import MakeWorld, Transport, World

LOGIN, COMPLETED = "mcpServer/oauth/login", "mcpServer/oauthLogin/completed"
LOOPBACK = {"NO_PROXY": "127.0.0.1"}


@pytest.fixture
def remote() -> Iterator[ProtectedMcpServer]:
    with protected_mcp_server() as server:
        yield server


def table(remote: ProtectedMcpServer) -> str:
    return f'[mcp_servers.remote]\nurl = "{remote.mcp_url}"\n'


async def visit(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as browser:
        return (await browser.get(url)).status_code


async def server_status(w: World) -> Json:
    [status] = (await w.client.call("mcpServerStatus/list", {}))["data"]
    return status


async def log_in(w: World, remote: ProtectedMcpServer) -> Json:
    started = await w.client.call(LOGIN, {"name": "remote"})
    assert await visit(remote.browser(started["authorizationUrl"])) == 200
    completed = (await w.client.expect(COMPLETED))["params"]
    assert completed["loginId"] == started["loginId"]
    return completed


@pytest.mark.parametrize("transport", ["memory", pytest.param("process", marks=pytest.mark.process)])
async def test_a_server_is_used_with_the_login(
    world: MakeWorld, remote: ProtectedMcpServer, transport: Transport
) -> None:
    async with world(tables=table(remote), environment=LOOPBACK, transport=transport) as w:
        before = await server_status(w)
        assert before["authStatus"] == "notLoggedIn"
        completed = await log_in(w, remote)
        assert (completed["name"], completed["success"], completed["error"]) == ("remote", True, None)
        [asked] = remote.asked("/register")
        assert asked["token_endpoint_auth_method"] == "none"
        after = await server_status(w)
        assert (after["authStatus"], list(after["tools"])) == ("oAuth", ["echo"])
        # A token that the server takes back is refreshed, and what comes for it is kept.
        remote.good_tokens.clear()
        assert list((await server_status(w))["tools"]) == ["echo"]
        stored = w.home / ".credentials.json"
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
        [entry] = json.loads(stored.read_text()).values()
        assert (entry["access_token"], entry["refresh_token"]) == ("secret-access-2", "secret-refresh-2")
        # A login that is over is none.
        remote.good_tokens.clear()
        remote.refresh_tokens.clear()
        assert (await server_status(w))["authStatus"] == "notLoggedIn"
    assert "secret-" not in json.dumps(w.client.received())


async def test_a_thread_uses_it_after_a_reload(world: MakeWorld, remote: ProtectedMcpServer) -> None:
    async with world(tables=table(remote), environment=LOOPBACK) as w:
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        params = {"threadId": thread, "server": "remote", "tool": "echo", "arguments": {}}
        with pytest.raises(Refused):
            await w.client.call("mcpServer/tool/call", params)
        await log_in(w, remote)
        await w.client.call("config/mcpServer/reload", {})
        called = await w.client.call("mcpServer/tool/call", params)
        assert called["content"] == [{"type": "text", "text": "called"}]


async def test_a_login_ends_when_it_is_cancelled_or_another_begins(
    world: MakeWorld, remote: ProtectedMcpServer
) -> None:
    async with world(tables=table(remote), environment=LOOPBACK) as w:
        first = await w.client.call(LOGIN, {"name": "remote"})
        second = await w.client.call(LOGIN, {"name": "remote", "scopes": ["a", "b"]})
        assert "scope=a%20b" in second["authorizationUrl"]
        ended = (await w.client.expect(COMPLETED))["params"]
        assert (ended["loginId"], ended["success"], ended["error"]) == (
            first["loginId"],
            False,
            "the login was cancelled",
        )
        cancelled = await w.client.call("account/login/cancel", {"loginId": second["loginId"]})
        assert cancelled == {"status": "canceled"}
        assert (await w.client.expect(COMPLETED))["params"]["loginId"] == second["loginId"]
        assert not (w.home / ".credentials.json").exists()


async def test_only_the_answer_to_this_login_counts(world: MakeWorld, remote: ProtectedMcpServer) -> None:
    async with world(tables=table(remote), environment=LOOPBACK) as w:
        started = await w.client.call(LOGIN, {"name": "remote"})
        assert await visit(remote.browser(started["authorizationUrl"], state="other")) == 400
        assert await visit(remote.browser(started["authorizationUrl"], iss="https://other.example")) == 502
        ended = (await w.client.expect(COMPLETED))["params"]
        assert (ended["success"], ended["error"]) == (
            False,
            "the answer comes from another authorization server",
        )
        assert remote.asked("/token") == []


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"name": "none"}, "No MCP server named 'none' found"),
        ({"name": "local"}, "only supported for streamable HTTP servers"),
        ({"name": "keyed"}, "names a token of its own"),
        ({"name": "plain"}, "needs a server with encryption"),
        ({"name": "remote", "timeoutSecs": 0}, "timeoutSecs must be between 1 and 3600, not 0"),
        ({"name": "remote", "scopes": ["a b"]}, "scopes must be"),
    ],
)
async def test_logins_that_are_refused(
    world: MakeWorld, remote: ProtectedMcpServer, params: Json, text: str
) -> None:
    tables = (
        f"{table(remote)}[mcp_servers.local]\ncommand = 'true'\n"
        '[mcp_servers.keyed]\nurl = "https://x.example/mcp"\nbearer_token_env_var = "KEY"\n'
        '[mcp_servers.plain]\nurl = "http://x.example/mcp"\n'
    )
    async with world(tables=tables, environment=LOOPBACK) as w:
        with pytest.raises(Refused, match=text):
            await w.client.call(LOGIN, params)
        assert remote.requests == []
