"""`model/list`: the known models, and those of the configured provider if it responds."""

from __future__ import annotations

from app_server.apis.services import ConfigSource
from app_server.apis.warm_up import ProviderModels
from app_server.core.errors import CoreError
from app_server.core.model.catalogue import EFFORT_WORDS, KNOWN_MODELS, KnownModel
from app_server.rpc.errors import invalid_request
from protocol.policy import ReasoningEffort
from protocol.records import dataclass
from protocol.v1.models import ModelEntry, ModelListParams, ModelListResponse, ReasoningEffortOption


@dataclass(frozen=True, slots=True)
class ModelContext:
    config: ConfigSource
    models: ProviderModels


async def model_list(context: ModelContext, params: ModelListParams) -> ModelListResponse:
    """Pages by position. If the provider fails, only its models are missing."""
    entries = [_known(model, first=n == 0) for n, model in enumerate(KNOWN_MODELS)]
    names = {entry.model for entry in entries}
    entries += [_named(name) for name in await _provider_models(context) if name not in names]
    start = _position(params.cursor, len(entries))
    limit = len(entries) if params.limit is None else max(params.limit, 1)
    end = min(start + limit, len(entries))
    return ModelListResponse(
        data=tuple(entries[start:end]), next_cursor=str(end) if end < len(entries) else None
    )


async def _provider_models(context: ModelContext) -> list[str]:
    try:
        return list(await context.models.names(context.config.load()))
    except CoreError:
        return []


def _position(cursor: str | None, total: int) -> int:
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit():
        raise invalid_request(f"invalid cursor: {cursor[:100]}", "invalid_params", "cursor")
    if int(cursor) > total:
        raise invalid_request(
            f"cursor {cursor[:100]} exceeds total models {total}", "invalid_params", "cursor"
        )
    return int(cursor)


def _known(model: KnownModel, *, first: bool) -> ModelEntry:
    return ModelEntry(
        id=model.name,
        model=model.name,
        display_name=model.name,
        description=model.description,
        supported_reasoning_efforts=tuple(_effort(effort) for effort in model.efforts),
        default_reasoning_effort=model.default_effort,
        is_default=first,
    )


def _named(name: str) -> ModelEntry:
    return ModelEntry(
        id=name,
        model=name,
        display_name=name,
        description="Offered by the configured provider.",
        supported_reasoning_efforts=(),
        default_reasoning_effort=ReasoningEffort.MEDIUM,
        is_default=False,
    )


def _effort(effort: ReasoningEffort) -> ReasoningEffortOption:
    return ReasoningEffortOption(reasoning_effort=effort, description=EFFORT_WORDS[effort])
