"""The preface of a proxy, as a server reads and answers it: what its client brings, or a question of `daemon`.

`proxy/meeting.py` writes it. The environment holds secrets: it is kept with the connection, and told to nobody.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from app_server import __version__
from app_server.core.config.types import CliOverrides
from app_server.proxy.meeting import NUMBER
from app_server.server import ClientPlace
from app_server.startup.launch import parse_launch
from app_server.startup.overrides import cli_overrides
from protocol.structs import Json, replace

STATUS: Final = "status"
STOP: Final = "stop"
RELOAD: Final = "reload"


class BadPreface(Exception):
    """A preface cannot be accepted; the text is a clause for the user of the proxy."""


class Question(Struct, frozen=True):
    """A question of `daemon` to the server, or what it wants of it."""

    ask: str
    now: bool = False


def parse_preface(line: bytes, home: Path, above: CliOverrides) -> ClientPlace | Question:
    """Return what the client of a proxy brings, or what is asked. `above` are the overrides of the server. Raises
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
        case {"preface": int(), "api": None | "acp", "cwd": str(cwd), "env": dict(environment)}:
            return _place(said, Path(cwd), environment, home, above)
        case _:
            raise BadPreface("the preface lacks something, or has what it should not have")


def _place(
    said: Json, cwd: Path, environment: Mapping[str, Json], home: Path, above: CliOverrides
) -> ClientPlace:
    if not all(isinstance(value, str) for value in environment.values()):
        raise BadPreface("the environment has values that are no text")
    options = said.get("options")
    if not isinstance(options, dict) or not all(map(_is_option, options.values())) or not cwd.is_absolute():
        raise BadPreface("the preface has no options, or no absolute working directory")
    try:
        own = cli_overrides(parse_launch(options, environment))
    except (ValueError, TypeError) as error:
        raise BadPreface(f"its options cannot be used: {error}") from None
    return ClientPlace(
        home=home,
        cwd=cwd,
        environment=dict(environment),
        cli=replace(own, above=above),
        acp=said["api"] == "acp",
        shared=True,
        hears_all=said.get("all_threads") is True,
    )


def _is_option(value: Json) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(each, str) for each in value)
    )


def yes(**more: Json) -> bytes:
    return _answer({"preface": NUMBER, "version": __version__, **more, "ok": True})


def no(reason: str) -> bytes:
    return _answer({"preface": NUMBER, "ok": False, "reason": reason})


def _answer(said: Json) -> bytes:
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"
