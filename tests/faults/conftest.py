from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.world import MakeWorld, worlds_in


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> MakeWorld:
    return worlds_in(tmp_path)
