"""The synchronous interface: the same scenarios without an event loop of the caller."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from app_server.client import (
    ApprovalRequest,
    AppServerError,
    CommandApprovalRequest,
    RequestRefused,
    ServerEnded,
)
from app_server.client.sync import SyncAppServer
from app_server.client.write_sync import TARGET, source_of_sync
from app_server_protocol.v2.items import AgentMessageDeltaNotification
from app_server_protocol.v2.turn import TurnCompletedNotification, TurnStatus
from tests.support.library import WAYS, Way, connector_to, serving_model
from tests.support.scripted_model import Hold, Reply, ScriptedModel, begins_to_say, reply, runs, says, word
from tests.support.world import make_folders

pytestmark = pytest.mark.scenario


def test_the_module_is_written_from_the_asynchronous_classes() -> None:
    assert TARGET.read_text(encoding="utf-8") == source_of_sync(), "python -m app_server.client.write_sync"


class Served:
    """Server with a synchronous interface for several tests; each has a model of its own. Requests for approval are
    accepted, and recorded.
    """

    def __init__(self, portal: BlockingPortal, root: Path) -> None:
        self._portal, self.root = portal, root
        self.asked: list[ApprovalRequest] = []

    @contextmanager
    def model(self, *replies: Reply) -> Iterator[Mapping[str, str]]:
        config = {"approval_policy": "untrusted"}
        model = serving_model(ScriptedModel(list(replies)), self.root, config)
        with self._portal.wrap_async_context_manager(model) as environment:
            yield environment

    @contextmanager
    def server(self, way: Way) -> Iterator[SyncAppServer]:
        with self.model() as environment:
            connector = connector_to(way, self.root, environment)
            with SyncAppServer.connect(connector, on_approval=self._accept) as server:
                yield server

    def _accept(self, request: ApprovalRequest) -> bool:
        self.asked.append(request)
        return True


@contextmanager
def served(root: Path) -> Iterator[Served]:
    make_folders(root)
    with start_blocking_portal() as portal:
        yield Served(portal, root)


@pytest.fixture(scope="module", params=WAYS)
def face(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, SyncAppServer]]:
    with served(tmp_path_factory.mktemp("face")) as shared, shared.server(request.param) as server:
        yield shared, server


def test_threads_turns_and_lists(face: tuple[Served, SyncAppServer]) -> None:
    shared, server = face
    replies = (
        reply(runs("touch", "made")),
        reply(says("Made.")),
        reply(begins_to_say(), word("Bye"), says("Bye")),
    )
    with shared.model(*replies):
        thread = server.start_thread()
        assert thread.run("Make a file.").final_message == "Made."
        assert [each.command for each in shared.asked if isinstance(each, CommandApprovalRequest)] == [
            "touch made"
        ]
        thread.set_name("files")
        stream = thread.stream("Bye.")
        texts = [event.delta for event in stream if isinstance(event, AgentMessageDeltaNotification)]
        assert "".join(texts) == "Bye"
        assert stream.result().completed
        assert [(each.id, each.name) for each in server.threads(search="files")] == [(thread.id, "files")]
        resumed = server.resume_thread(thread.id, turns=True)
        assert len(resumed.opened.thread.turns) == 2
        copy = thread.fork()
        other = server.fork_thread(thread.id)
        assert copy.opened.thread.forked_from_id == other.opened.thread.forked_from_id == thread.id
        with pytest.raises(RequestRefused):
            thread.steer("Nothing runs.")
        thread.interrupt()
        copy.archive()
        assert [model.model for model in server.models() if model.is_default] != []
    assert (shared.root / "workspace" / "made").exists()


def test_events_of_a_thread(face: tuple[Served, SyncAppServer]) -> None:
    shared, server = face
    with shared.model(reply(says("Hello"))):
        thread = server.start_thread()
        with thread.events() as events:
            turn = thread.start_turn("hi")
            ends = (event for event in events if isinstance(event, TurnCompletedNotification))
            assert next(ends).turn.id == turn.id
        assert turn.result().final_message == "Hello"
        assert not turn.running


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, even if the tests run in the background of a shell, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_interrupts_the_turn_of_a_run(face: tuple[Served, SyncAppServer]) -> None:
    shared, server = face
    with shared.model(reply(begins_to_say(), word("a"), Hold()), reply(says("next"))):
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
    with pytest.raises(KeyboardInterrupt), served(tmp_path) as shared, shared.server(way):
        raise KeyboardInterrupt


def test_a_server_that_cannot_start_says_why() -> None:
    code = "import sys; print('no disk', file=sys.stderr); sys.exit(3)"
    with (
        pytest.raises(ServerEnded, match=r"exit status 3\nno disk"),
        SyncAppServer.spawn([sys.executable, "-c", code]),
    ):
        pass


def test_a_forked_process_leaves_the_server_to_the_first_one(tmp_path: Path, way: Way) -> None:
    """Calls in the forked process fail at once, and leaving its blocks ends nothing."""
    said, answer = os.pipe()
    with served(tmp_path) as shared, shared.model() as environment:
        child = -1
        try:
            with (
                SyncAppServer.connect(connector_to(way, tmp_path, environment)) as server,
                server.events() as events,
            ):
                child = os.fork()
                if child == 0:
                    with pytest.raises(AppServerError, match="the process that this one was forked from"):
                        server.models()
                    events.close()
                    raise SystemExit
                assert os.waitpid(child, 0) == (child, 0)
                assert (os.read(said, 20), len(server.models()) > 0) == (b"left the blocks", True)
        except SystemExit:
            os.write(answer, b"left the blocks")
        finally:
            if child == 0:
                os._exit(0)  # the first process owns the blocks that are still open
