import json

import pytest

from app_server.core.errors import ContextWindowExceeded, ModelError
from app_server.core.model.api_failures import RequestFailure, rate_limits, request_failure, retry_after
from app_server.core.model.model_errors import (
    LONGEST_DELAY,
    AccessBlocked,
    QuotaExceeded,
    RetryLimitReached,
    UsageLimitReached,
    UsageNotIncluded,
    WaitTooLong,
    backoff,
)
from protocol.base import Json
from protocol.engine.errors import ErrorClass
from protocol.events.turn import RateLimitSnapshot, RateLimitWindow


def told(status: int, error: Json = None, **headers: str) -> RequestFailure:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return request_failure(status, named, json.dumps({"error": error}).encode())


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (
            400,
            b'{"error": {"message": "bad input"}}',
            'unexpected status 400 Bad Request: {"error": {"message": "bad input"}}',
        ),
        (404, b"not here", "unexpected status 404 Not Found: not here"),
        (403, b"", "unexpected status 403 Forbidden: "),
        (302, b"", "unexpected status 302 Found: "),
        (401, b"no key", "exceeded retry limit, last status: 401 Unauthorized"),
        (599 - 100, b"?", "unexpected status 499 <unknown status code>: ?"),
    ],
)
def test_refusals_that_no_retry_would_change(status: int, body: bytes, text: str) -> None:
    refused = request_failure(status, {}, body)
    assert str(refused.error) == text
    assert not refused.again
    assert not refused.error.retryable


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_overload_is_tried_again(status: int) -> None:
    refused = request_failure(status, {}, b"")
    assert refused.again
    assert refused.delay is None
    assert refused.error.retryable


def test_the_text_of_a_rate_limit() -> None:
    assert str(told(429).error) == "exceeded retry limit, last status: 429 Too Many Requests"
    named = told(503, x_request_id="req_1").error
    assert str(named) == "exceeded retry limit, last status: 503 Service Unavailable, request id: req_1"


def test_a_provider_that_says_it_is_overloaded() -> None:
    told_so = told(503, {"code": "server_is_overloaded", "message": "busy"})
    assert told_so.again
    assert told_so.error.error_class is ErrorClass.SERVER_OVERLOADED
    assert told(503, {"message": "busy"}).error.error_class is ErrorClass.HTTP_CONNECTION_FAILED


def test_a_page_of_html_is_cut() -> None:
    error = request_failure(404, {}, b"<html>" + b"x" * 100_000).error
    assert len(str(error)) < 1000


def test_limits_of_the_account() -> None:
    error = told(429, {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": 1704069000}).error
    assert isinstance(error, UsageLimitReached)
    assert "plus" in str(error)
    assert "2024-01-01 at 00:30 UTC" in str(error)
    assert error.rate_limits == RateLimitSnapshot()
    assert isinstance(told(429, {"type": "usage_not_included"}).error, UsageNotIncluded)
    assert isinstance(told(429, {"code": "insufficient_quota"}).error, QuotaExceeded)
    for refused in (told(429, {"type": "usage_limit_reached"}), told(429, {"code": "insufficient_quota"})):
        assert not refused.again
        assert not refused.error.retryable


def test_a_request_that_is_flagged_has_the_providers_words() -> None:
    flagged = told(400, {"code": "cyber_policy", "message": "apply for access"})
    assert (str(flagged.error), flagged.again) == ("apply for access", False)
    assert flagged.error.error_class is ErrorClass.CYBER_POLICY


@pytest.mark.parametrize("resets_at", [None, "soon", -1, 10**30, True, 1.5])
def test_an_odd_reset_time_is_left_out(resets_at: Json) -> None:
    error = told(429, {"type": "usage_limit_reached", "resets_at": resets_at}).error
    assert "later" in str(error)


def test_a_usage_limit_error_has_the_rate_limits() -> None:
    error = told(429, {"type": "usage_limit_reached"}, x_codex_primary_used_percent="100").error
    assert isinstance(error, UsageLimitReached)
    assert error.rate_limits == RateLimitSnapshot(primary=RateLimitWindow(used_percent=100))


def test_a_full_context_is_known_by_its_code() -> None:
    assert isinstance(told(400, {"code": "context_length_exceeded"}).error, ContextWindowExceeded)


def test_a_gateway_that_blocks_is_named() -> None:
    refused = request_failure(403, {}, b"<html>Cloudflare: sorry, you have been blocked</html>")
    assert isinstance(refused.error, AccessBlocked)
    assert "html" not in str(refused.error)


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"\xff", b"null", b'{"error": "text"}', b'{"error": {"type": 3}}']
)
def test_an_error_response_may_have_any_body(body: bytes) -> None:
    for status in (400, 401, 429, 500):
        assert isinstance(request_failure(status, {}, body).error, ModelError)


def test_a_long_retry_after_ends_the_retries() -> None:
    assert told(429, retry_after="3").delay == 3
    refused = told(429, retry_after="3600")
    assert isinstance(refused.error, WaitTooLong)
    assert not refused.again
    assert "3600 seconds" in str(refused.error)
    assert isinstance(told(429, retry_after="0").error, RetryLimitReached)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:10 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:10 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT", "date": "Wed, 21 Oct 2015 07:29:00 GMT"}, 0.0),
    ],
)
def test_when_the_provider_says_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_rate_limit_headers() -> None:
    headers = {
        "x-codex-primary-used-percent": "12.5",
        "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": "1704069000",
        "x-codex-secondary-used-percent": "40",
    }
    assert rate_limits(headers) == RateLimitSnapshot(
        primary=RateLimitWindow(used_percent=12.5, window_minutes=300, resets_at=1704069000),
        secondary=RateLimitWindow(used_percent=40.0),
    )


@pytest.mark.parametrize("used", ["", "much", "nan", "inf", "0"])
def test_rate_limit_headers_that_say_nothing(used: str) -> None:
    assert rate_limits({"x-codex-primary-used-percent": used}) == RateLimitSnapshot()
    assert rate_limits({}) == RateLimitSnapshot(primary=None, secondary=None)


def test_backoff_doubles_within_its_jitter() -> None:
    assert [backoff(n, lambda: 0.5) for n in (0, 1, 2, 3, 4)] == pytest.approx([0.2, 0.2, 0.4, 0.8, 1.6])
    assert backoff(1, lambda: 0.0) == pytest.approx(0.18)
    assert backoff(1, lambda: 1.0) == pytest.approx(0.22)
    assert backoff(10_000, lambda: 0.5) == pytest.approx(LONGEST_DELAY)
