"""`app-server login`, `logout` and `login status`: an API key from stdin, a login in the browser, or a code for a
browser on another machine.
"""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import webbrowser
from collections.abc import AsyncIterator, Mapping
from typing import Final

from app_server.cli.admin.one_shot import CommandFailed, Run, eprint, misused, one_shot, run_one_shot
from app_server.client.app_server import AppServer
from app_server.client.command_line import InvalidCommandLine
from app_server.client.events import ServerEvent
from app_server.server.bootstrap.standard_streams import cancel_on_interrupt
from app_server_protocol.encoding import Json
from app_server_protocol.method_table import NoParams
from app_server_protocol.v2 import account as wire
from app_server_protocol.v2.mcp import McpServerOauthLoginCompletedNotification

Completed = wire.AccountLoginCompletedNotification | McpServerOauthLoginCompletedNotification
"""Notification of the end of a login."""

LONGEST_KEY: Final = 10_000
"""Maximum length of an API key, in characters; no provider has longer keys."""


def run_login(args: argparse.Namespace) -> int:
    """Log in as the options say. The key is read from stdin, so that it is in no list of processes."""
    try:
        params = wire.LoginAccountParams(_how(args))
    except InvalidCommandLine as error:
        return misused(args, error)

    async def log_in(server: AppServer, args: argparse.Namespace) -> None:
        if not (await server.request(wire.ACCOUNT_READ, wire.GetAccountParams())).requires_openai_auth:
            name, variable = await _own_provider(server)
            raise CommandFailed(
                f"the provider `{name}` needs no login",
                f"its key is in {variable}: set that where the server is started"
                if variable
                else f"its key, if it wants one, is in the variable that `env_key` in [model_providers.{name}] names",
            )
        async with server.events() as events:
            begun = (await server.request(wire.ACCOUNT_LOGIN_START, params)).root
            if isinstance(begun, wire.ChatgptLoginAccountResponse):
                open_page(begun.auth_url, args)
            elif isinstance(begun, wire.ChatgptDeviceCodeLoginAccountResponse):
                place = f"{begun.verification_url}\n  {begun.user_code}"
                eprint(f"Open this page in any browser, and type the code there:\n\n  {place}\n")
            await login_ended(events, wire.AccountLoginCompletedNotification, "Logged in")

    return run_one_shot(args, log_in)


async def log_out(server: AppServer, args: argparse.Namespace) -> None:
    await server.request(wire.ACCOUNT_LOGOUT, NoParams())
    eprint("Logged out")


async def login_status(server: AppServer, args: argparse.Namespace) -> None:
    """Print whether there is a login, or a key that replaces one. Raises CommandFailed if there is none: launchers
    use the exit status before they start a server.
    """
    answer = await server.request(wire.ACCOUNT_READ, wire.GetAccountParams())
    if isinstance(answer.account, wire.ApiKeyAccount):
        eprint("Logged in using an API key")
    elif answer.account is not None:
        eprint("Logged in using ChatGPT")
    elif answer.requires_openai_auth:
        raise CommandFailed("Not logged in", "`app-server login`, or set OPENAI_API_KEY")
    else:
        name, variable = await _own_provider(server)
        if variable is not None and not os.environ.get(variable):
            raise CommandFailed(
                f"Not logged in: the key of the provider `{name}` is missing",
                f"set {variable} to it where the server is started",
            )
        source = f"its key is in {variable}" if variable else "it has no `env_key`"
        eprint(f"The provider `{name}` needs no login; {source}")


async def _own_provider(server: AppServer) -> tuple[str, str | None]:
    """Return the configured provider, and the name of the variable with its key; None if the provider names no
    variable.
    """
    settings: Json = (await server.request_raw("config/read", {}))["config"]
    name = settings.get("model_provider") or "openai"
    provider = (settings.get("model_providers") or {}).get(name) or {}
    return name, provider.get("env_key")


def _how(args: argparse.Namespace) -> wire.LoginAccount:
    """Return the parameters of the login. Raises InvalidCommandLine."""
    if args.with_api_key:
        return wire.ApiKeyLoginAccountParams(api_key=_key())
    return (
        wire.ChatgptDeviceCodeLoginAccountParams() if args.device_auth else wire.ChatgptLoginAccountParams()
    )


def _key() -> str:
    """Read the key. Raises InvalidCommandLine."""
    typed = sys.stdin.isatty()
    cancel_on_interrupt()  # the terminal must show typed text again after Ctrl-C
    key = getpass.getpass("API key (it is not shown): ") if typed else sys.stdin.read(LONGEST_KEY + 1)
    key = key.strip()
    if not key or len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidCommandLine(
            "expected an API key on stdin",
            "as in `printenv OPENAI_API_KEY | app-server login --with-api-key`",
        )
    return key


def open_page(url: str, args: argparse.Namespace) -> None:
    """Ask the user to log in on a page. Open the page unless the user does not want that."""
    eprint(f"Open this page to log in, in a browser of this machine:\n\n  {url}\n")
    if not args.no_browser:
        webbrowser.open(url)


async def login_ended(events: AsyncIterator[ServerEvent], kind: type[Completed], said: str) -> None:
    """Wait for the end of a login, and report it. Raises CommandFailed."""
    async for event in events:
        if isinstance(event, kind):
            if not event.success:
                raise CommandFailed(event.error or "the login failed")
            eprint(said)
            return
    raise CommandFailed("the server ended before the login did")


COMMANDS: Final[Mapping[str, Run]] = {
    "login": run_login,
    "login status": one_shot(login_status),
    "logout": one_shot(log_out),
}
