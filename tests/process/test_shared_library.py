"""The client library and `exec` with a shared server: one server for all of them, and threads that others see live."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.client import AppServer, shared_server
from protocol.v2.item_events import ItemCompletedNotification
from tests.support.scripted_model import Reply, ScriptedModel, reply, runs, says
from tests.support.shared import SharedHome, shared_homes
from tests.support.world import SCRIPT, write_config

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
async def model() -> ScriptedModel:
    return ScriptedModel([])


@pytest.fixture
async def shared(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[SharedHome]:
    with shared_homes(tmp_path) as home:
        async with model.serving() as url:
            write_config(home.home, url, {})
            yield home
            await anyio.to_thread.run_sync(home.run, "daemon", "stop", "--now")


def script(model: ScriptedModel, *replies: Reply) -> None:
    model.replies.extend(replies)


async def test_two_programs_are_in_one_thread(shared: SharedHome, model: ScriptedModel) -> None:
    """The second one reaches the server by its socket, is in the thread live, and is asked nothing."""
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
