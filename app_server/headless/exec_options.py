"""The command line of `app-server exec`: its arguments, and what of them the server gets."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

import jsonschema

from app_server.client.command_line import server_command
from app_server.client.options import ApprovalWord, OpenOptions, SandboxWord, TurnOptions
from app_server.client.prompt import image
from protocol.base import Json
from protocol.records import dataclass
from protocol.v2.input import UserInput

FROM_STDIN = "-"


class InvalidCommandLine(Exception):
    """The command line cannot be used; the text says what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecOptions:
    prompt: tuple[str | UserInput, ...]
    command: tuple[str, ...]
    """The server."""
    cwd: Path
    json: bool = False
    last_message: Path | None = None
    """A file that gets the final message."""
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
        settings = OpenOptions(cwd=self.cwd, approval_policy=self.approval)
        if self.sandbox is not None:
            settings["sandbox"] = self.sandbox
        if self.model is not None:
            settings["model"] = self.model
        return settings

    def mismatch(self, message: str | None) -> str | None:
        """Why the final message is not what the output schema asks for; None where it is, or nothing was asked."""
        if self.output_schema is None:
            return None
        try:
            jsonschema.validate(json.loads(message or ""), self.output_schema)
        except ValueError as error:
            return f"the final message is not JSON: {error}"
        except jsonschema.SchemaError as error:
            return f"the output schema is not a JSON Schema: {error.message}"
        except jsonschema.ValidationError as error:
            return f"the final message does not match the output schema at {error.json_path}: {error.message}"
        return None


def exec_options(args: argparse.Namespace, stdin: TextIO, cwd: Path) -> ExecOptions:
    """Raises InvalidCommandLine."""
    given = vars(args)
    where = cwd / (args.cd or ".")
    if not where.is_dir():
        raise InvalidCommandLine(f"--cd: {where} is not a folder")
    return ExecOptions(
        prompt=(_words(args.prompt, stdin), *(_image(path) for path in args.image or ())),
        command=server_command(given),
        cwd=where.resolve(),
        json=args.json,
        last_message=None if args.output_last_message is None else Path(args.output_last_message),
        output_schema=None if args.output_schema is None else _schema(Path(args.output_schema)),
        resume=args.resume,
        resume_last=args.resume_last,
        ephemeral=args.ephemeral,
        approval=given.get("ask_for_approval", "never"),
        sandbox=given.get("sandbox"),
        model=given.get("model"),
    )


def _words(prompt: Sequence[str], stdin: TextIO) -> str:
    text = stdin.read() if list(prompt) in ([], [FROM_STDIN]) else " ".join(prompt)
    if not text.strip():
        raise InvalidCommandLine("expected a prompt, as an argument or on stdin")
    return text


def _image(path: str) -> UserInput:
    if not Path(path).is_file():
        raise InvalidCommandLine(f"--image: {path} is not a file")
    return image(path)


def _schema(path: Path) -> Mapping[str, Json]:
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidCommandLine(f"--output-schema: {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidCommandLine(f"--output-schema: {path} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise InvalidCommandLine(f"--output-schema: expected a JSON Schema as an object in {path}")
    return schema
