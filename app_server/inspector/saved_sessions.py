"""What `inspect` does with a session that was saved: show it (`--open`), or play its client again (`--replay`)."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import anyio

from app_server.inspector.session_records import NotASession, Recorder, SessionHead, new_private_file
from app_server.inspector.session_replay import play_file

MISUSED = 2


def run(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """The exit status."""
    try:
        return _view(args, environment) if args.open else _replay(args)
    except NotASession as error:
        return _fail(MISUSED, f"{args.open or args.replay} is no session: {error}")
    except OSError as error:
        return _fail(MISUSED, f"cannot open {error.filename}: {error.strerror}")


def _view(args: argparse.Namespace, environment: Mapping[str, str]) -> int:
    # What serves the page is an extra.
    viewing = importlib.import_module("app_server.inspector.serving")
    try:
        anyio.run(viewing.view, Path(args.open), args.server, environment, args.url_file or "")
    except KeyboardInterrupt:
        pass
    return 0


def _replay(args: argparse.Namespace) -> int:
    """0 if all went as recorded and no rule was broken, else 1 with what went wrong on stderr."""
    head = SessionHead(args.server, datetime.now().astimezone().isoformat(timespec="milliseconds"))
    recorder = Recorder(new_private_file(args.record), head) if args.record else None
    problems = play_file(Path(args.replay), args.server, recorder)
    for problem in problems:
        _fail(1, problem)
    return 1 if problems else 0


def _fail(status: int, message: str) -> int:
    print(f"app-server inspect: {message}", file=sys.stderr)  # noqa: T201  nothing else is on it
    return status
