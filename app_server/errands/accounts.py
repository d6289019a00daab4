"""`app-server login` and `logout`: an API key from stdin, a login in the browser, or a code for one elsewhere."""

from __future__ import annotations

import argparse
import getpass
import sys
import webbrowser
from typing import Final

from app_server.client.app_server import AppServer
from app_server.client.command_line import InvalidCommandLine
from app_server.errands.errand import NotDone, misused, run_errand, say
from app_server.standard_streams import cancel_on_interrupt
from protocol.table import NoParams
from protocol.v2 import account as wire

LONGEST_KEY: Final = 10_000
"""Characters; no provider's key has more."""


def run_login(args: argparse.Namespace) -> int:
    """Log in, as the options say. The key is read from stdin, so that it is in no list of processes."""
    try:
        how = _how(args)
    except InvalidCommandLine as error:
        return misused(args, error)

    async def log_in(server: AppServer) -> int:
        if not (await server.request(wire.ACCOUNT_READ, wire.GetAccountParams())).requires_openai_auth:
            raise NotDone(
                "the configured provider needs no login",
                "its key, if it wants one, is in the variable that `env_key` names: `app-server doctor` looks for it",
            )
        async with server.events() as events:
            params = wire.LoginAccountParams(how)
            begun = await server.request(wire.ACCOUNT_LOGIN_START, params)
            _tell(begun.root, browser=not args.no_browser)
            async for event in events:
                if isinstance(event, wire.AccountLoginCompletedNotification):
                    return _ended(event)
        raise NotDone("the server ended before the login did")

    return run_errand(args, log_in)


def run_logout(args: argparse.Namespace) -> int:
    async def log_out(server: AppServer) -> int:
        await server.request(wire.ACCOUNT_LOGOUT, NoParams())
        say("Logged out")
        return 0

    return run_errand(args, log_out)


def _how(args: argparse.Namespace) -> wire.LoginAccount:
    """Raises InvalidCommandLine."""
    if args.with_api_key:
        return wire.ApiKeyLoginAccountParams(api_key=_key())
    return (
        wire.ChatgptDeviceCodeLoginAccountParams() if args.device_auth else wire.ChatgptLoginAccountParams()
    )


def _key() -> str:
    """Read the key. Raises InvalidCommandLine."""
    typed = sys.stdin.isatty()
    cancel_on_interrupt()  # what is typed shall be seen again after Ctrl-C
    key = getpass.getpass("API key (it is not shown): ") if typed else sys.stdin.read(LONGEST_KEY + 1)
    key = key.strip()
    if not key or len(key) > LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidCommandLine(
            "expected an API key on stdin",
            "as in `printenv OPENAI_API_KEY | app-server login --with-api-key`",
        )
    return key


def _tell(begun: wire.LoginAccountStarted, *, browser: bool) -> None:
    """Tell the user what to do now."""
    match begun:
        case wire.ApiKeyLoginAccountResponse():
            pass
        case wire.ChatgptLoginAccountResponse(auth_url=url):
            say(f"Open this page to log in, in a browser of this machine:\n\n  {url}\n")
            if browser:
                webbrowser.open(url)
        case wire.ChatgptDeviceCodeLoginAccountResponse(verification_url=url, user_code=code):
            say(f"Open this page in any browser, and type the code there:\n\n  {url}\n  {code}\n")


def _ended(event: wire.AccountLoginCompletedNotification) -> int:
    if not event.success:
        raise NotDone(event.error or "the login failed")
    say("Logged in")
    return 0
