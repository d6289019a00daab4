"""The end of a server that clients share: turns that run at that time, what clients are notified of, and the servers
that start after it.
"""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from app_server.engine.support.socket_paths import place_of_home
from app_server_protocol.encoding import Json
from tests.support.client import Client, Refused
from tests.support.pipes import PATIENCE
from tests.support.places import Place, Served, place_in
from tests.support.program import SCRIPT
from tests.support.scripted_model import Hold, begins_to_say, calls, done, reply, says, word
from tests.support.shared import running_server
from tests.support.thread_client import ended, start, turn
from tests.support.waiting import until

pytestmark = pytest.mark.process

PROXY = (SCRIPT, "proxy")
WHOLE = "one two three"


@pytest.fixture
async def place(short_folder: Path) -> AsyncIterator[Place]:
    async with place_in(short_folder) as made:
        yield made


def words_before(hold: Hold) -> tuple[Json | Hold, ...]:
    """Return the events of a message in the middle of which the model waits."""
    content = [{"type": "output_text", "text": WHOLE}]
    message = {"type": "message", "role": "assistant", "id": "msg-1", "content": content}
    return (begins_to_say(), word("one "), hold, word("two three"), done(message))


async def begin(place: Place, client: Client) -> tuple[str, str]:
    thread = await start(client, cwd=str(place.workspace))
    return thread, await turn(client, thread)


def deltas(client: Client) -> str:
    heard = (m["params"] for m in client.received() if m.get("method") == "item/agentMessage/delta")
    return "".join(each["delta"] for each in heard)


async def left(client: Served) -> int:
    """Wait until a proxy has ended by itself; return its exit status."""
    with anyio.fail_after(PATIENCE):
        return await client.process.wait()


async def gone(server: Process) -> int:
    with anyio.fail_after(PATIENCE):
        return await server.wait()


async def test_a_turn_that_runs_ends_as_ever_before_its_client_sees_the_end(place: Place) -> None:
    hold = Hold()
    place.model.replies[:] = [reply(*words_before(hold))]
    async with running_server(place) as server, place.server(command=PROXY) as one:
        _, turn_id = await begin(place, one.client)
        await hold.reached.wait()
        socket = place_of_home(str(place.home)).socket
        server.send_signal(signal.SIGTERM)
        await until(lambda: not os.path.lexists(socket), "the name is given up at once")
        hold.release()
        assert (await ended(one.client, turn_id))["status"] == "completed"
        assert await left(one) == 0
        assert await gone(server) == 0
        assert deltas(one.client) == WHOLE
    assert WHOLE in place.rollouts()[0].read_text()


@pytest.mark.parametrize("how", ["a second SIGTERM", "SIGINT", "the time is over"])
async def test_a_turn_that_does_not_end_is_interrupted(place: Place, how: str) -> None:
    hold = Hold()
    place.model.replies[:] = [reply(*words_before(hold))]
    if how == "the time is over":
        place.tables = "[app_server]\ndrain_seconds = 0.1\n"
        place.configure()
    async with running_server(place) as server, place.server(command=PROXY) as one:
        _, turn_id = await begin(place, one.client)
        await hold.reached.wait()
        await one.client.expect("item/agentMessage/delta")
        server.send_signal(signal.SIGINT if how == "SIGINT" else signal.SIGTERM)
        if how == "a second SIGTERM":
            await until(lambda: not os.path.lexists(place_of_home(str(place.home)).socket))
            server.send_signal(signal.SIGTERM)
        assert (await ended(one.client, turn_id))["status"] == "interrupted"
        assert await left(one) == 0
        assert await gone(server) == 0
        hold.release()
    assert "one " in place.rollouts()[0].read_text()


async def test_while_it_drains_nothing_new_begins_and_what_runs_is_served(place: Place) -> None:
    hold = Hold()
    place.model.replies[:] = [reply(*words_before(hold))]
    async with (
        running_server(place) as server,
        place.server(command=PROXY) as one,
        place.server(command=PROXY) as other,
    ):
        thread, turn_id = await begin(place, one.client)
        idle = await start(other.client, cwd=str(place.workspace))
        await hold.reached.wait()
        server.send_signal(signal.SIGTERM)
        await until(lambda: not os.path.lexists(place_of_home(str(place.home)).socket))
        for method, params in (
            ("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "more"}]}),
            ("thread/start", {"cwd": str(place.workspace)}),
            ("thread/fork", {"threadId": thread}),
            ("review/start", {"threadId": idle, "target": {"type": "uncommittedChanges"}}),
        ):
            with pytest.raises(Refused) as refused:
                await other.client.call(method, params)
            assert refused.value.code == -32600
            assert refused.value.message == "Server is draining; retry after reconnecting"
            assert refused.value.data["reason"] == "serverShuttingDown"
        assert (await other.client.call("thread/list", {}))["data"]
        await other.client.call("turn/interrupt", {"threadId": thread, "turnId": turn_id})
        assert (await ended(one.client, turn_id))["status"] == "interrupted"
        assert (await left(one), await left(other), await gone(server)) == (0, 0, 0)
        hold.release()


async def test_the_next_client_waits_for_no_turn_of_the_old_server(place: Place) -> None:
    """The new server can have the thread once its turn has ended in the old one."""
    hold = Hold()
    place.model.replies[:] = [reply(*words_before(hold)), reply(says("again"))]
    async with running_server(place) as old, place.server(command=PROXY) as one:
        thread, turn_id = await begin(place, one.client)
        idle = await start(one.client, cwd=str(place.workspace))
        await hold.reached.wait()
        old.send_signal(signal.SIGTERM)
        await until(lambda: not os.path.lexists(place_of_home(str(place.home)).socket))
        async with running_server(place) as new, place.server(command=PROXY) as other:
            with pytest.raises(Refused, match="already has an active writer"):
                await other.client.call("thread/resume", {"threadId": thread})
            hold.release()
            await ended(one.client, turn_id)
            assert await left(one) == 0
            await other.client.call("thread/resume", {"threadId": thread})
            assert (await ended(other.client, await turn(other.client, thread)))["status"] == "completed"
            assert old.returncode is not None or await gone(old) == 0
            assert idle != thread
            new.send_signal(signal.SIGTERM)
            assert (await left(other), await gone(new)) == (0, 0)


async def test_a_command_of_a_turn_cannot_come_in_and_serves_itself(place: Place) -> None:
    """A command that a model runs must not answer for the user, even if no sandbox confines it."""
    inside = (
        f"{SCRIPT} proxy --no-start </dev/null 2>err; echo $? >status; {SCRIPT} proxy </dev/null 2>alone; "
        f"APP_SERVER_SHARED=1 {SCRIPT} exec hi </dev/null >said"
    )
    place.model.replies[:] = [
        reply(calls("shell", {"command": ["sh", "-c", inside], "timeout_ms": 60_000})),
        reply(says("from inside")),
        reply(says("done")),
    ]
    async with running_server(place) as server, place.server(command=PROXY) as one:
        thread, turn_id = await begin(place, one.client)
        await ended(one.client, turn_id)
        loaded = await one.client.call("thread/loaded/list", {})
        assert loaded["data"] == [thread]  # the thread of `exec` is not in this server
        server.send_signal(signal.SIGTERM)
        assert (await left(one), await gone(server)) == (0, 0)
    closes = "the server there closes the connection"
    assert (place.workspace / "err").read_text() == f"app-server: {closes}\n"
    assert (place.workspace / "status").read_text() == "1\n"
    assert (place.workspace / "alone").read_text() == f"app-server: this client is served alone: {closes}\n"
    assert (place.workspace / "said").read_text() == "from inside\n"
