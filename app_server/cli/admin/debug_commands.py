"""Facts for other programs, in the form of `codex`: the models with their context windows, and the features."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

import msgspec

from app_server.cli.admin.one_shot import Run, one_shot, show, show_json
from app_server.client.request_client import RequestClient
from app_server.engine.config.model_rows import EffortLevel, ModelRow
from app_server.engine.model.catalogue import bundled, find_model
from app_server_protocol.encoding import Json
from app_server_protocol.v2 import models as wire
from app_server_protocol.values import replace


async def list_features(server: RequestClient, args: argparse.Namespace) -> None:
    """List the features with their stage, and whether a thread would have them now."""
    found = (await server.request(wire.EXPERIMENTAL_FEATURE_LIST, wire.ExperimentalFeatureListParams())).data
    for feature in sorted(found, key=lambda feature: feature.name):
        stage = "under development" if feature.stage == "underDevelopment" else feature.stage
        show(f"{feature.name:<40} {stage:<18} {str(feature.enabled).lower()}")


async def list_models(server: RequestClient, args: argparse.Namespace) -> None:
    """Print the models that threads can use, or those of the bundled catalogue, as JSON: rows for
    `model_catalog_json`.
    """
    if args.bundled:
        show_json({"models": [_json(row) for row in bundled().models]})
        return
    params = wire.ModelListParams(include_hidden=True)
    models: list[Json] = []
    async for page in server.pages(wire.MODEL_LIST, params):
        models += [_listed(model, len(models) + place) for place, model in enumerate(page.data, 1)]
    show_json({"models": models})


def _listed(model: wire.ListedModel, place: int) -> Json:
    """Return a row: the server's facts about the model take precedence over the catalogue's."""
    row = replace(
        find_model(model.model),
        slug=model.model,
        display_name=model.display_name,
        description=model.description,
        visibility="hide" if model.hidden else "list",
        priority=place,
        supported_reasoning_levels=tuple(
            EffortLevel(each.reasoning_effort, each.description) for each in model.supported_reasoning_efforts
        ),
        default_reasoning_level=model.default_reasoning_effort,
        input_modalities=model.input_modalities,
        context_window=model.context_window,
    )
    return _json(row)


def _json(row: ModelRow) -> Json:
    """Return a row with its efforts in the form that other programs expect, and its windows, even if they are not
    known.
    """
    levels = tuple(EffortLevel(each, row.effort_description(each)) for each in row.efforts)
    window = row.context_window
    row = replace(row, supported_reasoning_levels=levels, source=None)
    return {
        "slug": row.slug,
        "display_name": row.name,
        "description": row.description or "",
        "default_reasoning_level": row.usual_effort,
        "visibility": row.visibility or "list",
        "priority": row.order,
        **msgspec.to_builtins(row),
        "context_window": window,
        "max_context_window": row.max_context_window or window,
    }


COMMANDS: Final[Mapping[str, Run]] = {
    "features list": one_shot(list_features),
    "debug models": one_shot(list_models),
}
