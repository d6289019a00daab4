"""Third-party MCP servers in a whole conversation, as the client and the model see them."""

import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from app_server_protocol.encoding import Json
from tests.support.client import Turn
from tests.support.npm import npm_packages
from tests.support.scripted_model import ModelRequest, calls, reply, says
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

pytestmark = [pytest.mark.process, pytest.mark.integration]

OFFERING = Path(__file__).parents[2] / "support" / "official_mcp_server.py"
SLOW_START = "startup_timeout_sec = 40\n"
UNASKED = 'default_tools_approval_mode = "approve"\n'
HTTP = ("streams", "json", "stateless")
"""Answer modes of the official server over HTTP, in the order of its ports."""
ERAS = ("", " modern")
"""Ways to reach the official server in its old era, and with the revision 2026-07-28 alone."""


def stdio(name: str, *arguments: str) -> str:
    return (
        f"[mcp_servers.{name}]\ncommand = {json.dumps(sys.executable)}\n"
        f"args = {json.dumps(arguments)}\n{SLOW_START}{UNASKED}"
    )


@contextlib.asynccontextmanager
async def reached(way: str) -> AsyncIterator[str]:
    """Yield the table of the official package's server, over that transport, `modern` in the new era."""
    way, *modern = way.split()
    if way == "stdio":
        yield stdio("official", str(OFFERING), "stdio", *modern)
        return
    async with await anyio.open_process((sys.executable, str(OFFERING), "http", *modern)) as process:
        assert process.stdout is not None
        try:
            ports = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 100)
            port = ports.split()[HTTP.index(way)]
            yield f'[mcp_servers.official]\nurl = "http://127.0.0.1:{int(port)}/mcp"\n{SLOW_START}{UNASKED}'
        finally:
            process.kill()


def begun(turn: Turn) -> list[str]:
    return [event["invocation"]["tool"] for event in turn.of("mcp_tool_call_begin")]


def pictures(request: ModelRequest) -> list[str]:
    """Return the types of the pictures in the output of the call `picture`."""
    (output,) = (
        item["output"] for item in request.input if item.get("call_id") == "picture" and "output" in item
    )
    return [part["image_url"].partition(",")[0] for part in output if part["type"] == "input_image"]


async def with_progress(w: World, conversation: str, server: str, tool: str, arguments: Json) -> str:
    """Return the result of a call of the client, which asks the server to notify of its progress."""
    call = {"threadId": conversation, "server": server, "tool": tool, "arguments": arguments}
    result = await w.client.call("mcpServer/tool/call", {**call, "_meta": {"progressToken": "mine"}})
    return json.dumps(result["content"])


async def interrupted(w: World, conversation: str, log: Path) -> None:
    """Play a turn that is interrupted while the server hangs in a call."""
    await w.client.say(conversation, "hang")
    await until(lambda: log.exists() and log.read_text() == "begun")
    await w.client.interrupt(conversation)


async def test_the_time_server_tells_the_time(world: MakeWorld) -> None:
    pytest.importorskip("mcp_server_time", reason="mcp-server-time is not installed")
    tables = stdio("time", "-m", "mcp_server_time", "--local-timezone", "UTC")
    replies = (
        reply(
            calls("mcp__time__get_current_time", {"timezone": "Europe/Warsaw"}, "good"),
            calls("mcp__time__get_current_time", {"timezone": "Nowhere/Land"}, "bad"),
        ),
        reply(says("It is late")),
    )
    async with world(*replies, tables=tables) as w:
        happened = await w.client.turn(await w.open())
        first, second = w.model.requests
        assert {"mcp__time__get_current_time", "mcp__time__convert_time"} <= set(first.tools)
        assert "Europe/Warsaw" in second.outputs()["good"]
        assert "Nowhere/Land" in second.outputs()["bad"]
        good, bad = (event["result"] for event in happened.of("mcp_tool_call_end"))
        assert not good["Ok"].get("isError")
        assert bad["Ok"]["isError"]


@pytest.mark.parametrize("way", [way + era for era in ERAS for way in ("stdio", *HTTP)])
async def test_tools_pictures_resources_questions_progress_and_interrupts(
    world: MakeWorld, way: str, tmp_path: Path
) -> None:
    # In the old era, servers without streams or sessions cannot ask while a call runs.
    asks = way in ("stdio", "streams") or way.endswith("modern")
    log = tmp_path / "hang"
    replies = (
        reply(
            calls("mcp__official__add", {"a": 19, "b": 23}, "sum"),
            calls("mcp__official__fail", {}, "fail"),
            calls("mcp__official__picture", {}, "picture"),
            calls("mcp__official__order", {}, "order"),
            calls("list_mcp_resources", {}, "resources"),
            calls("list_mcp_resource_templates", {"server": "official"}, "templates"),
            calls("read_mcp_resource", {"server": "official", "uri": "note://one"}, "note"),
            calls("read_mcp_resource", {"server": "official", "uri": "image://dot"}, "dot"),
            calls("read_mcp_resource", {"server": "official", "uri": "greeting://you"}, "greeting"),
        ),
        reply(says("done")),
        reply(calls("mcp__official__hang", {"log": str(log)})),
        reply(calls("mcp__official__add", {"a": 1, "b": 2}, "sum")),
        reply(says("again")),
    )
    async with (
        reached(way) as tables,
        world(*replies, tables=tables, capabilities={"elicitation": True}) as w,
    ):
        w.client.decide("elicitationRequest", {"action": "accept", "content": {"n": 3}})
        conversation = await w.open()
        happened = await w.client.turn(conversation)
        outputs = w.model.requests[1].outputs()
        assert "42" in outputs["sum"]
        assert ("ordered 3" in outputs["order"]) is asks
        assert "note://one" in outputs["resources"]
        assert "greeting://{name}" in outputs["templates"]
        assert "a note" in outputs["note"]
        assert "image/png" in outputs["dot"]
        assert "Hello you" in outputs["greeting"]
        assert pictures(w.model.requests[1]) == ["data:image/png;base64"]
        assert set(begun(happened)) == {
            "add", "fail", "picture", "order",
            "list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource",
        }  # fmt: skip
        (failed,) = [e["result"] for e in happened.of("mcp_tool_call_end") if e["call_id"] == "fail"]
        assert failed["Ok"]["isError"]
        asked = [m["params"] for m in w.client.received() if m.get("method") == "elicitationRequest"]
        assert len(asked) == asks
        for question in asked:
            assert (question["serverName"], question["message"]) == ("official", "How many?")
            assert "n" in question["requestedSchema"]["properties"]
        told = await with_progress(w, conversation, "official", "work", {"steps": 3})
        assert "worked 3 steps for mine" in told
        await interrupted(w, conversation, log)
        again = await w.client.turn(conversation, "again")
        assert again.last_message == "again"
        assert "3" in w.model.requests[-1].outputs()["sum"]
        # Without a session, no message reaches a call of the old era. In the new era, the package notices that a client
        # has left only while it answers with a stream.
        if way not in ("stateless", "json modern"):
            await until(lambda: log.read_text() == "cancelled")


@pytest.mark.parametrize("era", ERAS)
async def test_an_open_question_ends_with_its_turn(world: MakeWorld, era: str) -> None:
    replies = reply(calls("mcp__official__order", {})), reply(says("again"))
    async with (
        reached(f"stdio{era}") as tables,
        world(*replies, tables=tables, capabilities={"elicitation": True}) as w,
    ):
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("elicitationRequest")
        await w.client.interrupt(conversation)
        again = await w.client.turn(conversation, "again")
        assert again.last_message == "again"


FAST = OFFERING.with_name("fastmcp_server.py")


@contextlib.asynccontextmanager
async def fast_reached(way: str) -> AsyncIterator[str]:
    """Yield the table of the server that is written with fastmcp, an installed program or that of `FASTMCP`."""
    program = os.environ.get("FASTMCP") or shutil.which("fastmcp")
    if program is None:
        pytest.skip("no fastmcp")
    python = str(Path(program).with_name("python"))
    limits = f"{SLOW_START}{UNASKED}"
    if way == "stdio":
        arguments = json.dumps([str(FAST), "stdio"])
        yield f"[mcp_servers.fast]\ncommand = {json.dumps(python)}\nargs = {arguments}\n{limits}"
        return
    async with await anyio.open_process((python, str(FAST), "http")) as process:
        assert process.stdout is not None
        try:
            port = int(await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 100))
            yield f'[mcp_servers.fast]\nurl = "http://127.0.0.1:{port}/mcp"\n{limits}'
        finally:
            process.kill()


@pytest.mark.parametrize("way", ["stdio", "http"])
@pytest.mark.parametrize("discovers_first", [False, True])
async def test_servers_of_fastmcp(world: MakeWorld, way: str, discovers_first: bool, tmp_path: Path) -> None:
    log = tmp_path / "hang"
    replies = (
        reply(
            calls("mcp__fast__add", {"a": 19, "b": 23}, "sum"),
            calls("mcp__fast__picture", {}, "picture"),
            calls("mcp__fast__order", {}, "order"),
            calls("read_mcp_resource", {"server": "fast", "uri": "note://one"}, "note"),
        ),
        reply(says("done")),
        reply(calls("mcp__fast__hang", {"log": str(log)})),
        reply(calls("mcp__fast__add", {"a": 1, "b": 2}, "again")),
        reply(says("again")),
    )
    async with (
        fast_reached(way) as limits,
        world(
            *replies,
            tables=f"{limits}[features]\nmcp_2026_07_28 = {json.dumps(discovers_first)}\n",
            capabilities={"elicitation": True},
        ) as w,
    ):
        w.client.decide("elicitationRequest", {"action": "accept", "content": {"value": 3}})
        conversation = await w.open()
        await w.client.turn(conversation)
        outputs = w.model.requests[1].outputs()
        assert "steps for mine" in await with_progress(w, conversation, "fast", "work", {"steps": 3})
        await interrupted(w, conversation, log)
        await w.client.turn(conversation, "again")
        assert "3" in w.model.requests[-1].outputs()["again"]
        await until(lambda: log.read_text() == "cancelled")
    assert "42" in outputs["sum"]
    assert pictures(w.model.requests[1]) == ["data:image/png;base64"]
    assert "a note" in outputs["note"]
    is_modern = discovers_first and way == "http"  # fastmcp asks in the old era only
    assert ("ordered 3" in outputs["order"]) is not is_modern


async def test_opening_does_not_wait_for_servers_and_the_first_request_does(world: MakeWorld) -> None:
    tables = stdio("late", "-c", "import time; time.sleep(1000)").replace(
        SLOW_START, "startup_timeout_sec = 1\n"
    )
    async with world(reply(says("on my own")), tables=tables) as w:
        conversation = await w.open()
        assert not w.client.events("error")
        happened = await w.client.turn(conversation)
        assert happened.last_message == "on my own"
        (failed,) = w.client.events("error")
        assert "MCP client for `late` timed out after 1 seconds" in failed["message"]


PACKAGE = "@modelcontextprotocol/server-everything@2026.8.31"
START_SECONDS = 30
LONG = "trigger-long-running-operation"
"""A tool that notifies of its progress and takes as long as it is told."""


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config) -> tuple[str, ...]:
    script = "@modelcontextprotocol/server-everything/dist/index.js"
    node, (path,) = npm_packages(pytestconfig, "mcp-everything", [PACKAGE], [script])
    return node, path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.asynccontextmanager
async def everything_reached(program: tuple[str, ...], way: str) -> AsyncIterator[str]:
    """Yield the server's table in the configuration."""
    limit = f"startup_timeout_sec = {START_SECONDS}\n"
    if way == "stdio":
        node, script = program
        arguments = json.dumps([script, "stdio"])
        yield f"[mcp_servers.everything]\ncommand = {json.dumps(node)}\nargs = {arguments}\n{limit}{UNASKED}"
        return
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "PORT": str(port)}
    async with await anyio.open_process([*program, "streamableHttp"], env=environment) as process:
        try:
            with anyio.fail_after(START_SECONDS):
                assert process.stderr is not None
                said = b""
                while b"listening" not in said:
                    said += await process.stderr.receive()
            yield f'[mcp_servers.everything]\nurl = "http://127.0.0.1:{port}/mcp"\n{limit}{UNASKED}'
        finally:
            process.kill()


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_the_server_that_offers_everything(
    world: MakeWorld, program: tuple[str, ...], way: str
) -> None:
    replies = (
        reply(
            calls("mcp__everything__echo", {"message": "ping"}, "echo"),
            calls("mcp__everything__trigger-elicitation-request", {}, "form"),
            calls("mcp__everything__get-sum", {"a": 19, "b": 23}, "sum"),
            calls("mcp__everything__get-sum", {"a": "many"}, "wrong"),
            calls("mcp__everything__get-tiny-image", {}, "picture"),
            calls("list_mcp_resources", {"server": "everything"}, "resources"),
            calls("list_mcp_resource_templates", {"server": "everything"}, "templates"),
            calls(
                "read_mcp_resource", {"server": "everything", "uri": "demo://resource/dynamic/text/7"}, "text"
            ),
            calls(
                "read_mcp_resource", {"server": "everything", "uri": "demo://resource/dynamic/blob/7"}, "blob"
            ),
        ),
        reply(says("done")),
        reply(calls(f"mcp__everything__{LONG}", {"duration": 3600, "steps": 1})),
        reply(calls("mcp__everything__echo", {"message": "pong"}, "echo")),
        reply(says("again")),
    )
    async with (
        everything_reached(program, way) as tables,
        world(*replies, tables=tables, capabilities={"elicitation": True}) as w,
    ):
        w.client.decide("elicitationRequest", {"action": "accept", "content": {"name": "Ada"}})
        conversation = await w.open()
        turn = await w.client.turn(conversation)
        first, second = w.model.requests
        outputs = second.outputs()
        told = await with_progress(w, conversation, "everything", LONG, {"duration": 0.2, "steps": 2})
        assert "Steps: 2" in told
        await w.client.say(conversation, "work for long")
        await w.client.expect("codex/event/mcp_tool_call_begin")
        await w.client.interrupt(conversation)
        await w.client.turn(conversation, "again")
        assert "pong" in w.model.requests[-1].outputs()["echo"]
    assert "Ada" in outputs["form"]
    assert "mcp__everything__echo" in first.tools
    assert "ping" in outputs["echo"]
    assert "42" in outputs["sum"]
    assert "number" in outputs["wrong"]
    assert "demo://resource/" in outputs["resources"]
    assert "demo://resource/dynamic/text/{resourceId}" in outputs["templates"]
    assert "Resource 7" in outputs["text"]
    assert "demo://resource/dynamic/blob/7" in outputs["blob"]
    assert pictures(second) == ["data:image/png;base64"]
    results = {event["call_id"]: event["result"] for event in turn.of("mcp_tool_call_end")}
    assert not results["sum"]["Ok"].get("isError")
    assert len(results) == 9
