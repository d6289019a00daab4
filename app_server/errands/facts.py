"""Facts for other programs, as they know them from `codex`: the models with their context windows, and the features."""

from __future__ import annotations

import argparse

from app_server.client.app_server import AppServer
from app_server.core.model.catalogue import find_model
from app_server.errands.errand import show, show_json
from app_server_protocol.structs import Json
from app_server_protocol.v2 import models as wire


async def list_features(server: AppServer, args: argparse.Namespace) -> None:
    """List the features with their stage, and whether a thread would have them now."""
    found = (await server.request(wire.EXPERIMENTAL_FEATURE_LIST, wire.ExperimentalFeatureListParams())).data
    for feature in sorted(found, key=lambda feature: feature.name):
        stage = "under development" if feature.stage == "underDevelopment" else feature.stage
        show(f"{feature.name:<40} {stage:<18} {str(feature.enabled).lower()}")


async def list_models(server: AppServer, args: argparse.Namespace) -> None:
    """Print the models that threads can be given, with their context windows, as JSON."""
    params = wire.ModelListParams(include_hidden=True)
    models: list[Json] = []
    while True:
        page = await server.request(wire.MODEL_LIST, params)
        models += map(_model, page.data)
        if page.next_cursor is None:
            break
        params = params.model_copy(update={"cursor": page.next_cursor})
    show_json({"models": models})


def _model(model: wire.ListedModel) -> Json:
    row = find_model(model.model)
    return {
        "slug": model.model,
        "display_name": model.display_name,
        "description": model.description,
        "default_reasoning_level": model.default_reasoning_effort,
        "supported_reasoning_levels": [
            {"effort": each.reasoning_effort, "description": each.description}
            for each in model.supported_reasoning_efforts
        ],
        "visibility": "hide" if model.hidden else "list",
        "context_window": row.context_window,
        "max_context_window": row.max_context_window or row.context_window,
    }
