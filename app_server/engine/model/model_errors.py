"""The errors of requests to a model, with texts for the user, and the back-off before a retry.

Clients match some of these texts, which must not change. `retryable` is for the turn loop: whether another attempt may
succeed. `model_client` has retried the request before it raises any of these errors; the client and the turn loop
decide who retries, and how often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from app_server.engine.http import status_lines
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ModelError, StreamDisconnected
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.engine.token_usage import RateLimitSnapshot

LONGEST_EXCERPT = 800
"""Maximum length of quoted provider texts, in characters: enough for a JSON error, but less than an HTML page."""

DISCONNECTED = "Transport error: Error while reading the server response: error decoding response body"
CLOSED_EARLY = "stream closed before response.completed"
IDLE = "idle timeout waiting for SSE (`stream_idle_timeout_ms` of the provider)"
OVERLOADED = "server_is_overloaded"
"""Code of the error by which a provider reports that it is overloaded."""

LIMITED = ErrorClass.RESPONSE_TOO_MANY_FAILED_ATTEMPTS
USED_UP = ErrorClass.USAGE_LIMIT_EXCEEDED

TOO_MANY_REQUESTS: Final = 429

_CLASSES: Final[Mapping[int, ErrorClass]] = {400: ErrorClass.BAD_REQUEST, 401: ErrorClass.UNAUTHORIZED}
"""Error classes of statuses; the errors of other statuses name the status by its number."""


class UnexpectedStatus(ModelError):
    """The provider refused the request; sending it again would not help."""

    def __init__(
        self,
        status: int,
        body: str,
        problem: user_messages.Problem | None = None,
        *,
        model_unknown: bool = False,
    ) -> None:
        """`model_unknown`: the provider does not offer the model."""
        more = f". {problem}" if problem else ""
        text = f"unexpected status {status_lines.status_line(status)}: {excerpt(body)}{more}"
        by_status = _CLASSES.get(status, ErrorClass.HTTP_CONNECTION_FAILED)
        super().__init__(text, ErrorClass.MODEL_NOT_FOUND if model_unknown else by_status, status=status)
        self.body, self.model_unknown = body, model_unknown


RETRIED: Final = "exceeded retry limit, last status: {}"


class Unauthorized(ModelError):
    """The credentials were refused, even after they were renewed; or there were none."""

    def __init__(
        self, problem: user_messages.Problem | None = None, details: user_messages.Problem | None = None
    ) -> None:
        status = status_lines.status_line(401)
        # Clients of the conversation API compare the text of a refusal that has no explanation.
        text = f"unexpected status {status}: {problem}" if problem else RETRIED.format(status)
        super().__init__(text, ErrorClass.UNAUTHORIZED, details=None if details is None else str(details))


class UsageLimitReached(ModelError):
    """The account has used up what its plan allows."""

    def __init__(
        self, plan: str | None, resets_at: int | None, rate_limits: RateLimitSnapshot | None = None
    ) -> None:
        when = _utc(resets_at)
        until = f"It is lifted on {when}." if when else "Try again later, or look at your plan's settings."
        text = f"The usage limit of your {f'{plan} ' if plan else ''}plan is reached. {until}"
        super().__init__(text, USED_UP)
        self.rate_limits = rate_limits


class ResponseTooLarge(ModelError):
    """The response exceeds a size limit. Another attempt would exceed it again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"The model's provider sent {what}; the rest of its answer was not read.")


def retry_limit_reached(
    status: int, request_id: str | None = None, words: str = "", *, overloaded: bool = False
) -> ModelError:
    """Return the error of a provider that was overloaded or rate limited on every attempt. `words`: the provider's own
    message, if there is one. `overloaded`: it reported this by a code.
    """
    suffix = f", request id: {request_id[:100]}" if request_id else ""
    said = f": {excerpt(words)}" if words else ""
    text = f"exceeded retry limit, last status: {status_lines.status_line(status)}{suffix}{said}"
    by_status = LIMITED if status == TOO_MANY_REQUESTS else ErrorClass.HTTP_CONNECTION_FAILED
    error_class = ErrorClass.SERVER_OVERLOADED if overloaded else by_status
    return ModelError(text, error_class, status=status, retryable=True)


def wait_too_long(status: int, seconds: float) -> ModelError:
    """Return the error of a provider that requests a longer wait than a turn accepts."""
    asked = f"The provider asks to wait {seconds:.0f} seconds."
    return ModelError(
        f"exceeded retry limit, last status: {status_lines.status_line(status)}. {asked}", LIMITED
    )


def provider_failing(words: str) -> ModelError:
    """Return the error of a provider that returned status 500 on every attempt. `words`: the provider's own message, if
    there is one.
    """
    text = "The model's provider is failing or overloaded at the moment (500 Internal Server Error)."
    if words:
        text = f"{text} It says: {excerpt(words)}"
    return ModelError(text, ErrorClass.INTERNAL_SERVER_ERROR, retryable=True)


def access_blocked(status: int) -> ModelError:
    """Return the error of a request that a gateway in front of the provider rejected."""
    text = f"Cloudflare turned the request away ({status_lines.status_line(status)}); it does not let in every network."
    return ModelError(text)


INCOMPLETE = {
    "max_output_tokens": ErrorClass.OUTPUT_LIMIT,
    **dict.fromkeys(("length", "max_tokens", "model_length"), ErrorClass.OUTPUT_LIMIT),
    **dict.fromkeys(("content_filter", "safety", "sensitive", "refusal", "recitation"), ErrorClass.REFUSED),
}
"""Error classes of an answer that the provider stopped in the middle, by the provider's name of the reason."""


def incomplete_response(reason: str, words: str = "") -> ModelError:
    """Return the error of an answer that the provider stopped in the middle. `words`: the provider's own message, if
    there is one.
    """
    text = (
        f"The model's answer is incomplete, reason: {excerpt(reason)}{f': {excerpt(words)}' if words else ''}"
    )
    return ModelError(text, INCOMPLETE.get(reason, ErrorClass.OTHER))


def answer_broken(reason: str) -> ModelError:
    """Return the error of an answer that the provider aborted in the middle; a retry may end differently."""
    return StreamDisconnected(f"the provider ended its answer with the reason {excerpt(reason)}")


def connection_failed(provider: str, origin: str, reason: str, *, retryable: bool = True) -> ModelError:
    """Return the error of a provider that cannot be reached, or does not respond."""
    text = str(user_messages.provider_unreachable(provider, origin, reason))
    return ModelError(text, ErrorClass.HTTP_CONNECTION_FAILED, retryable=retryable)


_REPORTED = {
    "rate_limit_exceeded": ErrorClass.RATE_LIMIT_EXCEEDED,
    "slow_down": ErrorClass.RATE_LIMIT_EXCEEDED,
    OVERLOADED: ErrorClass.SERVER_OVERLOADED,
    "overloaded_error": ErrorClass.SERVER_OVERLOADED,
}


def response_failed(reason: str, code: object, retry_after: float | None = None) -> ModelError:
    """Return the error of a response that the provider ended with an error which may not occur again. The text is that
    of a broken stream, which clients of the conversation API match.
    """
    error_class = _REPORTED.get(code, ErrorClass.OTHER) if isinstance(code, str) else ErrorClass.OTHER
    return StreamDisconnected(reason, retry_after, error_class)


def missing_variable(name: str, instructions: str | None) -> ModelError:
    """Return the error of an environment variable that holds a provider's key and is not set."""
    problem = user_messages.key_missing(name)
    text = f"{problem.what}. {instructions}" if instructions else str(problem)
    return ModelError(text, ErrorClass.UNAUTHORIZED)


def excerpt(text: str) -> str:
    return text if len(text) <= LONGEST_EXCERPT else f"{text[:LONGEST_EXCERPT]}…"


def _utc(seconds: int | None) -> str | None:
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d at %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return None


FIRST_DELAY = 0.2
LONGEST_DELAY = 60.0
"""Maximum back-off, in seconds, at which doubling stops; without it, a dozen attempts would take a quarter of an hour.
"""

JITTER = 0.1
"""Largest part of a back-off that is randomly added or subtracted, so that many clients do not retry at the same
moment.
"""


def backoff(attempt: int, rng: Callable[[], float]) -> float:
    """Return the back-off before attempt number `attempt`, counted from 1, in seconds; `rng` gives numbers from 0 up to
    1.
    """
    doublings = min(max(attempt, 1) - 1, 16)
    delay = min(FIRST_DELAY * 2.0**doublings, LONGEST_DELAY)
    return delay * (1.0 - JITTER + 2.0 * JITTER * rng())
