"""The preface of a proxy, as a server reads and answers it: the surroundings of its client, or a request of `daemon`.

`server/proxy/connect.py` writes it. The environment contains secrets: it is kept with the connection, and never shown.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from app_server import __version__
from app_server.server.bootstrap.launch import parse_launch
from app_server.server.bootstrap.overrides import cli_overrides
from app_server.server.proxy.connect import NUMBER
from app_server.server.server_settings import ClientSettings
from app_server_protocol.encoding import Json
from app_server_protocol.values import Redacted, replace

STATUS: Final = "status"
STOP: Final = "stop"
SUCCESSION: Final = "succession"
"""Request for the options with which another server goes on at the places of this one."""
RETIRE: Final = "retire"
"""Request to release its places for that server, and to end with the last client."""


class BadPreface(Exception):
    """A preface cannot be accepted; the text is a clause for the user of the proxy."""


class Question(Struct, frozen=True):
    """A request of `daemon` to the server."""

    ask: str
    now: bool = False


class PrefaceHeader(Redacted, frozen=True):
    """A preface of a proxy, with the surroundings of its client."""

    HIDDEN = ("env",)

    preface: int
    api: Literal["acp"] | None
    cwd: str
    env: dict[str, str]
    options: dict[str, str | list[str]]
    all_threads: bool = False


def parse_preface(line: bytes, server: ClientSettings) -> ClientSettings | Question:
    """Return the surroundings of a proxy's client, for a server with the surroundings `server`, or the request. Raises
    BadPreface.
    """
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        raise BadPreface("the preface is no JSON") from None
    match said:
        case {"preface": int(number)} if number != NUMBER:
            raise BadPreface(f"the server understands prefaces of form {NUMBER}, not {number}")
        case {"preface": int(), "ask": str(ask)}:
            return Question(ask, now=said.get("now") is True)
        case _:
            return _place(said, server)


def _place(said: Json, server: ClientSettings) -> ClientSettings:
    try:
        brought = msgspec.convert(said, PrefaceHeader)
        own = cli_overrides(parse_launch(brought.options, brought.env))
    except msgspec.ValidationError as error:
        raise BadPreface(f"the preface lacks something, or has what it should not have: {error}") from None
    except (ValueError, TypeError) as error:
        raise BadPreface(f"its options cannot be used: {error}") from None
    if not os.path.isabs(brought.cwd):
        raise BadPreface("the preface has no absolute working directory")
    return ClientSettings(
        home=server.home,
        cwd=Path(brought.cwd),
        environment=brought.env,
        cli=replace(own, above=server.cli),
        own_folder=server.cwd if server.has_cwd else None,
        acp=brought.api == "acp",
        shared=True,
        receives_all_threads=brought.all_threads,
    )


def yes(**more: Json) -> bytes:
    return _answer({"preface": NUMBER, "version": __version__, **more, "ok": True})


def no(reason: str) -> bytes:
    return _answer({"preface": NUMBER, "ok": False, "reason": reason})


def _answer(said: Json) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"
