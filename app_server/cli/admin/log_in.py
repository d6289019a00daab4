"""`app-server login` and `app-server mcp login`: an API key from stdin, a login in the browser, or a code for another
machine's browser.
"""

from __future__ import annotations

import argparse
import getpass
import sys
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio

from app_server.cli.admin import pasted_callback
from app_server.cli.admin.login_commands import own_provider
from app_server.cli.admin.one_shot import CommandFailed, eprint, misused
from app_server.cli.admin.with_events import run_with_events
from app_server.client.app_server import AppServer
from app_server.client.command_line import InvalidCommandLine
from app_server.client.events import ServerEvent
from app_server.server.bootstrap.standard_streams import cancel_on_interrupt
from app_server_protocol.v2 import account as wire
from app_server_protocol.v2 import mcp

Completed = wire.AccountLoginCompletedNotification | mcp.McpServerOauthLoginCompletedNotification
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
            name, variable = await own_provider(server)
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

    return run_with_events(args, log_in)


def run_mcp_login(args: argparse.Namespace) -> int:
    """Log in at an MCP server, in the browser."""
    return run_with_events(args, _log_in_at_server)


async def _log_in_at_server(server: AppServer, args: argparse.Namespace) -> None:
    async with server.events() as events:
        scopes = None if args.scopes is None else tuple(args.scopes.split(","))
        params = mcp.McpServerOauthLoginParams(name=args.name, scopes=scopes)
        begun = await server.request(mcp.MCP_SERVER_OAUTH_LOGIN, params)
        open_page(begun.authorization_url, args)
        ended = partial(
            login_ended, events, mcp.McpServerOauthLoginCompletedNotification, f"Logged in at {args.name}"
        )
        if args.no_browser and sys.stdin is not None:
            await _beside(ended, partial(pasted_callback.pass_on_pasted, begun.authorization_url))
        else:
            await ended()


async def _beside(
    main: Callable[[], Awaitable[None]], other: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Run `main` to its end, and `other` until then. Raises CommandFailed of `main`."""
    failed: CommandFailed | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(other)
        try:
            await main()
        except CommandFailed as error:
            failed = error
        group.cancel_scope.cancel()
    if failed is not None:
        raise failed


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
