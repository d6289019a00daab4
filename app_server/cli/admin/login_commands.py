"""`app-server login status` and `app-server logout`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Final

from app_server.cli.admin.one_shot import CommandFailed, Run, eprint, one_shot
from app_server.client.request_client import RequestClient
from app_server_protocol.encoding import Json
from app_server_protocol.method_table import NoParams
from app_server_protocol.v2 import account as wire

KEY_VARIABLE: Final = "OPENAI_API_KEY"
"""Environment variable with the key of the provider `openai`."""


async def log_out(server: RequestClient, args: argparse.Namespace) -> None:
    await server.request(wire.ACCOUNT_LOGOUT, NoParams())
    eprint("Logged out")


async def login_status(server: RequestClient, args: argparse.Namespace) -> None:
    """Print whether there is a login, or a key that replaces one. Raises CommandFailed if there is none: launchers
    use the exit status before they start a server.
    """
    answer = await server.request(wire.ACCOUNT_READ, wire.GetAccountParams())
    if isinstance(answer.account, wire.ApiKeyAccount):
        eprint("Logged in using an API key")
    elif answer.account is not None:
        eprint("Logged in using ChatGPT")
    elif answer.requires_openai_auth and await has_key(server):
        eprint("Logged in using an API key")
    elif answer.requires_openai_auth:
        raise CommandFailed("Not logged in", "`app-server login`, or set OPENAI_API_KEY")
    else:
        name, variable = await own_provider(server)
        if variable is not None and not os.environ.get(variable):
            raise CommandFailed(
                f"Not logged in: the key of the provider `{name}` is missing",
                f"set {variable} to it where the server is started",
            )
        source = f"its key is in {variable}" if variable else "it has no `env_key`"
        eprint(f"The provider `{name}` needs no login; {source}")


async def has_key(server: RequestClient) -> bool:
    """Return whether OPENAI_API_KEY stands in for a login: it is set, and no entry of the configuration claims it."""
    settings: Json = (await server.request_raw("config/read", {}))["config"]
    entries = [
        *(settings.get("model_providers") or {}).values(),
        *(settings.get("mcp_servers") or {}).values(),
    ]
    claimed: set[str | None] = set()
    for entry in entries:
        claimed |= {entry.get("env_key"), entry.get("bearer_token_env_var")}
        claimed |= set((entry.get("env_http_headers") or {}).values())
    return bool(os.environ.get(KEY_VARIABLE)) and KEY_VARIABLE not in claimed


async def own_provider(server: RequestClient) -> tuple[str, str | None]:
    """Return the configured provider, and the name of the variable with its key; None if the provider names no
    variable.
    """
    settings: Json = (await server.request_raw("config/read", {}))["config"]
    name = settings.get("model_provider") or "openai"
    provider = (settings.get("model_providers") or {}).get(name) or {}
    return name, provider.get("env_key")


COMMANDS: Final[Mapping[str, Run]] = {
    "login status": one_shot(login_status),
    "logout": one_shot(log_out),
}
