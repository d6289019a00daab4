"""Answers `initialize` of the Agent Client Protocol while the server is being loaded. Fast to import.

The answer depends on whether the configured provider needs a login. Where the configuration is not simple, the full
server answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import tomli

from app_server.apis.acp.client import auth_methods, initialize_result, parse_client
from app_server.core.config.safe_file import UnreadableFileError, read_regular_file
from app_server.identity import EarlyInitialize
from app_server.rpc.version import with_version
from app_server.startup.early_handshake import AnsweredInitialize, InitializeResponder
from app_server.startup.early_list import CONFIG_FILE, DEFAULT_PROVIDER, MAX_CONFIG_BYTES
from app_server.startup.launch import Launch
from protocol.jsonrpc import Message, Request, dump_response
from protocol.names import INITIALIZE

if TYPE_CHECKING:
    from protocol.base import Json

MAX_VERSION = 1 << 16


def acp_responder(launch: Launch) -> InitializeResponder:
    def respond(first: Message | None) -> AnsweredInitialize | None:
        if not isinstance(first, Request) or first.method != INITIALIZE or not isinstance(first.params, dict):
            return None
        version = first.params.get("protocolVersion")
        if type(version) is not int or not 0 <= version < MAX_VERSION:
            return None
        needs_login = _needs_login(launch.home) if launch.plain else None
        if needs_login is None:
            return None
        client = parse_client(first.params)
        result = initialize_result(auth_methods(launch.environment, needs_login=needs_login))
        early = EarlyInitialize(client.name, client.version, params=first.params)
        return AnsweredInitialize(with_version(dump_response(first.id, result)), early)

    return respond


def _needs_login(home: Path) -> bool | None:
    """None if the configuration is not simple."""
    try:
        text = read_regular_file(home / CONFIG_FILE, MAX_CONFIG_BYTES) or b""
        table: Mapping[str, Json] = tomli.loads(text.decode("utf-8-sig"))
    except (UnreadableFileError, ValueError, RecursionError, OverflowError):
        return None
    name, others = table.get("model_provider", DEFAULT_PROVIDER), table.get("model_providers", {})
    if "profile" in table or not isinstance(name, str) or not isinstance(others, dict):
        return None
    if name == DEFAULT_PROVIDER:
        return True
    match others.get(name):
        case {"requires_openai_auth": bool(needed)}:
            return needed
        case {"requires_openai_auth": _}:
            return None
        case dict():
            return False
        case _:
            return None
