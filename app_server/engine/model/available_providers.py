"""Finds other providers that a user without a key could use at once: local servers that run, or a key of another
provider in the environment. It is used only if there is no login, and waits only briefly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio

from app_server.engine.client_context import ClientIdentity
from app_server.engine.config.config_values import ANTHROPIC
from app_server.engine.config.providers import built_in_providers
from app_server.engine.http.interface import Http
from app_server.engine.model.discovery import Discovery
from app_server.engine.model.served_models import ServedModels

WAIT_SECONDS: Final = 0.2
"""Longest wait for all local servers together, in seconds."""

LOCAL_NAMES: Final[Mapping[str, str]] = {"ollama": "Ollama", "lmstudio": "LM Studio"}
"""Names of the local servers that are asked, by the ids of their providers."""


async def other_providers(http: Http, env: Mapping[str, str], identity: ClientIdentity) -> str:
    """Return a sentence for each provider that could be used; empty if there is none."""
    served: dict[str, int] = {}

    async def ask(id: str) -> None:
        answer = await Discovery(providers[id], http, env=env, identity=identity).names()
        if isinstance(answer, ServedModels) and answer.kind == id:
            served[id] = len(answer.models)

    providers = built_in_providers(env)
    with anyio.move_on_after(WAIT_SECONDS):
        async with anyio.create_task_group() as asking:
            for id in LOCAL_NAMES:
                asking.start_soon(ask, id)
    sentences = [
        f"{name} runs here with {served[id]} model{'' if served[id] == 1 else 's'}:"
        f' set `model_provider = "{id}"`.'
        for id, name in LOCAL_NAMES.items()
        if served.get(id)
    ]
    key = providers[ANTHROPIC].env_key or ""
    if env.get(key, "").strip():
        sentences.append(f'{key} is set: for Claude, set `model_provider = "{ANTHROPIC}"`.')
    return " ".join(sentences)
