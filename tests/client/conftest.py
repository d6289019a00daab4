from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.library import WAYS, MakeLibraryWorld, Way, library_worlds


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """How the server is reached: every test that uses it runs both ways."""
    chosen: Way = request.param
    return chosen


@pytest.fixture
def library(tmp_path: Path, way: Way) -> MakeLibraryWorld:
    return library_worlds(tmp_path, way)
