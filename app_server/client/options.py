"""The arguments of the methods that open threads and begin turns: the prompt, and the optional settings as typed
dictionaries.

The names are those of the protocol. The server chooses the values that are not given.
"""

from __future__ import annotations

import base64
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, TypedDict, TypeVar

from pydantic import ValidationError

from app_server.client.failures import InvalidArgument
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.policy import ReasoningSummary, SandboxMode
from app_server_protocol.v2.item_parts import ImageUserInput, LocalImageUserInput, TextUserInput, UserInput
from app_server_protocol.v2.settings import AskForApproval, CollaborationMode, Personality, SandboxPolicy
from app_server_protocol.v2.thread_open import DynamicToolSpec
from app_server_protocol.wire_fields import PREFIX, describe_validation_error

P = TypeVar("P", bound=WireModel)

Folder = str | os.PathLike[str]

ApprovalWord = Literal["untrusted", "on-request", "never"]
SandboxWord = Literal["read-only", "workspace-write", "danger-full-access"]


class OpenOptions(TypedDict, total=False):
    """Settings for every way to open a thread."""

    cwd: Folder
    model: str
    model_provider: str
    approval_policy: ApprovalWord | AskForApproval
    sandbox: SandboxWord | SandboxMode
    config: Mapping[str, Json]
    """Further settings, by their dotted names in the configuration."""
    base_instructions: str
    developer_instructions: str


class ThreadSource(TypedDict, total=False):
    thread_source: str
    """Program or purpose of a new thread, in a word of the client's own."""


class StartOptions(OpenOptions, ThreadSource, total=False):
    """Settings of a new thread."""

    personality: Personality
    ephemeral: bool
    """Whether the thread is not stored."""
    dynamic_tools: Sequence[DynamicToolSpec]
    """Tools of the client; the model's calls arrive as `ClientToolRequest`."""


class ForkOptions(OpenOptions, ThreadSource, total=False):
    """Settings of a copy."""

    last_turn_id: str
    """Id of the last turn that the copy contains."""
    ephemeral: bool


class TurnOptions(TypedDict, total=False):
    """Settings for a turn and those after it."""

    cwd: Folder
    model: str
    effort: str
    """Reasoning effort of the model: `low`, `medium`, `high` or another value that the provider knows."""
    summary: ReasoningSummary
    approval_policy: ApprovalWord | AskForApproval
    sandbox_policy: SandboxPolicy
    personality: Personality
    collaboration_mode: CollaborationMode
    output_schema: Json
    """JSON Schema for the final message, of this turn only; `run(output=...)` also parses the message."""


class ListOptions(TypedDict, total=False):
    """Filters and order of the list of stored threads."""

    search: str
    """Text that the thread's name or first message contains."""
    cwd: Folder
    archived: bool
    model_providers: Sequence[str]
    sort_key: Literal["created_at", "updated_at", "recency_at"]
    sort_direction: Literal["asc", "desc"]
    page_size: int


RENAMED: Final = {"search": "search_term", "page_size": "limit"}
"""Options whose field of the protocol has another name."""


def parameters(model: type[P], known: type, options: Mapping[str, object], **others: object) -> P:
    """Return the parameters of a request. `options` has names of the typed dictionary `known`; `others` are added by
    the library. Raises TypeError for an unknown name, as a call does, and InvalidArgument for a wrong value.
    """
    names = known.__annotations__
    for name in options:
        if name not in names:
            raise TypeError(f"unexpected option {name!r}: expected one of {', '.join(sorted(names))}")
    given = {
        RENAMED.get(name, name): os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in options.items()
    }
    try:
        return model.model_validate({**given, **others})
    except ValidationError as error:
        raise InvalidArgument(describe_validation_error(error)[0].removeprefix(PREFIX)) from error


Prompt: TypeAlias = str | UserInput | Sequence[str | UserInput]
"""A text, a part, or a sequence of both: `["What is this?", image("shot.png")]`."""

KINDS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/bmp": re.compile(rb"BM"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
"""Patterns of the first bytes of each kind of image."""

LONGEST_BEGINNING = 12


def image(source: str | os.PathLike[str] | bytes) -> UserInput:
    """Return an image from its path or its bytes (PNG, JPEG, GIF, BMP, WebP). Raises InvalidArgument."""
    if isinstance(source, bytes):
        mime = next((mime for mime, beginning in KINDS.items() if beginning.match(source)), None)
        if mime is None:
            raise InvalidArgument("expected the bytes of a PNG, JPEG, GIF, BMP or WebP image")
        return ImageUserInput(url=f"data:{mime};base64,{base64.b64encode(source).decode('ascii')}")
    try:
        path = os.path.abspath(source)
        regular = stat.S_ISREG(os.stat(path).st_mode)  # reading a pipe would block
        with open(path if regular else os.devnull, "rb") as file:
            beginning = file.read(LONGEST_BEGINNING)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{os.fspath(source)}: {getattr(error, 'strerror', error)}") from error
    if not any(kind.match(beginning) for kind in KINDS.values()):
        raise InvalidArgument(f"{os.fspath(source)} is not a PNG, JPEG, GIF, BMP or WebP image")
    return LocalImageUserInput(path=path)


def parts_of(prompt: Prompt) -> tuple[UserInput, ...]:
    parts = prompt if isinstance(prompt, Sequence) and not isinstance(prompt, str) else (prompt,)
    return tuple(TextUserInput(text=part) if isinstance(part, str) else part for part in parts)
