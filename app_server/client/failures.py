"""Exceptions of the client library. Every class derives from `AppServerError`."""

from __future__ import annotations

from app_server_protocol.encoding import Json


class AppServerError(Exception):
    """The base of all errors of this library."""


class InvalidArgument(AppServerError, ValueError):
    """An argument has a value that the protocol does not know; nothing was sent."""


class RequestRefused(AppServerError):
    """The server answered a request with an error. `kind` is its machine-readable kind, or None."""

    def __init__(self, method: str, code: int, message: str, data: Json = None) -> None:
        super().__init__(f"{method}: {message}")
        self.method, self.code, self.message, self.data = method, code, message, data

    @property
    def kind(self) -> str | None:
        kind = self.data.get("kind") if isinstance(self.data, dict) else None
        return kind if isinstance(kind, str) else None


class ServerEnded(AppServerError):
    """The server has ended, or could not be started. The text has its exit status and its last lines on stderr."""


class ThreadClosed(AppServerError):
    """The thread was closed, archived or deleted while a caller waited for one of its turns."""


class UnexpectedAnswer(AppServerError):
    """The answer to a request does not have the shape that the protocol prescribes."""


class StreamOverflow(AppServerError):
    """A stream was read too slowly, and events were left out. The turn continues; `thread.read()` returns all of it."""


class HandlerFailed(AppServerError):
    """An `on_approval` handler raised an exception, which is the cause of this one. The request was declined."""


class TurnFailed(AppServerError):
    """A turn did not complete, so it has no output. Only `TurnResult.output` raises it."""


class OutputInvalid(AppServerError):
    """The final message does not match the output schema."""
