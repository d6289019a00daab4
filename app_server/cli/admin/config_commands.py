"""`app-server config`: shows settings and changes them in `config.toml`. Settings with which no thread could begin are
not written, and neither are unknown settings.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from typing import Final

from app_server.cli.admin.one_shot import (
    CommandFailed,
    Run,
    eprint,
    one_shot,
    settings_place,
    show,
    show_json,
)
from app_server.client.command_line import InvalidCommandLine
from app_server.client.request_client import RequestClient
from app_server.engine.config.config_values import CliOverrides
from app_server.engine.config.layers import split_key, toml_value, value_at
from app_server.engine.config.settings_service import load_config
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.encoding import Json
from app_server_protocol.v2 import config as wire


async def show_setting(server: RequestClient, args: argparse.Namespace) -> None:
    read = await server.request(wire.CONFIG_READ, wire.ConfigReadParams(cwd=os.path.realpath(".")))
    settings: Json = read.config.to_value()
    shown = settings if args.key is None else value_at(settings, split_key(args.key))
    if shown is None:
        raise CommandFailed(f"nothing sets {args.key!r}", "`app-server config get` shows what is set")
    if args.json:
        show_json(shown)
    elif not isinstance(shown, Mapping):
        show(_plain(shown))
    else:
        for key in sorted(read.origins):
            if args.key is None or key.startswith(f"{args.key}."):
                show(f"{key} = {json.dumps(value_at(settings, split_key(key)), ensure_ascii=False)}")


async def write_setting(server: RequestClient, args: argparse.Namespace) -> None:
    """Write a setting, after it was checked as a setting of the command line."""
    value = toml_value(args.value)
    try:
        json.dumps(value)
    except TypeError:
        raise InvalidCommandLine(f"no setting has a value like {args.value}") from None
    place = settings_place(CliOverrides(settings=((args.key, args.value),)))
    try:
        warnings = load_config(place).notices.warnings
    except ConfigError as error:
        raise CommandFailed(str(error)) from None
    for warning in warnings:
        if warning.place is None:
            what = warning.text.replace(" is ignored", "")
            raise CommandFailed(what, "`app-server config get` shows what is set")
    await _write(server, args.key, value)


async def remove_setting(server: RequestClient, args: argparse.Namespace) -> None:
    await _write(server, args.key, None)


async def _write(server: RequestClient, key: str, value: Json) -> None:
    params = wire.ConfigValueWriteParams(key_path=key, value=value, merge_strategy="replace")
    written = await server.request(wire.CONFIG_VALUE_WRITE, params)
    eprint(f"{'removed' if value is None else 'wrote'} {key} in {written.file_path}")
    if written.overridden_metadata is not None:
        eprint(f"warning: {written.overridden_metadata.message}")


def _plain(value: Json) -> str:
    """Return a value in the form for scripts: a text without quotes, any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


COMMANDS: Final[Mapping[str, Run]] = {
    "config get": one_shot(show_setting),
    "config set": one_shot(write_setting),
    "config unset": one_shot(remove_setting),
}
