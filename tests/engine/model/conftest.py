from collections.abc import AsyncIterator

import pytest

from tests.engine.model.provider_server import ProviderServer, provider_server


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with provider_server() as server:
        yield server
