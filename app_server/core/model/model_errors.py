"""The errors of requests to a model, with texts for the user, and how long to wait before the next attempt.

Clients match some of these texts, which must not change. `retryable` is for the turn loop: whether another attempt may
succeed. `model_client` has retried the request before it raises any of these; who retries, and how often, is decided
there and in the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus

from app_server.core import remedies
from app_server.core.errors import ModelError, StreamDisconnected
from app_server.core.remedies import Problem
from protocol.engine.errors import ErrorClass
from protocol.events.turn import RateLimitSnapshot

LONGEST_EXCERPT = 800
"""Maximum length of quoted provider texts: enough for a JSON error, but less than an HTML page."""

DISCONNECTED = "Transport error: Error while reading the server response: error decoding response body"
CLOSED_EARLY = "stream closed before response.completed"
IDLE = "idle timeout waiting for SSE"
OVERLOADED = "server_is_overloaded"
"""The code of a provider's error."""
CONTEXT_FULL = "The conversation has become too long for this model. Start a new one, or ask with less of it."


class UnexpectedStatus(ModelError):
    """The provider refused the request; sending it again would not help."""

    def __init__(self, status: int, body: str, problem: Problem | None = None) -> None:
        more = f". {problem}" if problem else ""
        super().__init__(f"unexpected status {status_line(status)}: {excerpt(body)}{more}")
        self.status, self.body = status, body
        self.error_class = _class_of(status)


class Unauthorized(ModelError):
    """The credentials were refused, also after they were renewed; or there were none."""

    error_class = ErrorClass.UNAUTHORIZED

    def __init__(self, problem: Problem | None = None, details: Problem | None = None) -> None:
        super().__init__(
            f"exceeded retry limit, last status: {status_line(401)}{f'. {problem}' if problem else ''}"
        )
        self.details = None if details is None else str(details)


class ModelUnknown(UnexpectedStatus):
    """The provider does not offer the model."""


class RetryLimitReached(ModelError):
    """The provider was overloaded or rate limited on every attempt."""

    retryable = True

    def __init__(self, status: int, request_id: str | None = None, *, overloaded: bool = False) -> None:
        """`overloaded`: the provider said in words that it is."""
        suffix = f", request id: {request_id[:100]}" if request_id else ""
        super().__init__(f"exceeded retry limit, last status: {status_line(status)}{suffix}")
        self.status = status
        limited = status == HTTPStatus.TOO_MANY_REQUESTS
        self.error_class = (
            ErrorClass.SERVER_OVERLOADED
            if overloaded
            else ErrorClass.RESPONSE_TOO_MANY_FAILED_ATTEMPTS
            if limited
            else ErrorClass.HTTP_CONNECTION_FAILED
        )


class WaitTooLong(ModelError):
    """The provider requests a longer wait than a turn accepts."""

    error_class = ErrorClass.RESPONSE_TOO_MANY_FAILED_ATTEMPTS

    def __init__(self, status: int, seconds: float) -> None:
        super().__init__(
            f"exceeded retry limit, last status: {status_line(status)}. "
            f"The provider asks to wait {seconds:.0f} seconds."
        )


class ProviderFailing(ModelError):
    """The provider returned status 500 on every attempt."""

    error_class = ErrorClass.INTERNAL_SERVER_ERROR
    retryable = True

    def __init__(self) -> None:
        super().__init__(
            "The model's provider is failing or overloaded at the moment (500 Internal Server Error)."
        )


class AccessBlocked(ModelError):
    """A gateway in front of the provider turned the request away."""

    def __init__(self, status: int) -> None:
        super().__init__(
            f"Cloudflare turned the request away ({status_line(status)}); it does not let in every network."
        )


class UsageLimitReached(ModelError):
    """The account has used up what its plan allows."""

    error_class = ErrorClass.USAGE_LIMIT_EXCEEDED

    def __init__(
        self, plan: str | None, resets_at: int | None, rate_limits: RateLimitSnapshot | None = None
    ) -> None:
        when = _utc(resets_at)
        super().__init__(
            f"The usage limit of your {f'{plan} ' if plan else ''}plan is reached. "
            + (f"It is lifted on {when}." if when else "Try again later, or look at your plan's settings.")
        )
        self.plan, self.resets_at, self.rate_limits = plan, resets_at, rate_limits


class UsageNotIncluded(ModelError):
    error_class = ErrorClass.USAGE_LIMIT_EXCEEDED

    def __init__(self) -> None:
        super().__init__("Your ChatGPT plan does not include the use of this model from here.")


class QuotaExceeded(ModelError):
    error_class = ErrorClass.USAGE_LIMIT_EXCEEDED

    def __init__(self) -> None:
        super().__init__("The account's quota is used up. Look at its plan and billing details.")


INCOMPLETE = {
    "max_output_tokens": ErrorClass.OUTPUT_LIMIT,
    "length": ErrorClass.OUTPUT_LIMIT,
    "content_filter": ErrorClass.REFUSED,
}
"""Why a provider stopped in the middle of an answer, in its own words."""


class IncompleteResponse(ModelError):
    """The provider stopped in the middle, and says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The model's answer is incomplete, reason: {excerpt(reason)}")
        self.reason = reason
        self.error_class = INCOMPLETE.get(reason, ErrorClass.OTHER)


class InvalidPrompt(ModelError):
    error_class = ErrorClass.BAD_REQUEST

    def __init__(self, message: str) -> None:
        super().__init__(f"The provider does not accept the request: {excerpt(message)}")


class CyberPolicy(ModelError):
    """The provider takes the request for an attack on somebody's computers; its own words say what to do."""

    error_class = ErrorClass.CYBER_POLICY


class NotAnEventStream(ModelError):
    def __init__(self, content_type: str, body: str) -> None:
        super().__init__(
            f"The provider answered with {excerpt(content_type)} instead of an event stream: {excerpt(body)}"
        )


class ResponseTooLarge(ModelError):
    """The response exceeds a size limit. Another attempt would exceed it again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"The model's provider sent {what}; the rest of its answer was not read.")


class ResponseUnreadable(ModelError):
    """The response cannot be decoded, and neither could the next one."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The model's provider sent {reason}.")


class ConnectionFailed(ModelError):
    """No connection, or no response."""

    error_class = ErrorClass.HTTP_CONNECTION_FAILED

    def __init__(self, provider: str, origin: str, reason: str, *, retryable: bool = True) -> None:
        super().__init__(str(remedies.provider_unreachable(provider, origin, reason)))
        self.retryable = retryable


_REPORTED = {
    "rate_limit_exceeded": ErrorClass.RATE_LIMIT_EXCEEDED,
    "slow_down": ErrorClass.RATE_LIMIT_EXCEEDED,
    OVERLOADED: ErrorClass.SERVER_OVERLOADED,
}


class ResponseFailed(StreamDisconnected):
    """The provider ended the response with an error that it may not repeat. The text is that of a broken stream, which
    clients of the conversation API match.
    """

    def __init__(self, reason: str, code: object, retry_after: float | None = None) -> None:
        super().__init__(reason, retry_after)
        self.error_class = (
            _REPORTED.get(code, ErrorClass.OTHER) if isinstance(code, str) else ErrorClass.OTHER
        )


class HeadersTimedOut(StreamDisconnected):
    def __init__(self) -> None:
        super().__init__("the provider took the request and did not begin to answer in time")


class MissingVariable(ModelError):
    """The variable that a provider's key is to be read from is not set."""

    error_class = ErrorClass.UNAUTHORIZED

    def __init__(self, name: str, instructions: str | None) -> None:
        problem = remedies.key_missing(name)
        super().__init__(f"{problem.what}. {instructions}" if instructions else str(problem))


class NoBaseUrl(ModelError):
    def __init__(self, provider_id: str) -> None:
        super().__init__(str(remedies.no_base_url(provider_id)))


class CredentialsUnavailable(ModelError):
    """Somebody is logged in, but the login cannot be used or renewed."""

    error_class = ErrorClass.UNAUTHORIZED


def status_line(status: int) -> str:
    """`404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} <unknown status code>"


def excerpt(text: str) -> str:
    return text if len(text) <= LONGEST_EXCERPT else f"{text[:LONGEST_EXCERPT]}…"


def _class_of(status: int) -> ErrorClass:
    """Others are named by their number."""
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return ErrorClass.UNAUTHORIZED
        case HTTPStatus.BAD_REQUEST:
            return ErrorClass.BAD_REQUEST
        case _:
            return ErrorClass.HTTP_CONNECTION_FAILED


def _utc(seconds: int | None) -> str | None:
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d at %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return None


FIRST_DELAY = 0.2
LONGEST_DELAY = 60.0
"""Doubling stops here; otherwise a dozen attempts would take a quarter of an hour."""

JITTER = 0.1
"""Up to so much is added or taken away, so that many clients do not come back at the same moment."""


def backoff(attempt: int, rng: Callable[[], float]) -> float:
    """Seconds before attempt number `attempt`, counted from 1; `rng` gives numbers from 0 up to 1."""
    doublings = min(max(attempt, 1) - 1, 16)
    delay = min(FIRST_DELAY * 2.0**doublings, LONGEST_DELAY)
    return delay * (1.0 - JITTER + 2.0 * JITTER * rng())
