"""The command lines of `app-server exec`, `exec resume`, `exec fork` and `exec review`: their checked arguments, and
the options that the server receives.
"""

from __future__ import annotations

import argparse
import os
import select
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from msgspec import Struct

from app_server.cli.exec import output_schema
from app_server.cli.exec.exec_limits import ExecLimits
from app_server.cli.exec.output_file import message_file, read_prices
from app_server.cli.image_arguments import images
from app_server.cli.named_files import NamedOutput
from app_server.client.command_line import InvalidCommandLine, is_thread_id, is_utf8, working_folder
from app_server.client.options import ApprovalWord, OpenOptions, SandboxWord, TurnOptions
from app_server.client.prices import ModelPrice
from app_server.engine.workspace.git.repository import find_repository
from app_server.server.bootstrap.launch import ProcessOptions, parse_launch
from app_server_protocol.v2.item_parts import UserInput
from app_server_protocol.v2.turn import (
    BaseBranchReviewTarget,
    CommitReviewTarget,
    CustomReviewTarget,
    ReviewTarget,
    UncommittedChangesReviewTarget,
)

if TYPE_CHECKING:
    from app_server.cli.exec.output_schema import OutputSchema

FROM_STDIN = "-"
MOST_PIPED = 4 << 20
"""Maximum size of piped input, in bytes. A server accepts fewer characters in a turn than this can be."""


class ReportFormat(Enum):
    """Format of the output."""

    TEXT = "text"
    """The final message on stdout, progress on stderr."""
    EVENTS = "events"
    """Lines of JSON in the format of `codex exec --json`."""
    SDK_EVENTS = "sdk events"
    """The same for an SDK of codex, whose caller validates the final message against its schema."""
    NOTIFICATIONS = "notifications"
    """Notifications of the thread API as lines of JSON."""


class ThreadOrigin(Struct, frozen=True, kw_only=True):
    """The thread to which the turn belongs: a new one, if no field says otherwise."""

    resume: str | None = None
    """Id of a stored thread to continue. None if none is resumed."""
    fork: str | None = None
    """Id of a stored thread to copy and continue. None if none is copied."""
    last: bool = False
    """Whether to continue the newest thread of the folder; with `copies`, a copy of it."""
    copies: bool = False
    ephemeral: bool = False
    """Whether the thread is not stored."""
    source: str | None = None
    """Purpose of a new thread. None if it was not given."""

    @property
    def is_new(self) -> bool:
        """Whether a new thread is begun."""
        return self.resume is None and self.fork is None and not self.last


class ExecOptions(Struct, frozen=True, kw_only=True):
    prompt: tuple[str | UserInput, ...]
    """Content of the prompt. Empty for a review, or if a thread is only copied."""
    cwd: Path
    launch: ProcessOptions
    """Settings of the command line for the server."""
    format: ReportFormat = ReportFormat.TEXT
    last_message: NamedOutput | None = None
    """File for the final message. None if no file was named."""
    output_schema: OutputSchema | None = None
    review: ReviewTarget | None = None
    """Target of a review. None if no review was requested."""
    origin: ThreadOrigin = ThreadOrigin()
    limits: ExecLimits = ExecLimits()
    prices: Mapping[str, ModelPrice] = {}
    thread: OpenOptions
    """Settings of the thread beside its folder."""

    @property
    def turn(self) -> TurnOptions:
        if self.output_schema is None:
            return TurnOptions()
        return TurnOptions(output_schema=self.output_schema.schema)


def exec_options(args: argparse.Namespace, stdin: TextIO, stderr: TextIO) -> ExecOptions:
    """Return the options, checked as far as possible before the server is started. Raises InvalidCommandLine."""
    given = vars(args)
    approval = given.get("ask_for_approval", "never")
    sandbox = _sandbox(given)
    cwd = working_folder(args.cd)
    if args.experimental_json and not _is_anywhere_right(args) and find_repository(cwd) is None:
        raise InvalidCommandLine(
            f"{cwd} is in no git repository, in which changes could be taken back",
            "--skip-git-repo-check works there all the same",
        )
    try:
        launch = parse_launch({**given, "ask_for_approval": approval, "sandbox": sandbox}, os.environ)
    except ValueError as error:  # an invalid limit in the environment
        raise InvalidCommandLine(str(error)) from None
    if launch.home.exists() and not launch.home.is_dir():
        raise InvalidCommandLine(
            f"the home {launch.home} is not a folder", "set CODEX_HOME to a folder, or unset it"
        )
    pictures = images(args.image or ())
    schema = None if args.output_schema is None else output_schema.OutputSchema.read(Path(args.output_schema))
    last_message = None if args.output_last_message is None else message_file(args.output_last_message)
    origin, words = _origin(args)
    review = _review(args, stdin, stderr) if args.command == "exec review" else None
    said = () if review is not None else _prompt(args, words, stdin, stderr)
    return ExecOptions(
        prompt=(*said, *pictures),
        cwd=cwd,
        launch=launch,
        format=_format(args),
        last_message=last_message,
        output_schema=schema,
        review=review,
        origin=origin,
        limits=ExecLimits(requests=args.max_turns, tokens=args.budget_tokens, seconds=args.timeout),
        prices=read_prices(args.prices, launch.home),
        thread=_thread(approval, sandbox, launch.model),
    )


def _thread(approval: ApprovalWord, sandbox: SandboxWord | None, model: str | None) -> OpenOptions:
    """Return the settings of the thread. The sandbox is never that of a stored thread, which may have been an approval
    with many questions: nobody is asked here. If a request says null, the configuration applies.
    """
    settings = OpenOptions(approval_policy=approval, config={"sandbox_mode": None})
    if sandbox is not None:
        settings["sandbox"] = sandbox
    if model is not None:
        settings["model"] = model
    return settings


def _format(args: argparse.Namespace) -> ReportFormat:
    if args.notifications and (args.json or args.experimental_json):
        raise InvalidCommandLine("--notifications: not allowed with --json, which prints other lines")
    if args.experimental_json:
        return ReportFormat.SDK_EVENTS
    if args.json:
        return ReportFormat.EVENTS
    return ReportFormat.NOTIFICATIONS if args.notifications else ReportFormat.TEXT


def _is_anywhere_right(args: argparse.Namespace) -> bool:
    """Return whether a folder without a repository is acceptable."""
    return bool(args.skip_git_repo_check or args.dangerously_bypass_approvals_and_sandbox)


def _sandbox(given: Mapping[str, Any]) -> SandboxWord | None:
    sandbox: SandboxWord | None = given.get("sandbox")
    if not given["dangerously_bypass_approvals_and_sandbox"]:
        return sandbox
    if sandbox is not None:
        raise InvalidCommandLine("--dangerously-bypass-approvals-and-sandbox: not allowed with --sandbox")
    return "danger-full-access"


def _origin(args: argparse.Namespace) -> tuple[ThreadOrigin, Sequence[str]]:
    """Return the origin of the thread, and the words of the prompt."""
    resume, fork, words = vars(args).get("resume"), vars(args).get("fork"), [*args.prompt]
    last, copies = vars(args).get("resume_last", False), args.command == "exec fork"
    if args.command in ("exec resume", "exec fork"):
        last = args.last
        if not last:
            id = _thread_id(args.command, words)
            resume, fork, words = (None, id, words[1:]) if copies else (id, None, words[1:])
    if args.ephemeral and (resume or last) and not copies:
        raise InvalidCommandLine(
            "--ephemeral: a thread that is resumed goes on being stored; `app-server exec fork` copies it"
        )
    origin = ThreadOrigin(
        resume=resume,
        fork=fork,
        last=last,
        copies=copies,
        ephemeral=args.ephemeral,
        source=args.thread_source,
    )
    return origin, words


def _thread_id(command: str, words: Sequence[str]) -> str:
    """Return the thread id at the beginning of the words. Raises InvalidCommandLine."""
    if words and is_thread_id(words[0]):
        return words[0]
    got = f", got {words[0]!r}" if words else ""
    raise InvalidCommandLine(
        f"expected the id of a thread, or --last{got}",
        f"`app-server threads list` shows the ids; a prompt that begins with {command.split()[1]!r} goes in quotes",
    )


def _prompt(
    args: argparse.Namespace, words: Sequence[str], stdin: TextIO, stderr: TextIO
) -> tuple[str | UserInput, ...]:
    """Return the content of the prompt; nothing if a thread is only copied."""
    only_copies = args.command == "exec fork"
    if only_copies and not words and stdin.isatty():
        return ()
    text = _words(words, stdin, stderr)
    if not text and not only_copies:
        raise InvalidCommandLine("expected a prompt, as an argument or on stdin")
    return (text,) if text else ()


def _review(args: argparse.Namespace, stdin: TextIO, stderr: TextIO) -> ReviewTarget:
    """Return the target of the review. Standard input is read if `-` is given."""
    named: list[ReviewTarget] = [
        *([UncommittedChangesReviewTarget()] if args.uncommitted else []),
        *([BaseBranchReviewTarget(branch=args.base)] if args.base else []),
        *([CommitReviewTarget(sha=args.commit, title=args.title)] if args.commit else []),
    ]
    if args.title and not args.commit:
        raise InvalidCommandLine("--title: it is that of a commit", "name the commit with --commit SHA")
    if args.output_schema:
        raise InvalidCommandLine("--output-schema: a review has a form of its own")
    if args.prompt and named:
        raise InvalidCommandLine("expected either changes or instructions, and not both")
    if args.prompt:
        from_stdin = args.prompt[:1] == [FROM_STDIN]
        text = _words(args.prompt, stdin, stderr) if from_stdin else " ".join(args.prompt)
        if text.strip():
            return CustomReviewTarget(instructions=text)
    if not named:
        raise InvalidCommandLine(
            "expected --uncommitted, --base BRANCH, --commit SHA, or instructions",
            "`-` reads them from stdin",
        )
    return named[0]


def _words(prompt: Sequence[str], stdin: TextIO, stderr: TextIO) -> str:
    """Return the arguments joined with the piped input, which is a block of its own. Return an empty text if there is
    neither.
    """
    words = " ".join(prompt[1:] if prompt[:1] == [FROM_STDIN] else prompt)
    if not is_utf8(words):
        raise InvalidCommandLine("the prompt is not UTF-8")
    more = "" if words.strip() and stdin.isatty() else _piped(stdin, stderr)
    if not more.strip():
        more = ""
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
