"""Answers a `listConversations` request right after `initialize`, before the engine is loaded. Fast to import.

Editors request that list first, and it needs only the disk. Only the simple form of the request with a simple
configuration is answered here. Anything else, including invalid requests, waits for the full server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tomli

from app_server.core.config.safe_file import UnreadableFileError, read_regular_file
from app_server.core.rollout.head import StoredSummary
from app_server.core.rollout.listing import list_conversations
from app_server.startup.early_answers import EarlyAnswer, early_result
from protocol.jsonrpc import Request
from protocol.names import LIST_CONVERSATIONS

if TYPE_CHECKING:
    from protocol.base import Json

CONFIG_FILE = "config.toml"
MAX_CONFIG_BYTES = 1 << 20
DEFAULT_PROVIDER = "openai"
MAX_PAGE = 1 << 31


@dataclass(frozen=True, slots=True)
class _ListQuery:
    page_size: int | None
    cursor: str | None
    providers: list[str] | None


def early_list(request: Request, home: Path) -> EarlyAnswer | None:
    """The response, or None to leave it to the full server. Call it only without overrides on the command line."""
    query = _parse_query(request)
    provider = plain_provider(home) if query is not None else None
    if query is None or provider is None:
        return None
    providers = frozenset((provider,)) if query.providers is None else frozenset(query.providers) or None
    page = list_conversations(
        home, default_provider=provider, providers=providers, page_size=query.page_size, cursor=query.cursor
    )
    result = {"items": [_to_wire(item) for item in page.items], "nextCursor": page.next_cursor}
    return early_result(request, result)


def _parse_query(request: Request) -> _ListQuery | None:
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
    return _ListQuery(size, cursor, providers) if plain else None


def plain_provider(home: Path) -> str | None:
    """The provider whose conversations are listed by default; None if the configuration is not simple."""
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


def _to_wire(item: StoredSummary) -> dict[str, Json]:
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
