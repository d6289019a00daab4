"""The synchronous face: the same scenarios without an event loop of the caller's."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal
from pydantic import BaseModel

from app_server.client import ApprovalRequest, CommandApprovalRequest, RequestRefused, ServerEnded
from app_server.client.sync import SyncAppServer
from protocol.v2.item_events import AgentMessageDeltaNotification
from protocol.v2.turn import TurnCompletedNotification, TurnStatus
from tests.support.library import Way, connector_to, serving_model
from tests.support.scripted_model import Hold, Reply, ScriptedModel, begins_to_say, reply, runs, says, word


@contextmanager
def serving(
    root: Path, way: Way, *replies: Reply, on_approval: Callable[[ApprovalRequest], bool] | None = None
) -> Iterator[SyncAppServer]:
    """A scripted model in a thread, and a server that asks it."""
    for folder in ("home", "workspace", "user"):
        (root / folder).mkdir()
    with start_blocking_portal() as portal:
        model = serving_model(ScriptedModel(list(replies)), root, {"approval_policy": "untrusted"})
        with portal.wrap_async_context_manager(model) as environment:
            connector = connector_to(way, root, environment)
            with SyncAppServer.connect(connector, on_approval=on_approval) as server:
                yield server


def test_threads_turns_and_lists(tmp_path: Path, way: Way) -> None:
    asked: list[str] = []

    def decide(request: ApprovalRequest) -> bool:
        assert isinstance(request, CommandApprovalRequest)
        asked.append(request.command)
        return True

    replies = (
        reply(runs("touch", "made")),
        reply(says("Made.")),
        reply(begins_to_say(), word("Bye"), says("Bye")),
    )
    with serving(tmp_path, way, *replies, on_approval=decide) as server:
        thread = server.start_thread()
        assert thread.run("Make a file.").final_message == "Made."
        assert asked == ["touch made"]
        thread.set_name("files")
        stream = thread.stream("Bye.")
        texts = [event.delta for event in stream if isinstance(event, AgentMessageDeltaNotification)]
        assert "".join(texts) == "Bye"
        assert stream.result().completed
        assert [(each.id, each.name) for each in server.threads(search="files")] == [(thread.id, "files")]
        resumed = server.resume_thread(thread.id, turns=True)
        assert len(resumed.opened.thread.turns) == 2
        copy = thread.fork()
        assert copy.opened.thread.forked_from_id == thread.id
        with pytest.raises(RequestRefused):
            thread.steer("Nothing runs.")
        thread.interrupt()
        copy.archive()
        assert [model.model for model in server.models() if model.is_default] != []
    assert (tmp_path / "workspace" / "made").exists()


class Answer(BaseModel):
    number: int


def test_structured_output(tmp_path: Path, way: Way) -> None:
    with serving(tmp_path, way, reply(says('{"number": 42}'))) as server:
        assert server.start_thread().run("Which number?", output=Answer).output == Answer(number=42)


def test_events_of_a_thread(tmp_path: Path, way: Way) -> None:
    with serving(tmp_path, way, reply(says("Hello"))) as server:
        thread = server.start_thread()
        with thread.events() as events:
            turn = thread.start_turn("hi")
            ends = (event for event in events if isinstance(event, TurnCompletedNotification))
            assert next(ends).turn.id == turn.id
        assert turn.result().final_message == "Hello"
        assert not turn.running


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_interrupts_the_turn_of_a_run(tmp_path: Path, way: Way) -> None:
    hold = Hold()
    with serving(tmp_path, way, reply(begins_to_say(), word("a"), hold), reply(says("next"))) as server:
        thread = server.start_thread()
        with thread.events() as events:

            def press_when_it_speaks() -> None:
                next(event for event in events if isinstance(event, AgentMessageDeltaNotification))
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

            other = threading.Thread(target=press_when_it_speaks)
            other.start()
            with pytest.raises(KeyboardInterrupt):
                pytest.fail(f"nobody interrupted it: {thread.run('Go on.')}")
            other.join()
            end = next(event for event in events if isinstance(event, TurnCompletedNotification))
            assert end.turn.status is TurnStatus.INTERRUPTED
        assert thread.run("And now?").final_message == "next"


def test_an_exception_of_the_block_comes_out_as_it_is(tmp_path: Path, way: Way) -> None:
    with pytest.raises(KeyboardInterrupt), serving(tmp_path, way):
        raise KeyboardInterrupt


def test_a_server_that_cannot_start_says_why() -> None:
    code = "import sys; print('no disk', file=sys.stderr); sys.exit(3)"
    with (
        pytest.raises(ServerEnded, match=r"exit status 3\nno disk"),
        SyncAppServer.spawn([sys.executable, "-c", code]),
    ):
        pass
