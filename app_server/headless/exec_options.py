"""The command line of `app-server exec`: its arguments, checked, and what of them the server gets."""

from __future__ import annotations

import argparse
import os
import select
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from msgspec import Struct

from app_server.client.command_line import InvalidCommandLine, images, is_utf8, working_folder
from app_server.client.options import ApprovalWord, OpenOptions, SandboxWord, TurnOptions
from app_server.client.prices import ModelPrice
from app_server.core.lazy import Lazy
from app_server.headless.exec_limits import ExecLimits
from app_server.headless.named_files import MessageFile, message_file, read_prices
from app_server.startup.launch import Launch, parse_launch
from app_server_protocol.v2.item_parts import UserInput

if TYPE_CHECKING:
    from app_server.headless.output_schema import OutputSchema

FROM_STDIN = "-"
MOST_PIPED = 4 << 20
"""Bytes; a server takes fewer characters in a turn than this can be."""


class ThreadOrigin(Struct, frozen=True, kw_only=True):
    """The thread that the turn belongs to: a new one, where no field says otherwise."""

    resume: str | None = None
    """The id of a stored thread to go on with."""
    resume_last: bool = False
    fork: str | None = None
    """The id of a stored thread to go on with in a copy."""
    ephemeral: bool = False
    """Nothing of it is stored."""


class ExecOptions(Struct, frozen=True, kw_only=True):
    prompt: tuple[str | UserInput, ...]
    cwd: Path
    launch: Launch
    """What the command line sets for the server."""
    json: bool = False
    last_message: MessageFile | None = None
    """What gets the final message."""
    output_schema: OutputSchema | None = None
    origin: ThreadOrigin = ThreadOrigin()
    limits: ExecLimits = ExecLimits()
    prices: Mapping[str, ModelPrice] = {}
    approval: ApprovalWord = "never"
    sandbox: SandboxWord | None = None
    model: str | None = None

    @property
    def turn(self) -> TurnOptions:
        if self.output_schema is None:
            return TurnOptions()
        return TurnOptions(output_schema=self.output_schema.schema)

    @property
    def thread(self) -> OpenOptions:
        """Return the settings of the thread. The sandbox is never that of a stored thread, which may have been one of
        many questions: nobody is asked here. Where a request says null, the configuration counts.
        """
        settings = OpenOptions(cwd=self.cwd, approval_policy=self.approval, config={"sandbox_mode": None})
        if self.sandbox is not None:
            settings["sandbox"] = self.sandbox
        if self.model is not None:
            settings["model"] = self.model
        return settings


def exec_options(args: argparse.Namespace, stdin: TextIO, stderr: TextIO) -> ExecOptions:
    """Read what is asked for, checked as far as it can be before the server is started. Raises InvalidCommandLine."""
    given = vars(args)
    approval = given.get("ask_for_approval", "never")
    cwd = working_folder(args.cd)
    try:
        launch = parse_launch({**given, "ask_for_approval": approval}, os.environ)
    except ValueError as error:  # a limit in the environment
        raise InvalidCommandLine(str(error)) from None
    pictures = images(args.image or ())
    schema = None if args.output_schema is None else _OUTPUT_SCHEMA.get().read(Path(args.output_schema))
    last_message = None if args.output_last_message is None else message_file(args.output_last_message)
    return ExecOptions(
        prompt=(_words(args.prompt, stdin, stderr), *pictures),
        cwd=cwd,
        launch=launch,
        json=args.json,
        last_message=last_message,
        output_schema=schema,
        origin=_origin(args),
        limits=ExecLimits(requests=args.max_turns, tokens=args.budget_tokens, seconds=args.timeout),
        prices=read_prices(args.prices, launch.home),
        approval=approval,
        sandbox=given.get("sandbox"),
        model=given.get("model"),
    )


def _origin(args: argparse.Namespace) -> ThreadOrigin:
    if args.ephemeral and (args.resume or args.resume_last):
        raise InvalidCommandLine(
            "--ephemeral: a thread that is resumed goes on being stored; --fork ID copies it"
        )
    return ThreadOrigin(
        resume=args.resume, resume_last=args.resume_last, fork=args.fork, ephemeral=args.ephemeral
    )


def _words(prompt: Sequence[str], stdin: TextIO, stderr: TextIO) -> str:
    """Join the arguments with what is piped, which is a block of its own."""
    words = " ".join(prompt[1:] if prompt[:1] == [FROM_STDIN] else prompt)
    if not is_utf8(words):
        raise InvalidCommandLine("the prompt is not UTF-8")
    more = "" if words.strip() and stdin.isatty() else _piped(stdin, stderr)
    if not more.strip():
        more = ""
    if not words.strip() and not more:
        raise InvalidCommandLine("expected a prompt, as an argument or on stdin")
    if not words.strip():
        return more
    return f"{words}\n\n<stdin>\n{more.removesuffix(chr(10))}\n</stdin>" if more else words


def _piped(stdin: TextIO, stderr: TextIO) -> str:
    if stdin.isatty():
        print("app-server exec: type the prompt, and Ctrl-D at its end", file=stderr)
    elif not select.select([stdin], (), (), 0)[0]:
        print(
            "app-server exec: reading stdin until it ends; </dev/null says that there is nothing", file=stderr
        )
    piped = stdin.buffer.read(MOST_PIPED + 1)
    if len(piped) > MOST_PIPED:
        raise InvalidCommandLine(f"stdin has more than {MOST_PIPED} bytes; name a file in the prompt instead")
    try:
        return piped.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidCommandLine(f"stdin is not UTF-8 at byte {error.start}") from None


def _load_output_schema() -> type[OutputSchema]:
    from app_server.headless.output_schema import OutputSchema  # noqa: PLC0415  imports jsonschema

    return OutputSchema


_OUTPUT_SCHEMA = Lazy(_load_output_schema)
