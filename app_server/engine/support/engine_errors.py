"""The exceptions of the engine. Their messages are for users and contain no secrets.

Expected outcomes (an exit code, a denial, a time-out) are values. An exception means that an operation cannot continue.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

from app_server_protocol.engine.errors import ErrorClass

SHORTAGES = frozenset(
    {
        *(errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT),
        *(errno.ENOBUFS, errno.ETOOMANYREFS, errno.EUSERS),
    }
)
"""Error numbers of a system that lacks a resource at the moment."""


def retry_hint(code: int | None) -> str:
    """Return a hint for errors that may not occur again."""
    return "; the machine is short of resources, try again" if code in SHORTAGES else ""


def describe(error: OSError) -> str:
    """Return the reason of the error, without a path."""
    return (error.strerror or type(error).__name__).lower()


class CoreError(Exception):
    """Base class. `str(error)` may be shown to the client."""

    error_class = ErrorClass.OTHER
    """Class of the error with which a turn ends because of this exception."""
    kind = "engine"
    """Kind of the error, for programs."""
    field: str | None = None
    """Field of the request that caused the error; None if it is none or unknown."""


class FilePosition(NamedTuple):
    """A position in a file; line and column count from 1."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


UNREADABLE_CONFIG = "failed to load configuration: "
"""Beginning of the texts of errors in the settings file."""


class ConfigError(CoreError):
    """The configuration cannot be used as written; the message names file, line and key where known."""

    kind = "config"

    def __init__(self, text: str, position: FilePosition | None = None) -> None:
        super().__init__(text)
        self.position = position


class BeyondClientRights(ConfigError):
    """A client asks for more rights than the user's configuration leaves to clients."""

    kind = "client_rights"


class InvalidSettings(ConfigError):
    """A client wants to write invalid settings."""


class VersionConflict(ConfigError):
    """The settings have changed since the client read them."""


class ConversationError(CoreError):
    """A conversation cannot be opened, found or stored."""

    kind = "conversation"


class RolloutNotFound(ConversationError):
    """No stored conversation has that id or path."""

    kind = "rollout_not_found"


class RolloutUnreadable(ConversationError):
    """The file is not a rollout, or cannot be read."""


class RolloutBusy(ConversationError):
    """Another writer has this conversation open."""


class NotStored(ConversationError):
    """The newest lines of a conversation cannot be written at the moment, and an operation needs them in the file."""


class ArchiveRefused(ConversationError):
    """The path to archive is not a rollout of this home, or belongs to another conversation."""


class NothingRan(CoreError):
    """A command was not run."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code
        """Error number of the system; None if the launcher reported none."""


class LaunchError(NothingRan):
    """A command could not be started at all (no such program, no such directory)."""


class SandboxUnavailable(NothingRan):
    """The sandbox that a command needs cannot be built here; the command was not run."""

    error_class = ErrorClass.SANDBOX_ERROR


class SandboxShortage(SandboxUnavailable):
    """The sandbox could not be built for a shortage of resources; the next command tries again."""


def raise_shortage(error: OSError, what: str) -> None:
    """Raise SandboxShortage if `error` is a shortage: a plan must not be made without the facts."""
    if error.errno in SHORTAGES:
        raise SandboxShortage(f"{what}: {error.strerror}{retry_hint(error.errno)}", error.errno) from error


class GitError(CoreError):
    """Git is missing, or a git command failed."""


class AuthError(CoreError):
    """Credentials are missing, refused or cannot be stored."""


class IssuerUnreachable(AuthError):
    """The OAuth issuer did not answer; a later attempt may have an answer."""


class ModelError(CoreError):
    """A request to the model failed."""

    retry_after: float | None = None
    """Wait that the provider requests before a retry, in seconds; None if the back-off decides."""
    unanswered = False
    """Whether the provider took the request and closed the connection without a byte of an answer."""

    def __init__(
        self,
        text: str,
        error_class: ErrorClass = ErrorClass.OTHER,
        *,
        status: int | None = None,
        retryable: bool = False,
        details: str | None = None,
    ) -> None:
        """`status`: status of the response. `retryable`: whether the turn loop may try the stream again. `details`:
        advice, for clients that show more than the text.
        """
        super().__init__(text)
        self.error_class, self.status = error_class, status
        self.retryable, self.details = retryable, details


class StreamDisconnected(ModelError):
    """The stream broke, went idle or ended before the response was complete."""

    def __init__(
        self,
        reason: str,
        retry_after: float | None = None,
        error_class: ErrorClass = ErrorClass.RESPONSE_STREAM_DISCONNECTED,
    ) -> None:
        super().__init__(f"stream disconnected before completion: {reason}", error_class, retryable=True)
        self.retry_after = retry_after


class ContextWindowExceeded(ModelError):
    """The conversation no longer fits into the model's context window."""

    def __init__(self, window: int | None = None, text: str | None = None) -> None:
        """`text`: None for the usual text, which names the window if it is known."""
        usual = (
            "The conversation has become too long for this model. Start a new one, or ask with less of it."
        )
        known = "" if window is None else f" The window of the model is {window:,} tokens."
        super().__init__(text or usual + known, ErrorClass.CONTEXT_WINDOW_EXCEEDED)
        self.window = window
        """Context window in tokens, as the provider names it or as its silence suggests; None if it is unknown."""


class InputClosed(CoreError):
    """No process reads the input that is written to a command."""


class InputFull(CoreError):
    """The input of a command exceeds the buffer that is kept until the command reads."""


class FileRefused(CoreError):
    """A client's request about a file cannot be served as sent; `kind` is the reason, for programs."""

    def __init__(self, text: str, kind: str = "file") -> None:
        super().__init__(text)
        self.kind = kind
