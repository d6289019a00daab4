"""Answers a list of stored conversations that is asked for right after the greeting, before the engine is loaded.

An editor shows that list first of all, and everything that it takes lies on the disk. Only the plain form of the
request, on a plain configuration, is answered here; for anything else, mistakes included, the engine is waited for.
Imports nothing that takes time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tomli

from app_server.core.config.safe_file import UnreadableFileError, read_regular_file
from app_server.core.rollout.head import StoredSummary
from app_server.core.rollout.listing import list_conversations
from protocol.jsonrpc import Request, dump_response
from protocol.names import LIST_CONVERSATIONS

if TYPE_CHECKING:
    from protocol.base import Json

CONFIG_FILE = "config.toml"
MAX_CONFIG_BYTES = 1 << 20
DEFAULT_PROVIDER = "openai"
MAX_PAGE = 1 << 31


@dataclass(frozen=True, slots=True)
class _Asked:
    page_size: int | None
    cursor: str | None
    providers: list[str] | None


def early_list(request: Request, home: Path) -> bytes | None:
    """The answer, or None where it is not ours to give. Nothing is overridden on the command line."""
    asked = _asked(request)
    provider = _provider(home) if asked is not None else None
    if asked is None or provider is None:
        return None
    providers = frozenset((provider,)) if asked.providers is None else frozenset(asked.providers) or None
    page = list_conversations(
        home, default_provider=provider, providers=providers, page_size=asked.page_size, cursor=asked.cursor
    )
    result = {"items": [_on_the_wire(item) for item in page.items], "nextCursor": page.next_cursor}
    try:
        body = json.dumps(result, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a character, which only the engine knows how to write
        return None
    return dump_response(request.id, body)


def _asked(request: Request) -> _Asked | None:
    params = request.params
    if request.method != LIST_CONVERSATIONS or not isinstance(params, dict):
        return None
    if not params.keys() <= {"pageSize", "cursor", "modelProviders"}:
        return None
    size, cursor, providers = (params.get(key) for key in ("pageSize", "cursor", "modelProviders"))
    plain = (
        (size is None or (type(size) is int and 0 <= size < MAX_PAGE))
        and (cursor is None or isinstance(cursor, str))
        and (
            providers is None
            or (isinstance(providers, list) and all(isinstance(one, str) for one in providers))
        )
    )
    return _Asked(size, cursor, providers) if plain else None


def _provider(home: Path) -> str | None:
    """Whose conversations are meant where the request does not say; None where that is not plain to see."""
    try:
        text = read_regular_file(home / CONFIG_FILE, MAX_CONFIG_BYTES) or b""
        table = tomli.loads(text.decode("utf-8-sig"))
    except (UnreadableFileError, ValueError, RecursionError, OverflowError):
        return None
    name = table.get("model_provider", DEFAULT_PROVIDER)
    others = table.get("model_providers", {})
    if "profile" in table or not isinstance(name, str) or not isinstance(others, Mapping):
        return None
    return name if name == DEFAULT_PROVIDER or name in others else None


def _on_the_wire(item: StoredSummary) -> dict[str, Json]:
    git = item.git_info
    return {
        "conversationId": item.conversation_id,
        "path": str(item.path),
        "preview": item.preview,
        "timestamp": item.timestamp,
        "modelProvider": item.model_provider,
        "cwd": item.cwd,
        "cliVersion": item.cli_version,
        "source": item.source,
        "gitInfo": git and {"sha": git.commit_hash, "branch": git.branch, "origin_url": git.repository_url},
    }
