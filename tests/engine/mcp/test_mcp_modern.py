"""Servers of the revision 2026-07-28 alone, over pipes and over HTTP: discovery, rounds of questions, headers, ends."""

import contextlib
import json
import sys
from collections.abc import AsyncIterator

import anyio
import pytest

from app_server.engine.config.mcp_server_settings import McpServerConfig, McpStdioTransport
from app_server.engine.mcp.mcp_errors import MAX_ROUNDS, TOOLS_CHANGED
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.mcp.results import McpCallOutcome
from app_server.engine.mcp.runtime_interface import ElicitationRequest, ElicitationResult
from app_server_protocol.encoding import Json
from tests.engine.mcp.conftest import Rig, gone, http
from tests.support import modern_mcp_server
from tests.support.modern_mcp_server import COUNT, META, VERSION, ModernServer, served_http
from tests.support.waiting import until

WAYS = ("pipes", "json", "streams")
over_http = pytest.mark.parametrize("way", ["json", "streams"])
all_ways = pytest.mark.parametrize("way", WAYS)


@contextlib.asynccontextmanager
async def strict(
    rig: Rig, way: str, *, announces: bool = False, **settings: Json
) -> AsyncIterator[McpManager]:
    """Open the strict server over one transport."""
    if way == "pipes":
        more = ("announces",) if announces else ()
        program = ("-I", "-S", modern_mcp_server.__file__, "stdio", str(rig.log), *more)
        transport = McpStdioTransport(command=sys.executable, args=program)
        async with rig.opened(McpServerConfig(name="new", transport=transport, **settings)) as mcp:
            yield mcp
        return
    server = ModernServer(str(rig.log))
    server.announces = announces
    with served_http(server, streams=way == "streams") as port:
        async with rig.opened(http(f"http://127.0.0.1:{port}/mcp", "new", **settings)) as mcp:
            yield mcp


async def call(mcp: McpManager, tool: str, arguments: Json = None) -> McpCallOutcome:
    names = {one.tool: name for name, one in mcp.tools().items()}
    return await mcp.requests.call(names[tool], arguments)


def said(outcome: McpCallOutcome) -> str:
    """Return the text of a result, or the error."""
    if outcome.result is None:
        return outcome.error or ""
    (block,) = outcome.result.content
    return str(getattr(block, "text", block.type))


def answering(rig: Rig, *answers: ElicitationResult) -> list[ElicitationRequest]:
    """Let the user answer; return the list of questions."""
    asked: list[ElicitationRequest] = []

    async def elicit(request: ElicitationRequest) -> ElicitationResult:
        asked.append(request)
        return answers[len(asked) - 1]

    rig.elicit = elicit
    return asked


THREE = ElicitationResult("accept", {"n": 3})


@all_ways
async def test_it_is_found_after_a_refused_handshake_and_its_tools_work(rig: Rig, way: str) -> None:
    async with strict(rig, way) as mcp:
        assert rig.told == []
        assert said(await call(mcp, "echo", {"text": "hello"})) == "hello"
        assert said(await call(mcp, "échö tool", {"text": "named"})) == "named"
        assert said(await call(mcp, "picture")) == "image"
        assert '"text":"\\"a note\\""' in await mcp.requests.read_resource("new", "note://one")
        (status,) = await mcp.requests.statuses(["new"], with_resources=True)
        assert [one.uri for one in status.resources] == ["note://one", "note://asks"]
        assert status.introduction.info == {"name": "strict", "version": "7"}
        assert status.introduction.revision == VERSION
    received = [note["received"] for note in rig.notes() if "received" in note]
    assert [one["method"] for one in received[:3]] == ["initialize", "server/discover", "tools/list"]
    assert all("id" in one for one in received)
    stamps = [one["params"]["_meta"] for one in received[1:]]
    assert {one[f"{META}protocolVersion"] for one in stamps} == {VERSION}
    assert {one[f"{META}clientInfo"]["version"] for one in stamps} == {"1.2.3"}
    offered: Json = {"roots": {}} if way == "pipes" else {}
    assert all(one[f"{META}clientCapabilities"] == offered for one in stamps)
    headers = [note["headers"] for note in rig.notes() if "headers" in note]
    assert not any("mcp-session-id" in one for one in headers)


@all_ways
async def test_progress_is_passed_over_and_a_clients_token_reaches_the_server(rig: Rig, way: str) -> None:
    async with strict(rig, way) as mcp:
        assert said(await call(mcp, "progress", {"text": "far"})) == "far"
        direct = await mcp.requests.call_directly("new", "echo", {"text": "x"}, {"progressToken": "mine"})
        assert not direct.is_error
    tokens = [one["params"]["_meta"].get("progressToken") for one in rig.received("tools/call")]
    assert tokens == [None, "mine"]


@all_ways
async def test_a_form_is_answered_by_asking_again(rig: Rig, way: str) -> None:
    asked = answering(rig, THREE)
    async with strict(rig, way) as mcp:
        assert json.loads(said(await call(mcp, "order"))) == {
            "count": {"action": "accept", "content": {"n": 3}}
        }
    assert asked == [ElicitationRequest("new", "How many?", COUNT)]
    first, second = rig.received("tools/call")
    assert first["id"] != second["id"]
    assert second["params"]["requestState"] == "ordering"
    assert first["params"]["_meta"][f"{META}clientCapabilities"]["elicitation"] == {}


@all_ways
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_no_of_the_user_reaches_the_server(rig: Rig, way: str, action: str) -> None:
    answering(rig, ElicitationResult(action, {"n": 3}))
    async with strict(rig, way) as mcp:
        assert json.loads(said(await call(mcp, "order"))) == {"count": {"action": action}}


async def test_roots_and_forms_in_one_round(rig: Rig) -> None:
    answering(rig, THREE)
    async with strict(rig, "pipes") as mcp:
        roots = [{"uri": (rig.folder / "workspace").as_uri(), "name": "workspace"}]
        assert json.loads(said(await call(mcp, "where"))) == {"roots": {"roots": roots}}
        assert json.loads(said(await call(mcp, "both"))) == {
            "roots": {"roots": roots},
            "count": {"action": "accept", "content": {"n": 3}},
        }


@all_ways
async def test_a_state_alone_is_sent_back(rig: Rig, way: str) -> None:
    async with strict(rig, way) as mcp:
        assert said(await call(mcp, "wait")) == "null"
        assert said(await call(mcp, "endless", {"text": str(MAX_ROUNDS)})) == f"after {MAX_ROUNDS} rounds"
        assert f"more than {MAX_ROUNDS} rounds" in said(await call(mcp, "endless"))
    assert len(rig.received("tools/call")) == 2 + (MAX_ROUNDS + 1) * 2


@all_ways
@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("sample", "the server asks for what this client does not offer"),
        ("many", "the server asks more than 16 questions at once"),
        ("nothing", "Unexpected response type"),
        ("odd", "Unexpected response type"),
    ],
)
async def test_what_cannot_be_answered_ends_the_call_and_nobody_is_asked(
    rig: Rig, way: str, tool: str, reason: str
) -> None:
    asked = answering(rig)
    async with strict(rig, way) as mcp:
        assert reason in said(await call(mcp, tool))
        assert said(await call(mcp, "echo", {"text": "next"})) == "next"
    assert asked == []


@pytest.mark.parametrize("tool", ["where", "order"])
async def test_only_what_is_offered_is_answered(rig: Rig, tool: str) -> None:
    """A server over HTTP learns no folders, and without a client that answers nobody is asked."""
    async with strict(rig, "json") as mcp:
        assert "does not offer" in said(await call(mcp, tool))


async def test_a_question_that_is_no_form_is_declined(rig: Rig) -> None:
    asked = answering(rig)
    async with strict(rig, "pipes") as mcp:
        assert json.loads(said(await call(mcp, "page"))) == {"a": {"action": "decline"}}
    assert asked == []


@all_ways
async def test_a_resource_may_ask_too_and_answers_go_nowhere_else(rig: Rig, way: str) -> None:
    answering(rig, THREE)
    async with strict(rig, way) as mcp:
        assert "accept" in await mcp.requests.read_resource("new", "note://asks")
        assert said(await call(mcp, "echo", {"text": "x"})) == "x"
    with_answers = [
        note["received"]["method"]
        for note in rig.notes()
        if "inputResponses" in note.get("received", {}).get("params", {})
    ]
    assert with_answers == ["resources/read"]


@all_ways
async def test_the_time_limit_stands_still_while_the_user_is_asked(rig: Rig, way: str) -> None:
    async def think(request: ElicitationRequest) -> ElicitationResult:
        await anyio.sleep(1.0)
        return THREE

    rig.elicit = think
    async with strict(rig, way, tool_timeout_sec=0.7) as mcp:
        assert "accept" in said(await call(mcp, "order"))
        assert "timed out awaiting tools/call after 700ms" in said(await call(mcp, "hang"))


@all_ways
async def test_a_call_that_is_cancelled_in_a_round_ends_its_question(rig: Rig, way: str) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def never(request: ElicitationRequest) -> ElicitationResult:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    rig.elicit = never
    async with strict(rig, way) as mcp, anyio.create_task_group() as group:
        group.start_soon(call, mcp, "order")
        await begun.wait()
        group.cancel_scope.cancel()
    assert ended.is_set()
    assert len(rig.received("tools/call")) == 1


@over_http
async def test_giving_up_closes_the_response_and_sends_nothing(rig: Rig, way: str) -> None:
    async with strict(rig, way) as mcp:
        async with anyio.create_task_group() as group:
            group.start_soon(call, mcp, "hang")
            await until(lambda: bool(rig.received("tools/call")))
            group.cancel_scope.cancel()
        await until(lambda: any("closed" in note for note in rig.notes()))
        assert said(await call(mcp, "echo", {"text": "x"})) == "x"
    methods = {note["received"].get("method") for note in rig.notes() if "received" in note}
    assert methods == {"initialize", "server/discover", "tools/list", "tools/call"}


async def test_giving_up_over_pipes_is_told(rig: Rig) -> None:
    async with strict(rig, "pipes", tool_timeout_sec=0.3) as mcp:
        assert "timed out" in said(await call(mcp, "hang"))
        await until(lambda: bool(rig.received("notifications/cancelled")))
        (hung,) = rig.received("tools/call")
        (told,) = rig.received("notifications/cancelled")
        assert told["params"]["requestId"] == hung["id"]


@over_http
async def test_marked_parameters_are_repeated_in_headers(rig: Rig, way: str) -> None:
    arguments = {"region": "señor\n", "shard": -5, "dry": False, "where": {"zone": "two words"}}
    async with strict(rig, way) as mcp:
        assert json.loads(said(await call(mcp, "route", arguments))) == arguments
        assert json.loads(said(await call(mcp, "route", {"region": None, "where": []}))) == {
            "region": None,
            "where": [],
        }
        assert "integer below 2^53" in said(await call(mcp, "route", {"shard": 2**53}))
        assert "too long for a header" in said(await call(mcp, "route", {"region": "x" * 9000}))
        direct = await mcp.requests.call_directly("new", "route", arguments, {"progressToken": 1})
        assert not direct.is_error
    assert len(rig.received("tools/call")) == 3


async def test_tools_with_forbidden_marks_are_left_out_over_http_only(rig: Rig) -> None:
    async with strict(rig, "json") as mcp:
        assert "mcp__new__wrong" not in mcp.tools()
        (notice,) = mcp.notices()
        assert "`wrong`" in notice
        assert "x-mcp-header" in notice
    async with strict(rig, "pipes") as mcp:
        assert "mcp__new__wrong" in mcp.tools()
        assert mcp.notices() == ()


@all_ways
async def test_an_error_of_the_server_is_that_of_the_call(rig: Rig, way: str) -> None:
    async with strict(rig, way) as mcp:
        assert TOOLS_CHANGED in said(await call(mcp, "changed"))
        with pytest.raises(Exception, match="no method x/y"):
            await mcp.servers["new"].request("x/y", {})
        assert said(await call(mcp, "echo", {"text": "x"})) == "x"


@all_ways
async def test_changed_tools_are_offered_where_the_server_announces_them(rig: Rig, way: str) -> None:
    async with strict(rig, way, announces=True) as mcp:
        await until(lambda: bool(rig.received("subscriptions/listen")))
        assert "mcp__new__grow" in mcp.tools()
        assert said(await call(mcp, "grow")) == "grown"
        await until(lambda: "mcp__new__grown" in mcp.tools())
        assert "mcp__new__grow" not in mcp.tools()
    assert len(rig.received("subscriptions/listen")) == 1


@all_ways
async def test_a_server_that_announces_nothing_is_not_listened_to(rig: Rig, way: str) -> None:
    async with strict(rig, way) as mcp:
        assert said(await call(mcp, "grow")) == "grown"
        assert said(await call(mcp, "echo", {"text": "x"})) == "x"
        assert "mcp__new__grown" not in mcp.tools()
    assert rig.received("subscriptions/listen") == []


@pytest.mark.parametrize("tool", ["die", "dies-asking"])
@all_ways
async def test_an_end_costs_that_call_and_the_era_is_remembered(rig: Rig, way: str, tool: str) -> None:
    answering(rig, THREE)
    async with strict(rig, way) as mcp:
        assert "tools/call failed" in said(await call(mcp, tool))
        assert said(await call(mcp, "echo", {"text": "again"})) == "again"
    assert len(rig.received("tools/call")) == (2 if tool == "die" else 3)
    assert len(rig.received("initialize")) == 1
    assert len(rig.received("server/discover")) == (2 if way == "pipes" else 1)
    assert await gone(rig.pids())


@pytest.mark.parametrize("discovers_first", [True, False])
@all_ways
async def test_the_feature_changes_the_order_over_http_alone(
    rig: Rig, way: str, discovers_first: bool
) -> None:
    rig.discovers_first = discovers_first
    async with strict(rig, way) as mcp:
        assert said(await call(mcp, "echo", {"text": "x"})) == "x"
    assert bool(rig.received("initialize")) is (way == "pipes" or not discovers_first)
