"""`app-server config`: shows settings and changes them in `config.toml`. Nothing is written that no thread could begin
with, nor a setting that nobody knows.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping

from app_server.client.app_server import AppServer
from app_server.client.command_line import InvalidCommandLine
from app_server.client.events import ServerEvent
from app_server.core.config.key_path import split_key, value_at
from app_server.core.config.layers import toml_value
from app_server.core.config.types import CliOverrides
from app_server.errands.errand import NotDone, run_errand, say, show, show_json, with_server
from protocol.structs import Json
from protocol.v2 import config as wire
from protocol.v2.server import ConfigWarningNotification


def run_get(args: argparse.Namespace) -> int:
    async def get(server: AppServer) -> int:
        read = await server.request(wire.CONFIG_READ, wire.ConfigReadParams(cwd=os.path.realpath(".")))
        settings: Json = read.config.to_value()
        shown = settings if args.key is None else value_at(settings, split_key(args.key))
        if shown is None:
            raise NotDone(f"nothing sets {args.key!r}", "`app-server config get` shows what is set")
        if args.json:
            show_json(shown)
        elif not isinstance(shown, Mapping):
            show(_plain(shown))
        else:
            for key in sorted(read.origins):
                if args.key is None or key.startswith(f"{args.key}."):
                    show(f"{key} = {json.dumps(value_at(settings, split_key(key)), ensure_ascii=False)}")
        return 0

    return run_errand(args, get)


def run_set(args: argparse.Namespace) -> int:
    """Write a setting, after a server was asked what it would think of it on the command line."""
    value = toml_value(args.value)

    async def set_value(server: AppServer) -> int:
        try:
            json.dumps(value)
        except TypeError:
            raise InvalidCommandLine(f"no setting has a value like {args.value}") from None
        unknown: list[str] = []

        def note(text: str, event: ServerEvent) -> None:
            if isinstance(event, ConfigWarningNotification) and event.path is None:
                unknown.append(text)

        async def check(trial: AppServer) -> int:
            await trial.request(wire.CONFIG_READ, wire.ConfigReadParams())
            return 0

        await with_server(check, CliOverrides(settings=((args.key, args.value),)), note)
        if unknown:
            raise NotDone(
                unknown[0].replace(" is ignored", ""), "docs/configuration-reference.md has all settings"
            )
        await _write(server, args.key, value)
        return 0

    return run_errand(args, set_value)


def run_unset(args: argparse.Namespace) -> int:
    async def unset(server: AppServer) -> int:
        await _write(server, args.key, None)
        return 0

    return run_errand(args, unset)


async def _write(server: AppServer, key: str, value: Json) -> None:
    params = wire.ConfigValueWriteParams(key_path=key, value=value, merge_strategy="replace")
    written = await server.request(wire.CONFIG_VALUE_WRITE, params)
    say(f"{'removed' if value is None else 'wrote'} {key} in {written.file_path}")
    if written.overridden_metadata is not None:
        say(f"warning: {written.overridden_metadata.message}")


def _plain(value: Json) -> str:
    """Write a value as a script wants it: a text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
