from collections.abc import AsyncIterator

import pytest

from tests.unit.model.provider_server import ProviderServer


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server
