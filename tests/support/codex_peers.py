"""The programs of codex that threads are handed to, several versions of them.

They are named by CODEX_PEERS; tests that need one that is not named are skipped:

    CODEX_PEERS=0.58=/path/to/codex,0.169=/path/to/codex,0.171=/path/to/codex make test ARGS="-k interchange"
"""

import os

import pytest

PEERS = dict(each.split("=", 1) for each in os.environ.get("CODEX_PEERS", "").split(",") if "=" in each)


def peer(version: str) -> tuple[str, ...]:
    """Return the command of its app server."""
    if version not in PEERS:
        pytest.skip(f"CODEX_PEERS names no {version}")
    return (PEERS[version], "app-server")
