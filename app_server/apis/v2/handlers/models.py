"""`model/list`: the models that can be chosen. Holds all that the conversation API has in its answer to this method."""

from __future__ import annotations

from app_server.apis.offered_models import ModelContext, page_of_models
from app_server.core.model.catalogue import EFFORT_WORDS, KnownModel
from protocol.policy import ReasoningEffort
from protocol.v2.models import ListedModel, ModelListParams, ModelListResponse, ReasoningEffortOption


async def model_list(context: ModelContext, params: ModelListParams) -> ModelListResponse:
    """None of them is hidden, so `includeHidden` changes nothing."""
    page = page_of_models(await context.offered(params.model_provider), params.cursor, params.limit)
    return ModelListResponse(
        data=tuple(_model(model, default=page.first and n == 0) for n, model in enumerate(page.models)),
        next_cursor=page.next_cursor,
    )


def _model(model: KnownModel, *, default: bool) -> ListedModel:
    return ListedModel(
        id=model.name,
        model=model.name,
        display_name=model.name,
        description=model.description,
        hidden=False,
        supported_reasoning_efforts=tuple(_effort(effort) for effort in model.efforts),
        default_reasoning_effort=model.default_effort.value,
        is_default=default,
    )


def _effort(effort: ReasoningEffort) -> ReasoningEffortOption:
    return ReasoningEffortOption(reasoning_effort=effort.value, description=EFFORT_WORDS[effort])
