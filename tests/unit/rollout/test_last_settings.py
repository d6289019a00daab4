"""The last turn's settings, and reading a file from its end."""

import os
import tracemalloc
from pathlib import Path

import pytest

from app_server.core.errors import RolloutUnreadable
from app_server.core.rollout.last_state import last_turn_context
from app_server.core.rollout.lines import BLOCK, MOST_KEPT, lines_from_the_end
from tests.unit.rollout.stored import raw_line


def from_the_end(path: Path, mark: bytes) -> list[bytes]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return list(lines_from_the_end(fd, mark))
    finally:
        os.close(fd)


def turn_context(model: str) -> bytes:
    payload = {
        "cwd": "/work",
        "approval_policy": "never",
        "sandbox_policy": {"type": "read-only"},
        "model": model,
        "summary": "auto",
    }
    return raw_line("turn_context", payload).replace(b'"type": "turn_context"', b'"type":"turn_context"')


def test_lines_come_back_to_front_wherever_blocks_end(tmp_path: Path) -> None:
    lengths = (5, 0, BLOCK - 3, BLOCK, 2 * BLOCK + 7, 3)
    lines = [b"%d<mark>" % n + b"x" * length for n, length in enumerate(lengths)]
    between = b"y" * (BLOCK - 1)
    for end in (b"", b"\n"):
        path = tmp_path / "file"
        path.write_bytes(b"\n".join([*lines, between, *lines]) + end)
        assert from_the_end(path, b"<mark>") == [*lines[::-1], *lines[::-1]]
        assert from_the_end(path, b"3<mark>") == [lines[3]] * 2
        assert from_the_end(path, b"<mark>x<mark>") == []
    path.write_bytes(b"")
    assert from_the_end(path, b"<mark>") == []


def test_a_line_with_several_marks_comes_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"<mark> and <mark>\nnone\n<mark>")
    assert from_the_end(path, b"<mark>") == [b"<mark>", b"<mark> and <mark>"]


def test_a_line_without_end_costs_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"<mark>\n" + b"x" * (MOST_KEPT + BLOCK) + b"<mark>\n<mark> last\n")
    assert from_the_end(path, b"<mark>") == [b"<mark> last", b"<mark>"]
    os.truncate(path, 1 << 40)
    tracemalloc.start()
    try:
        assert from_the_end(path, b"<mark>") == []
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST_KEPT
    finally:
        tracemalloc.stop()


def test_the_last_turn_that_can_be_read_counts(tmp_path: Path) -> None:
    path = tmp_path / "rollout"
    path.write_bytes(turn_context("first") + turn_context("second") + b'{"type":"turn_context", torn')
    found = last_turn_context(path)
    assert found is not None
    assert found.model == "second"
    path.write_bytes(raw_line("event_msg", {"type": "user_message", "message": '"type":"turn_context"'}))
    assert last_turn_context(path) is None


def test_a_file_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(RolloutUnreadable, match="no such file"):
        last_turn_context(tmp_path / "rollout")
