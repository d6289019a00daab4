"""The error of a failed turn, or of one attempt of it: an error class besides the text. Pure.

The classes are those that clients of the thread API distinguish; the conversation API shows the text only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ErrorClass(StrEnum):
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    USAGE_LIMIT_EXCEEDED = "usage_limit_exceeded"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    SERVER_OVERLOADED = "server_overloaded"
    INTERNAL_SERVER_ERROR = "internal_server_error"
    """Error of the provider, with a status 5xx."""
    UNAUTHORIZED = "unauthorized"
    MODEL_NOT_FOUND = "model_not_found"
    """The provider does not offer the model."""
    BAD_REQUEST = "bad_request"
    SANDBOX_ERROR = "sandbox_error"
    HTTP_CONNECTION_FAILED = "http_connection_failed"
    """No connection, or a response with a status that has no class of its own."""
    RESPONSE_STREAM_CONNECTION_FAILED = "response_stream_connection_failed"
    RESPONSE_STREAM_DISCONNECTED = "response_stream_disconnected"
    RESPONSE_TOO_MANY_FAILED_ATTEMPTS = "response_too_many_failed_attempts"
    OUTPUT_LIMIT = "output_limit"
    """The model's answer reached its maximum length."""
    CYBER_POLICY = "cyber_policy"
    """The provider takes the request for a cyber attack."""
    BIO_POLICY = "bio_policy"
    """The provider takes the request for a risk to biological security."""
    REFUSED = "refused"
    """The provider's filter withheld the answer."""
    OTHER = "other"


class TurnError(NamedTuple):
    """One failure, with a text for the user."""

    message: str
    error_class: ErrorClass | None = None
    """Class of the error; None if only the text is known."""
    http_status: int | None = None
    details: str | None = None
