"""The codex programs, in several versions, with which threads are exchanged.

CODEX_PEERS names them. A test that needs a version that is not named is skipped:

    CODEX_PEERS=0.58=/path/to/codex,0.169=/path/to/codex,0.171=/path/to/codex make test ARGS="-k interchange"
"""

import os

import pytest

PEERS = dict(each.split("=", 1) for each in os.environ.get("CODEX_PEERS", "").split(",") if "=" in each)


def peer(version: str) -> tuple[str, ...]:
    """Return the command of the app server of this codex version."""
    if version not in PEERS:
        pytest.skip(f"CODEX_PEERS names no {version}")
    return (PEERS[version], "app-server")
