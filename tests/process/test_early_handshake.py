"""A client need not wait for imports to be greeted, whatever it says that it can do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.base import Json
from tests.support.pipes import Piped

pytestmark = pytest.mark.process

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
