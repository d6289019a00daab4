"""The tasks of a batch: lines of JSON, all of which are checked before anything runs. Pure.

Checks that need the disk (whether a repository, commit or folder exists) are in `checkout`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from app_server.engine.support.redaction import masked_text
from app_server_protocol.encoding import Json

Checkout = Literal["worktree", "copy", "none"]
Sandbox = Literal["read-only", "workspace-write", "danger-full-access"]
Approval = Literal["untrusted", "on-request", "never"]

Text = Annotated[str, Meta(min_length=1)]
TaskId = Annotated[str, Meta(min_length=1, max_length=1000)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Command = Annotated[tuple[str, ...], Meta(min_length=1)]


class TaskSettings(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings of the task's thread, which take precedence over those of the batch."""

    model: Text | None = None
    model_provider: Text | None = None
    effort: Text | None = None
    sandbox: Sandbox | None = None
    approval_policy: Approval | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None


class TaskBudget(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Limits of one attempt. None if only those of the batch apply."""

    tokens: Count | None = None
    seconds: Seconds | None = None
    requests: Count | None = None


class Task(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One task, with the fields of its line."""

    id: TaskId
    prompt: Text
    repo: Text | None = None
    """Folder of a git repository, or its URL."""
    ref: Text | None = None
    """Ref of the repository. None stands for HEAD."""
    cwd: Text | None = None
    """Folder in which the task runs, instead of a repository."""
    settings: TaskSettings = TaskSettings()
    budget: TaskBudget = TaskBudget()
    setup: Command | None = None
    """Command before the turn. If it fails, no request is sent to a model."""
    check: Command | None = None
    """Command after the turn."""
    meta: Mapping[str, Json] | None = None
    """The user's own data, which is copied to the result."""


Numbered = tuple[int, Task]
"""A task with its line number."""
Problem = tuple[int, str]
"""A line number, and the reason why the line is no task that can run."""

_DECODER = msgspec.json.Decoder(Task)
_BOM = b"\xef\xbb\xbf"


def parse_tasks(
    raw: bytes, checkout: Checkout, secrets: Mapping[str, str]
) -> tuple[list[Numbered], list[Problem]]:
    """Return the tasks and problems of a file's lines. `secrets` are values by their holders. No line may contain one,
    because lines are stored.
    """
    tasks: list[Numbered] = []
    problems: list[Problem] = []
    taken: dict[str, int] = {}
    for number, line in enumerate(raw.removeprefix(_BOM).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            task = _DECODER.decode(
                line.decode()
            )  # as text: msgspec's errors for broken UTF-8 depend on its version
            _require_one_place(task, checkout)
            _require_plain_address(task)
            _require_no_secret(line, secrets)
            if (earlier := taken.setdefault(task.id, number)) != number:
                raise ValueError(f"the `id` {task.id[:100]!r} is that of line {earlier}, too")
        except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
            problems.append((number, _reason(error)))
        else:
            tasks.append((number, task))
    return tasks, problems


def _require_one_place(task: Task, checkout: Checkout) -> None:
    if task.cwd is not None and (task.repo is not None or task.ref is not None):
        raise ValueError("`cwd` and `repo` with `ref` exclude each other: expected one of them")
    if task.ref is not None and task.repo is None:
        raise ValueError("`ref` is of a repository: expected `repo`, too")
    if task.ref is not None and checkout != "worktree":
        raise ValueError(f"`ref` needs a checkout of it: --checkout {checkout} takes the folder as it is")
    if task.repo is not None and checkout != "worktree" and is_url(task.repo):
        raise ValueError(f"--checkout {checkout} needs `repo` to be a folder, and not a URL")


def _require_plain_address(task: Task) -> None:
    if task.repo is None or not is_url(task.repo):
        return
    if masked_text(task.repo) != task.repo:
        raise ValueError(
            "`repo` has a password or token in it, and lines are stored: let git have it from a helper"
        )
    if "::" in task.repo or ("://" in task.repo and not task.repo.lower().startswith(TRANSPORTS)):
        raise ValueError(
            f"`repo` needs an address that begins with one of {', '.join(TRANSPORTS)}, or `host:path`"
        )


def _require_no_secret(line: bytes, secrets: Mapping[str, str]) -> None:
    """Raise ValueError if a text of the line contains a secret, in any JSON notation."""
    if not secrets:
        return
    if (holder := holder_in(json.loads(line), secrets)) is not None:
        raise ValueError(f"the line has the value of {holder} in it, and lines are stored: leave it out")


def holder_in(value: Json, secrets: Mapping[str, str]) -> str | None:
    """Return the holder of a secret that is in a text or a name of a JSON value; None if there is none."""
    match value:
        case str():
            return next((holder for holder, secret in secrets.items() if secret in value), None)
        case list():
            return next(filter(None, (holder_in(each, secrets) for each in value)), None)
        case dict():
            return holder_in([*value, *value.values()], secrets)
        case _:
            return None


def _reason(error: Exception) -> str:
    text = str(error).removesuffix(" - at `$`")
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case UnicodeDecodeError():
            return f"it is not UTF-8 at byte {error.start} of the line"
        case msgspec.ValidationError() if "got `str`" in text and text.endswith(COMMANDS):
            name = text.split("$.")[-1].rstrip("`")
            return f'`{name}` is a command as a list of words, like ["pytest", "-q"], and not one text'
        case msgspec.ValidationError() if text.startswith("Invalid enum value"):
            words = get_args(Sandbox if text.endswith(".sandbox`") else Approval)
            return f"{text}: expected one of {', '.join(words)}"
        case msgspec.DecodeError() if not isinstance(error, msgspec.ValidationError):
            return f"it is not JSON: {text}"
        case _:
            return text


TRANSPORTS = ("https://", "http://", "ssh://", "git://")
"""Allowed transports of repository addresses. Others run programs that an address names."""
COMMANDS = ("$.setup`", "$.check`")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://|[\w.-]+(?:@[\w.-]+)?:(?!/)", re.IGNORECASE)


def is_url(repository: str) -> bool:
    """Return whether a repository is named by an address (`https://…`, `git@host:path`), and not by a folder."""
    return _URL.match(repository) is not None and not repository.startswith("file://")


_SAFE = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")


def file_name(id: str) -> str:
    """Return the name of a task's files: its id if that is safe on every disk, otherwise a name that no other task
    has.
    """
    if _SAFE.fullmatch(id):
        return id
    words = re.sub(r"[^a-z0-9._-]+", "-", id.lower()).strip("-.")[:40]
    return f"{words or 'task'}~{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def folder_of(task: Task, checkout: Checkout) -> str | None:
    """Return the folder in which the task runs as it is; None if it has a folder of its own."""
    return task.cwd or (task.repo if checkout == "none" else None)


def listed(problems: Sequence[Problem], source: str, most: int = 20) -> list[str]:
    """Return a line for each problem, up to `most`, and then a line with their number."""
    lines = [f"{source}:{number}: {reason}" for number, reason in problems[:most]]
    return lines if len(problems) <= most else [*lines, f"{source}: {len(problems)} lines cannot be used"]
