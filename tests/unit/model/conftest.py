from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.model.provider_server import ProviderServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def provider(anyio_backend: str) -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server
