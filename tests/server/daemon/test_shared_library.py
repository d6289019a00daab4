"""The client library and `exec` with a shared server: one server for all programs, and live threads of other
programs.
"""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.cli.inspect.analysis import Analyzer
from app_server.cli.inspect.session_records import read_session
from app_server.client import AppServer, shared_server
from app_server_protocol.v2.items import ItemCompletedNotification
from tests.support.inspected import INITIALIZE, Inspected
from tests.support.program import SCRIPT
from tests.support.scripted_model import Reply, ScriptedModel, reply, runs, says
from tests.support.shared import SharedHome, shared_home

ASKS = "item/commandExecution/requestApproval"

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
async def model() -> ScriptedModel:
    return ScriptedModel([])


@pytest.fixture
async def shared(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[SharedHome]:
    async with shared_home(tmp_path, model, {}) as home:
        yield home
        await anyio.to_thread.run_sync(home.run, "daemon", "stop", "--now")


def script(model: ScriptedModel, *replies: Reply) -> None:
    model.replies.extend(replies)


async def test_two_programs_are_in_one_thread(shared: SharedHome, model: ScriptedModel) -> None:
    """The second program connects to the server's socket, follows the thread live, and gets no question."""
    script(model, reply(runs("touch", "ran")), reply(says("done")))
    asked: list[str] = []

    async def decide(request: object) -> bool:
        asked.append(type(request).__name__)
        return True

    first = shared_server(environment=shared.environment, cwd=shared.root)
    async with AppServer.connect(first, on_approval=decide) as one:
        thread = await one.start_thread(approval_policy="untrusted", sandbox="workspace-write")
        reached = shared_server(
            shared.place.address(), environment={**shared.environment, "HOME": "/"}, cwd=shared.root
        )
        async with AppServer.connect(reached) as two:
            same = await two.resume_thread(thread.id)
            seen: list[str] = []
            async with same.events() as events, anyio.create_task_group() as group:

                async def follow() -> None:
                    async for event in events:
                        if isinstance(event, ItemCompletedNotification):
                            seen.append(event.item.type)
                        if seen[-1:] == ["agentMessage"]:
                            return

                group.start_soon(follow)
                result = await thread.run("go")
            assert result.final_message == "done"
            await thread.set_name("shared")
            assert seen == ["userMessage", "commandExecution", "agentMessage"]
            [listed] = [each async for each in two.threads()]
            assert (listed.id, listed.name) == (thread.id, "shared")
    assert len(asked) == 1
    assert (shared.root / "ran").exists()
    assert len(shared.servers()) == 1


async def test_exec_uses_the_server_that_is_shared(shared: SharedHome, model: ScriptedModel) -> None:
    script(model, reply(says("from the shared one")), reply(says("from its own")))

    def run(*words: str) -> tuple[str, int]:
        done = subprocess.run(
            (SCRIPT, "exec", *words, "hello"),
            env={**shared.environment, "APP_SERVER_SHARED": "1"},
            cwd=shared.root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), len(shared.servers())

    assert await anyio.to_thread.run_sync(run) == ("from the shared one", 1)
    pids = shared.servers()
    assert await anyio.to_thread.run_sync(run, "--ephemeral") == ("from its own", 1)
    assert shared.servers() == pids


async def test_what_two_proxies_pass_is_inspected(shared: SharedHome, model: ScriptedModel) -> None:
    """The proxy whose question was answered by the other sees that it is resolved; neither reports a broken rule."""
    script(model, reply(runs("touch", "ran")), reply(says("done")))
    records = [shared.root / "first.jsonl", shared.root / "second.jsonl"]

    def play() -> None:
        first, second = (
            Inspected(
                shared.root, "--record", str(record), "--", SCRIPT, "proxy", environment=shared.environment
            )
            for record in records
        )
        first.send(INITIALIZE)
        first.receive()
        opened = {"cwd": str(shared.root), "approvalPolicy": "untrusted"}
        first.send({"id": 2, "method": "thread/start", "params": opened})
        while (answer := first.receive()).get("id") != 2:
            pass
        thread = answer["result"]["thread"]["id"]
        words = [{"type": "text", "text": "go"}]
        first.send({"id": 3, "method": "turn/start", "params": {"threadId": thread, "input": words}})
        first.receive_until(ASKS)
        second.send(INITIALIZE)
        second.receive()
        second.send({"id": 2, "method": "thread/resume", "params": {"threadId": thread}})
        asked = second.receive_until(ASKS)
        second.send({"id": asked["id"], "result": {"decision": "accept"}})
        for client in (first, second):
            client.receive_until("turn/completed")
            client.leave()

    await anyio.to_thread.run_sync(play)
    for record, withdrawn in zip(records, (1, 0), strict=True):
        analyzer = Analyzer()
        entries = [analyzer.entry(each, each.value()) for each in read_session(record.read_text())[1]]
        assert [each for entry in entries for each in entry.violations] == []
        [asked] = [entry.number for entry in entries if entry.method == ASKS and entry.kind == "request"]
        assert [entry.withdraws for entry in entries if entry.withdraws >= 0] == [asked] * withdrawn
