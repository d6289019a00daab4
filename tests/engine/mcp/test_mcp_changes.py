"""Servers that forget their sessions, and servers whose tools change."""

import json
from collections import Counter

import anyio
import pytest

from app_server.engine.mcp import mcp_errors
from app_server_protocol.encoding import Json
from tests.engine.mcp.conftest import Rig, http
from tests.engine.mcp.scripted_http import HANDSHAKE, TOOLS, ScriptedHttp, begin_events, reply_json
from tests.support.http_server import HttpHandler
from tests.support.waiting import until

ECHO = "mcp__web__echo"


class Forgetful:
    """Server whose sessions a test ends."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.always = False
        self.done = Counter[str]()

    def answer(self, handler: HttpHandler, message: Json) -> bool:
        method = message.get("method", "")
        if method == "initialize":
            session = f"s-{self.done['initialize']}"
            self.sessions.add(session)
            reply_json(handler, message, HANDSHAKE, Mcp_Session_Id=session)
        elif handler.headers.get("Mcp-Session-Id") not in self.sessions:
            handler.reply(
                404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}'
            )
            return True
        self.done[method] += 1
        if self.always and method == "notifications/initialized":
            self.sessions.clear()
        return bool(method == "initialize")


async def test_a_call_in_a_session_that_the_server_forgot_is_made_in_a_new_one(rig: Rig) -> None:
    forgetful = Forgetful()
    with ScriptedHttp(forgetful.answer).serving() as url:
        async with rig.opened(http(url)) as mcp:
            for _ in range(8):
                assert not (await mcp.requests.call(ECHO, {})).is_error
                forgetful.sessions.clear()
    assert (forgetful.done["initialize"], forgetful.done["tools/call"]) == (8, 8)


async def test_calls_at_once_share_the_new_session(rig: Rig) -> None:
    forgetful = Forgetful()
    with ScriptedHttp(forgetful.answer).serving() as url:
        async with rig.opened(http(url)) as mcp:
            forgetful.sessions.clear()
            errors: list[bool] = []

            async def call() -> None:
                errors.append((await mcp.requests.call(ECHO, {})).is_error)

            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(call)
            assert (await mcp.requests.call(ECHO, {})).is_error is False
    assert False in errors
    assert forgetful.done["initialize"] <= 4


async def test_a_server_that_forgets_each_session_at_once_fails_the_call(rig: Rig) -> None:
    forgetful = Forgetful()
    with ScriptedHttp(forgetful.answer).serving() as url:
        async with rig.opened(http(url)) as mcp:
            forgetful.sessions.clear()
            forgetful.always = True
            outcome = await mcp.requests.call(ECHO, {})
    assert outcome.is_error
    assert "the server has forgotten the session" in (outcome.error or "")
    assert forgetful.done["initialize"] == 2


async def test_tools_that_a_call_adds_are_offered_once_it_is_answered(rig: Rig) -> None:
    async with rig.fake("grows") as mcp:
        before = mcp.revision
        assert list(mcp.tools()) == ["mcp__fake__echo"]
        assert not (await mcp.requests.call("mcp__fake__echo", {"text": "x"})).is_error
        assert list(mcp.tools()) == ["mcp__fake__added", "mcp__fake__echo"]
        assert mcp.revision > before


async def test_a_server_over_http_says_on_a_stream_of_its_own_that_its_tools_have_changed(rig: Rig) -> None:
    tools = dict(TOOLS)
    news = json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})

    def answer(handler: HttpHandler, message: Json) -> bool:
        match message.get("method"):
            case "initialize":
                reply_json(handler, message, HANDSHAKE | {"capabilities": {"tools": {"listChanged": True}}})
            case "tools/list":
                reply_json(handler, message, tools)
            case _:
                return False
        return True

    def listen(handler: HttpHandler) -> None:
        begin_events(handler)
        tools["tools"] = [{"name": "other", "inputSchema": {"type": "object"}}]
        handler.wfile.write(f"data: {news}\n\n".encode())

    with ScriptedHttp(answer, listen=listen).serving() as url:
        async with rig.opened(http(url)) as mcp:
            await until(lambda: list(mcp.tools()) == ["mcp__web__other"])


@pytest.mark.parametrize("refuses", [True, False])
async def test_listening_in_the_new_era_begins_again_unless_the_server_refuses_it(
    rig: Rig, refuses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools are listed again then: what changed meanwhile was told to nobody."""
    monkeypatch.setattr(mcp_errors, "LISTENING_AGAIN", (0.0, 0.0, 0.0))
    tools = dict(TOOLS)
    capabilities = {"tools": {"listChanged": True}}

    def answer(handler: HttpHandler, message: Json) -> bool:
        match message.get("method"):
            case "server/discover":
                found = {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
                reply_json(handler, message, found)
            case "tools/list":
                reply_json(handler, message, tools)
            case "subscriptions/listen" if refuses:
                error = {"code": -32601, "message": "no such method"}
                body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
                handler.reply(404, body, Content_Type="application/json")
            case "subscriptions/listen":
                tools["tools"] = [{"name": "other", "inputSchema": {"type": "object"}}]
                begin_events(handler)
            case _:
                return False
        return True

    rig.discovers_first = True
    script = ScriptedHttp(answer)
    with script.serving() as url:
        async with rig.opened(http(url)) as mcp:
            await until(lambda: len(script.messages("subscriptions/listen")) == (1 if refuses else 3))
            if refuses:
                assert not (await mcp.requests.call(ECHO, {})).is_error
            else:
                await until(lambda: list(mcp.tools()) == ["mcp__web__other"])
    assert len(script.messages("subscriptions/listen")) == (1 if refuses else 3)
    assert len(script.messages("initialize")) == 0


async def test_a_server_that_announces_nothing_is_not_listened_to(rig: Rig) -> None:
    script = ScriptedHttp()
    with script.serving() as url:
        async with rig.opened(http(url)) as mcp:
            await mcp.requests.call(ECHO, {})
    assert "GET" not in {each.method for each in script.asked}
