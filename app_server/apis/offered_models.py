"""The models that can be chosen, ours and those of the configured provider where it can be asked, by pages.

Each API that lists them shows the same ones in its own shape.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from app_server.apis.services import ProviderModels
from app_server.core.config.settings import UserSettings
from app_server.core.config.types import Config, RequestOverrides
from app_server.core.errors import CoreError
from app_server.core.model.families import KNOWN_MODELS, KnownModel
from app_server.rpc.errors import invalid_request


class ModelContext(Struct, frozen=True):
    config: UserSettings
    models: ProviderModels

    async def offered(self, provider: str | None = None) -> Sequence[KnownModel]:
        """The first is the default. A provider that does not answer costs only its own models.

        A `provider` that is named must be one. Raises ConfigError.
        """
        config = None if provider is None else self.config.load(RequestOverrides(model_provider=provider))
        names = {model.name for model in KNOWN_MODELS}
        own = [_named(name) for name in await self._provider_models(config) if name not in names]
        return [*KNOWN_MODELS, *own]

    async def _provider_models(self, config: Config | None) -> Sequence[str]:
        try:
            return await self.models.names(config or self.config.load())
        except CoreError:
            return ()


class ModelPage(Struct, frozen=True):
    models: tuple[KnownModel, ...]
    next_cursor: str | None
    first: bool
    """Whether the default is on it, as its first."""


def page_of_models(models: Sequence[KnownModel], cursor: str | None, limit: int | None) -> ModelPage:
    """Pages by position. Raises RpcError."""
    start = _position(cursor, len(models))
    size = len(models) if limit is None else max(limit, 1)
    end = min(start + size, len(models))
    return ModelPage(tuple(models[start:end]), str(end) if end < len(models) else None, start == 0)


def _position(cursor: str | None, total: int) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit():
        raise invalid_request(f"invalid cursor: {cursor[:100]}", "invalid_params", "cursor")
    if len(cursor) > len(str(total)) + 100 or int(cursor) > total:
        raise invalid_request(
            f"cursor {cursor[:100]} exceeds total models {total}", "invalid_params", "cursor"
        )
    return int(cursor)


def _named(name: str) -> KnownModel:
    return KnownModel(name, "Offered by the configured provider.", ())
