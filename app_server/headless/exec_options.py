"""The command line of `app-server exec`: its arguments, and what of them the server gets."""

from __future__ import annotations

import argparse
import json
import select
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import jsonschema
import referencing
import referencing.exceptions

from app_server.client.command_line import InvalidCommandLine, is_utf8, server_command, working_folder
from app_server.client.failures import InvalidArgument
from app_server.client.options import ApprovalWord, OpenOptions, SandboxWord, TurnOptions, image
from app_server.client.turn_handle import TurnResult
from app_server.core.session.schema_problem import schema_problem
from app_server.headless.message_file import MessageFile, message_file
from protocol.base import Json
from protocol.records import dataclass
from protocol.v2.item_parts import UserInput

FROM_STDIN = "-"
MOST_PIPED = 4 << 20
"""Bytes; a server takes fewer characters in a turn than this can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    prompt: tuple[str | UserInput, ...]
    command: tuple[str, ...]
    """The server."""
    cwd: Path
    json: bool = False
    last_message: MessageFile | None = None
    """What gets the final message."""
    output_schema: Mapping[str, Json] | None = None
    resume: str | None = None
    """The id of a stored thread."""
    resume_last: bool = False
    ephemeral: bool = False
    approval: ApprovalWord = "never"
    sandbox: SandboxWord | None = None
    model: str | None = None

    @property
    def turn(self) -> TurnOptions:
        return TurnOptions() if self.output_schema is None else TurnOptions(output_schema=self.output_schema)

    @property
    def thread(self) -> OpenOptions:
        """The sandbox is never that of the stored thread, which may have been one of many questions: nobody is asked
        here. Where a request says null, the configuration counts.
        """
        settings = OpenOptions(cwd=self.cwd, approval_policy=self.approval, config={"sandbox_mode": None})
        if self.sandbox is not None:
            settings["sandbox"] = self.sandbox
        if self.model is not None:
            settings["model"] = self.model
        return settings

    def mismatch(self, result: TurnResult[None]) -> str | None:
        """Why the final message is not what the output schema asks for; None where it is, or nothing was asked."""
        if self.output_schema is None:
            return None
        try:
            nothing_is_fetched = referencing.Registry()
            jsonschema.validate(
                json.loads(result.final_message or ""), self.output_schema, registry=nothing_is_fetched
            )
        except (ValueError, RecursionError) as error:
            return f"the final message is not JSON: {error}"
        except (jsonschema.SchemaError, referencing.exceptions.Unresolvable) as error:
            return f"the output schema cannot be used: {error}"
        except jsonschema.ValidationError as error:
            return f"the final message does not match the output schema at {error.json_path}: {error.message}"
        return None


def exec_options(args: argparse.Namespace, stdin: TextIO, stderr: TextIO) -> ExecOptions:
    """What is asked for, as far as it can be checked before the server is started. Raises InvalidCommandLine."""
    given = vars(args)
    approval = given.get("ask_for_approval", "never")
    cwd = working_folder(args.cd)
    images = [_image(path) for path in args.image or ()]
    schema = None if args.output_schema is None else _schema(Path(args.output_schema))
    last_message = None if args.output_last_message is None else message_file(args.output_last_message)
    return ExecOptions(
        prompt=(_words(args.prompt, stdin, stderr), *images),
        command=server_command({**given, "ask_for_approval": approval}),
        cwd=cwd,
        json=args.json,
        last_message=last_message,
        output_schema=schema,
        resume=args.resume,
        resume_last=args.resume_last,
        ephemeral=args.ephemeral,
        approval=approval,
        sandbox=given.get("sandbox"),
        model=given.get("model"),
    )


def _words(prompt: Sequence[str], stdin: TextIO, stderr: TextIO) -> str:
    """The arguments, and what is piped to them as a block of its own."""
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


def _image(path: str) -> UserInput:
    try:
        return image(path)
    except InvalidArgument as error:
        raise InvalidCommandLine(f"--image: {error}") from None


def _schema(path: Path) -> Mapping[str, Json]:
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidCommandLine(f"--output-schema: {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidCommandLine(f"--output-schema: {path} is not JSON: {error}") from None
    if (problem := schema_problem(schema)) is not None:
        raise InvalidCommandLine(f"--output-schema: {path} is not a JSON Schema: {problem}")
    made: Mapping[str, Json] = schema
    return made
