from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.library import MakeLibraryWorld, library_worlds
from tests.support.world import MakeWorld, worlds_in


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> MakeWorld:
    return worlds_in(tmp_path)


@pytest.fixture
def library(tmp_path: Path) -> MakeLibraryWorld:
    """For scenarios that are about the agent, and not about the messages of an API."""
    return library_worlds(tmp_path, "in_process")
