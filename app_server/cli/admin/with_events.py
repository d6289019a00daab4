"""Runs the operation of a command that receives events, with the whole client library."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from app_server.cli.admin.one_shot import run_connected
from app_server.client.app_server import AppServer
from app_server.in_process import InProcessConnector


def run_with_events(
    args: argparse.Namespace, command: Callable[[AppServer, argparse.Namespace], Awaitable[None]]
) -> int:
    """Run a command on a server with the settings of its command line. Return the exit status."""
    return run_connected(args, _connect, command)


def _connect(
    connector: InProcessConnector, tell_warning: Callable[[str], object]
) -> AbstractAsyncContextManager[AppServer]:
    def on_warning(text: str, event: object) -> None:
        tell_warning(text)

    return AppServer.connect(connector, on_warning=on_warning)
