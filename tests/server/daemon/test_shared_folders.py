"""The working directory of clients of a shared server that send none, such as `codex --remote` without `--cd`."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.shared import INITIALIZE, SharedHome, answer_of, read_line, shared_homes

pytestmark = pytest.mark.process

THREAD_START: Json = {
    "model": None,
    "modelProvider": None,
    "cwd": None,
    "runtimeWorkspaceRoots": None,
    "approvalPolicy": None,
    "sandbox": "read-only",
    "config": {},
    "ephemeral": False,
    "threadSource": "user",
    "environments": None,
}
"""Parameters that the terminal interface of codex 0.169 sends when it was started without `--cd`, shortened."""


@pytest.fixture
def shared(short_folder: Path) -> Iterator[SharedHome]:
    with shared_homes(short_folder) as made:
        yield made


def opened(client: socket.socket) -> Json:
    """Return the answer to `thread/start`."""
    assert "result" in answer_of(client, INITIALIZE)
    client.sendall(json.dumps({"id": 2, "method": "thread/start", "params": THREAD_START}).encode() + b"\n")
    while (message := json.loads(read_line(client))).get("id") != 2:
        assert "id" not in message
    return message


def test_a_server_that_was_started_by_hand_lends_its_folder(shared: SharedHome) -> None:
    with shared.server() as server:
        server.listening_on(1)
        with shared.connect() as client:
            assert opened(client)["result"]["cwd"] == str(shared.root)


def test_a_server_that_was_started_in_the_background_has_none_to_lend(shared: SharedHome) -> None:
    assert shared.daemon("start")[0] == 0
    with shared.connect() as client:
        error = opened(client)["error"]
        assert (error["code"], error["data"]["field"]) == (-32602, "cwd")
        assert error["message"].endswith("`cwd` needs an absolute path")
