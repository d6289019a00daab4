"""A client need not wait for imports to be greeted, whatever it says that it can do."""

import json
import os
from pathlib import Path

import pytest

from protocol.base import Json
from tests.support.pipes import Piped

GATE = """\
import os, sys


class Gate:
    def find_spec(self, name, path=None, target=None):
        if name == "app_server.server":
            with open(os.environ["GATE"]) as gate:
                gate.read()
        return None


sys.meta_path.insert(0, Gate())
"""
"""A `sitecustomize` that lets nobody import the server before somebody writes into the gate."""


@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        {},
        {"elicitation": True},
        {"experimentalApi": True, "optOutNotificationMethods": ["thread/started"], "extensions": {}},
        {
            "elicitation": {"form": None, "url": None},
            "optOutNotificationMethods": "all",
            "experimentalApi": 1,
        },
        ["experimentalApi"],
    ],
    ids=["null", "none", "ours", "of newer clients", "of another shape", "no object"],
)
def test_initialize_is_answered_before_the_server_is_loaded(tmp_path: Path, capabilities: Json) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(GATE)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    environment = {"PYTHONPATH": str(tmp_path / "hooks"), "GATE": str(gate)}
    params = {"clientInfo": {"name": "newer", "version": "2"}, "capabilities": capabilities}
    with Piped(tmp_path, environment=environment) as server:
        greeted = server.call("initialize", params)
        assert greeted["userAgent"].startswith("newer/")
        gate.write_text("go")  # before this, nobody could load what else could answer
        assert server.call("getUserAgent") == {"userAgent": greeted["userAgent"]}
        again = server.ask("initialize", params)
        assert again["error"]["message"] == "Already initialized"


@pytest.mark.parametrize("opted_out", [(), ("thread/started",)])
def test_a_started_thread_is_announced_right_behind_its_answer(
    tmp_path: Path, opted_out: tuple[str, ...]
) -> None:
    """Once; a client that opted out hears nothing of it."""
    capabilities = {"optOutNotificationMethods": list(opted_out)}
    first = {"clientInfo": {"name": "quick", "version": "1"}, "capabilities": capabilities}
    with Piped(tmp_path) as server:
        requests = {"id": "i", "method": "initialize", "params": first}, {"id": "t", "method": "thread/start"}
        server.write(b"".join(json.dumps(each).encode() + b"\n" for each in requests))
        assert server.hear()["id"] == "i"
        answer = server.hear()
        assert answer["id"] == "t"
        if not opted_out:
            started = server.hear()
            assert started["method"] == "thread/started"
            assert started["params"] == {"thread": answer["result"]["thread"]}
            assert isinstance(started["emittedAtMs"], int)
        loaded = server.call("thread/loaded/list", {})
        assert loaded["data"] == [answer["result"]["thread"]["id"]]
        told = [message for message in server.heard if message.get("method") == "thread/started"]
        assert len(told) == (0 if opted_out else 1)
