"""One writer per rollout. A user who may only read the file cannot block the writer."""

import fcntl
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app_server.engine.config.config_values import HistoryConfig
from app_server.engine.storage import disk
from app_server.engine.storage.history_file import MessageHistory
from app_server.engine.storage.writer import RolloutWriter
from app_server.engine.support.engine_errors import RolloutBusy
from app_server_protocol.engine.notices import HistoryEntry

NAME = "rollout-2025-01-02T03-04-05-01234567-89ab-cdef-0123-456789abcdef.jsonl"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks of open files")


def now() -> datetime:
    return datetime(2025, 1, 2, tzinfo=UTC)


@pytest.fixture(params=["sessions/2025/01/02", "archived_sessions"])
def rollout(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "home" / str(request.param) / NAME
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    return path


@pytest.mark.parametrize("kind", [fcntl.LOCK_EX, fcntl.LOCK_SH])
def test_who_may_read_a_rollout_cannot_hold_up_its_writer(rollout: Path, kind: int) -> None:
    with rollout.open("rb") as file:
        fcntl.flock(file, kind)
        writer = RolloutWriter.resume(rollout, now)
        assert writer.problem is None
        writer.close()


def test_writers_of_different_rollouts_do_not_meet(rollout: Path) -> None:
    other = rollout.with_name(NAME.replace("abcdef", "fedcba"))
    other.write_text("{}\n")
    first, second = RolloutWriter.resume(rollout, now), RolloutWriter.resume(other, now)
    assert (first.problem, second.problem) == (None, None)
    first.close()
    second.close()


def test_a_rollout_outside_of_any_home_is_locked_itself(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text("{}\n")
    first = RolloutWriter.resume(path, now)
    with pytest.raises(RolloutBusy):
        RolloutWriter.resume(path, now)
    first.close()
    assert os.listdir(tmp_path) == [NAME]


def test_a_reader_of_the_message_history_does_not_hold_it_up(tmp_path: Path) -> None:
    history = MessageHistory(tmp_path, HistoryConfig())
    history.append(HistoryEntry(conversation_id="a", ts=1, text="one"))
    with history.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        history.append(HistoryEntry(conversation_id="a", ts=2, text="two"))
    assert history.metadata()[1] == 2


def test_a_history_that_is_locked_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with (
        disk.home_lock(tmp_path, disk.HISTORY, 0),
        pytest.raises(BlockingIOError),
        disk.home_lock(tmp_path, disk.HISTORY, 0.01),
    ):
        pass


def test_a_lock_file_that_is_a_link_or_a_pipe_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / disk.FILE_NAME).symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic"), disk.home_lock(tmp_path, disk.HISTORY, 0):
        pass
    (tmp_path / disk.FILE_NAME).unlink()
    os.mkfifo(tmp_path / disk.FILE_NAME)
    with pytest.raises(OSError, match="regular"), disk.home_lock(tmp_path, disk.HISTORY, 0):
        pass
