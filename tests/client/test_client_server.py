"""The whole server through the client library: threads that are listed, resumed, forked, compacted; and servers that
end badly.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from app_server.client import (
    AppServer,
    InvalidArgument,
    RequestRefused,
    ServerEnded,
    ServerLink,
    SubprocessConnector,
)
from app_server.client.link import ProcessLink
from app_server_protocol.v2.items import AgentMessageThreadItem
from app_server_protocol.v2.server import ClientInfo
from app_server_protocol.values import replace
from tests.support.library import MakeLibraryWorld, Way, connector_to, serving_model
from tests.support.program import SCRIPT
from tests.support.scripted_model import Hold, Reply, ScriptedModel, begins_to_say, reply, says, word
from tests.support.world import make_folders

pytestmark = pytest.mark.scenario


async def test_threads_are_listed_by_pages_and_found_by_a_text(library: MakeLibraryWorld) -> None:
    async with library(*(reply(says("ok")) for _ in range(3))) as w:
        here = w.root / "paged"
        here.mkdir()
        made = []
        for name in ("red", "green", "blue"):
            thread = await w.server.start_thread(cwd=here)
            await thread.run(f"Paint it {name}.")
            made.append(thread.id)
        listed = [thread.id async for thread in w.server.threads(cwd=here, page_size=1, sort_direction="asc")]
        assert listed == made
        assert [thread.id async for thread in w.server.threads(cwd=here, search="green")] == [made[1]]
        assert [thread.id async for thread in w.server.threads(cwd=w.root / "elsewhere")] == []
        await thread.archive()
        assert [each.id async for each in w.server.threads(cwd=here, sort_direction="asc")] == made[:2]
        assert [each.id async for each in w.server.threads(cwd=here, archived=True)] == [thread.id]
        with pytest.raises(RequestRefused):
            await thread.run("Too late.")


async def test_a_thread_is_shared_forked_and_compacted(library: MakeLibraryWorld) -> None:
    replies = [reply(says(text)) for text in ("One.", "Two.", "Other two.", "They count.", "Three.")]
    async with library(*replies) as w:
        thread = await w.server.start_thread()
        same = await w.server.resume_thread(thread.id)
        turn = await thread.start_turn("First.")
        assert (await same.turn(turn.id).result()).final_message == "One."
        copy = await thread.fork()
        assert (await thread.run("Second.")).final_message == "Two."
        assert (await copy.run("Second, again.")).final_message == "Other two."
        assert "Second." not in str(w.model.requests[-1].input)
        assert copy.opened.thread.forked_from_id == thread.id
        result = await thread.compact()
        assert result.completed
        assert "contextCompaction" in [item.type for item in result.items]
        await thread.run("What did I miss?")
        assert "They count." in str(w.model.requests[-1].body)


async def test_a_thread_is_resumed_by_another_server(library: MakeLibraryWorld) -> None:
    async with library(reply(says("I am Ada.")), own=True) as w:
        id = (thread := await w.server.start_thread(developer_instructions="You are Ada.")).id
        await thread.run("Who are you?")
    async with library(reply(says("Still Ada.")), own=True) as w:
        thread = await w.server.resume_thread(id, turns=True)
        [turn] = thread.opened.thread.turns
        assert [item.text for item in turn.items if isinstance(item, AgentMessageThreadItem)] == ["I am Ada."]
        assert (await thread.run("And now?")).final_message == "Still Ada."
        assert "I am Ada." in str(w.model.requests[-1].body)
        assert len((await thread.read()).turns) == 2


async def test_a_client_may_say_who_it_is(tmp_path: Path) -> None:
    bot = ClientInfo(name="bot", version="7")
    make_folders(tmp_path)
    async with serving_model(ScriptedModel([]), tmp_path, {}) as environment:
        connector = connector_to("in_process", tmp_path, environment)
        async with AppServer.connect(connector, client=bot) as server:
            assert server.info.user_agent.startswith("bot/")
            assert [model.model for model in await server.models()]


@asynccontextmanager
async def in_home(root: Path, *replies: Reply) -> AsyncIterator[KnownProcess]:
    make_folders(root)
    async with serving_model(ScriptedModel(list(replies)), root, {}) as environment:
        yield KnownProcess(
            SubprocessConnector(command=(SCRIPT,), environment=environment, cwd=root / "workspace")
        )


class KnownProcess:
    """Connector that exposes the process of its server."""

    def __init__(self, connector: SubprocessConnector) -> None:
        self.subprocess = connector
        self.pid = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ServerLink]:
        async with self.subprocess.open() as link:
            assert isinstance(link, ProcessLink)
            self.pid = link.pid
            yield link


@pytest.mark.process
async def test_a_server_that_is_killed_ends_the_run_with_its_signal(tmp_path: Path) -> None:
    hold = Hold()
    replies = (reply(begins_to_say(), word("a"), hold),)
    async with in_home(tmp_path, *replies) as connector, AppServer.connect(connector) as server:
        thread = await server.start_thread()

        async def kill() -> None:
            await hold.reached.wait()
            os.kill(connector.pid, signal.SIGKILL)

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            with pytest.raises(ServerEnded, match="signal 9"):
                await thread.run("Go on.")
        with pytest.raises(ServerEnded):
            await server.start_thread()


STUBBORN = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    id = json.loads(line).get("id")
    if id is not None:
        result = {"userAgent": "x/1", "codexHome": "/", "platformFamily": "unix", "platformOs": "linux"}
        print(json.dumps({"id": id, "result": result}), flush=True)
print("I stay", file=sys.stderr, flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.process
async def test_a_server_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("request_client.CLOSES_WITHIN", "link.ENDS_WITHIN"):
        monkeypatch.setattr(f"app_server.client.{name}", 0.1)
    lines: list[str] = []
    statuses: list[int] = []
    command = [sys.executable, "-c", STUBBORN]
    async with AppServer.spawn(command, on_stderr=lines.append, on_exit=statuses.append):
        pass
    assert statuses == [-signal.SIGKILL]


@pytest.mark.process
async def test_a_client_that_is_cancelled_waits_for_no_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server cannot end before its input has, so the wait would last its whole time limit."""
    asked: list[str] = []
    cause_of_end = ProcessLink.cause_of_end

    async def recorded(link: ProcessLink) -> str:
        asked.append("why?")
        return await cause_of_end(link)

    monkeypatch.setattr(ProcessLink, "cause_of_end", recorded)
    statuses: list[int] = []
    async with in_home(tmp_path) as connector, anyio.create_task_group() as group:
        link = replace(connector.subprocess, on_exit=statuses.append)
        async with AppServer.connect(link) as server:
            await server.start_thread()
            group.cancel_scope.cancel()
            await anyio.sleep_forever()
    assert (asked, statuses) == ([], [0])


async def test_a_command_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(ServerEnded, match="cannot start the server"):
        async with AppServer.spawn([str(tmp_path / "nothing")]):
            pass


async def test_a_misspelt_option_is_refused_as_a_call_does_and_a_wrong_value_as_all_else(
    library: MakeLibraryWorld,
) -> None:
    async with library() as w:
        with pytest.raises(TypeError, match="'approval_polcy': expected one of approval_policy, "):
            await w.server.start_thread(approval_polcy="untrusted")  # type: ignore[call-arg]
        with pytest.raises(InvalidArgument, match="`sandbox`: expected 'read-only'"):
            await w.server.start_thread(sandbox="bogus")  # type: ignore[arg-type]
        thread = await w.server.start_thread()
        for option in ("effrt", "sandbox_mode", "thread_id", "input"):
            with pytest.raises(TypeError, match=f"unexpected option '{option}'"):
                await thread.start_turn("Go on.", **{option: "low"})  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="`cwd`"):
            await thread.fork(cwd="relative\0")
        with pytest.raises(TypeError, match="unexpected option 'limit'"):
            [each async for each in w.server.threads(limit=1)]  # type: ignore[call-arg]
        with pytest.raises(InvalidArgument):
            [each async for each in w.server.threads(page_size=-1)]
        assert w.model.requests == []


MISSING_SERVER = '[mcp_servers.tea]\ncommand = "/nowhere/tea"\n'


async def test_warnings_that_no_stream_has_are_logged_or_received(
    tmp_path: Path, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    make_folders(tmp_path)
    model = ScriptedModel([reply(says("a")), reply(says("b"))])
    async with serving_model(model, tmp_path, {"modle": "x"}, MISSING_SERVER) as environment:
        connector, received = connector_to(way, tmp_path, environment), list[str]()
        async with AppServer.connect(connector, on_warning=lambda text, _: received.append(text)) as server:
            await (await server.start_thread()).run("Go on.")
        with caplog.at_level(logging.WARNING, "app_server.client.feeds"):
            async with AppServer.connect(connector) as server:
                await (await server.start_thread()).run("Go on.")
    for texts in (received, [record.getMessage() for record in caplog.records]):
        assert any("modle" in text for text in texts), texts
        assert any(text.startswith("the MCP server tea did not start: ") for text in texts), texts
