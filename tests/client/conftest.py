from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.library import (
    WAYS,
    MakeLibraryWorld,
    SharedServer,
    Way,
    library_worlds,
    shared_server,
)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """Return how the server is reached. Every test with this fixture runs in both ways."""
    chosen: Way = request.param
    return chosen


@pytest.fixture(scope="module")
async def shared_process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedServer]:
    """Yield a server in a process of its own, for those tests of a module that leave it unchanged."""
    async with shared_server(tmp_path_factory.mktemp("shared")) as shared:
        yield shared


@pytest.fixture
def library(tmp_path: Path, way: Way, request: pytest.FixtureRequest) -> MakeLibraryWorld:
    shared = request.getfixturevalue("shared_process") if way == "subprocess" else None
    return library_worlds(tmp_path, way, shared)
