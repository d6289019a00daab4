"""Maps a provider's status, error code and headers to an error of this package, and the headers to the limits of the
account. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Final

from msgspec import Struct

from app_server.engine.model import model_errors
from app_server.engine.model.catalogue import bundled
from app_server.engine.model.event_json import count, mapping, parse_object, text_of
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.engine.token_usage import RateLimitSnapshot, RateLimitWindow


def rate_limits(headers: Mapping[str, str]) -> RateLimitSnapshot:
    """Parse both windows of the rate limits; a window that the headers do not mention is None. Header names are in
    lower case.
    """
    return RateLimitSnapshot(primary=_window(headers, "primary"), secondary=_window(headers, "secondary"))


def _window(headers: Mapping[str, str], name: str) -> RateLimitWindow | None:
    try:
        used = float(headers[f"x-codex-{name}-used-percent"])
    except (KeyError, ValueError):
        return None
    minutes = _integer(headers.get(f"x-codex-{name}-window-minutes"))
    resets_at = _integer(headers.get(f"x-codex-{name}-reset-at"))
    if not math.isfinite(used) or (not used and not minutes and resets_at is None):
        return None
    return RateLimitWindow(used_percent=used, window_minutes=minutes, resets_at=resets_at)


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


LONGEST_WAIT: Final = 120.0
"""Longest wait that a provider may request, in seconds. If it requests more, there is no retry, and the user sees the
reason.
"""

UNEXPLAINED: Final = "response.failed event received"
_RISK: Final = "The provider takes this request for a risk to {} security, and does not answer it."
FLAGGED: Final[Mapping[ErrorClass, str]] = {
    ErrorClass.CYBER_POLICY: _RISK.format("computer"),
    ErrorClass.BIO_POLICY: _RISK.format("biological"),
}
"""Texts of refusals that the provider does not explain."""

# These patterns are texts, which `re` compiles at the first failure: a server that starts needs none of them.
_NO_MODEL: Final = (
    r"(?i)\bmodel\b.{0,80}\b(?:not found|does not exist|is not supported)"
    r"|\bnot a valid model\b|\b(?:no such|unknown|invalid) model\b"
)
"""Pattern of the messages by which local servers report that they have no such model."""
_WINDOW: Final = r"\bn_ctx\W{1,4}(\d{3,12})\b"
"""Pattern of the context window of llama.cpp in a message that a gateway quotes."""

LEAST_WINDOW: Final = 256
"""Smallest number in a refusal that counts as a context window, in tokens: no model has a smaller one."""

_RATE: Final = r"(?i)rate limit|too many requests|per minute"
"""Pattern of messages about a rate limit, in which "length" has another meaning."""
_FINAL: Final = r"(?i)\btemplate\b|jinja|tool-call-parser|tool_call_parser|out of memory|more system memory"
"""Pattern of messages about a server's own fault that a retry does not cure."""
_USED_UP: Final = (
    r"(?i)insufficient_quota|available balance|insufficient (?:balance|credits?)|\bbilling\b|out of credits"
)
_RETRY_DELAY: Final = r"\"retryDelay\"\s*:\s*\"(\d+(?:\.\d+)?)s\""
_DELAY: Final = r"(?i)(?:try again|retry) in\s*((?:\d+(?:\.\d+)?\s*[a-z]+\s*)+)"
_PART: Final = r"(?i)(\d+(?:\.\d+)?)\s*([a-z]+)"
_SECONDS: Final[Mapping[str, float]] = {
    "ms": 0.001,
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    "h": 3600.0,
}


@cache
def _too_long_pattern() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{each})" for each in bundled().too_long), re.IGNORECASE)


def says_too_long(text: str) -> bool:
    """Return whether a provider's message says that the conversation exceeds the model's context window."""
    start = text[: model_errors.LONGEST_EXCERPT]
    return _too_long_pattern().search(start) is not None and not re.search(_RATE, start)


def window_in(error: Mapping[str, Json], message: str) -> int | None:
    """Return the context window in tokens that a refusal names; None if it names none."""
    said = count(error.get("n_ctx"))
    if said is None and (found := re.search(_WINDOW, message[: model_errors.LONGEST_EXCERPT])):
        said = int(found[1])
    return said if said is not None and said >= LEAST_WINDOW else None


def error_object(body: bytes) -> dict[str, Json]:
    """Return the error object of a refusal; empty if there is none. Google writes it as a list of one object. Mistral
    writes an object in place of the message, which is a part of the error here.
    """
    parsed = parse_object(body)
    if parsed is None and body.lstrip()[:1] == b"[":
        parsed = parse_object(body.strip()[1:-1].strip())
    error = (parsed or {}).get("error")
    if not isinstance(error, dict):
        error = {**(parsed or {}), "message": error} if isinstance(error, str) else (parsed or {})
    message = error.get("message")
    return {**error, "message": None, **message} if isinstance(message, dict) else error


def words_of(error: dict[str, Json], body: str) -> str:
    """Return the provider's own message of an error, from whichever field has it."""
    said = [text for each in (error.get("message"), _details(error.get("detail"))) if (text := text_of(each))]
    said = said[:1]
    # A gateway puts the message of the provider behind it here, and its own message says little.
    if raw := text_of(mapping(error.get("metadata")).get("raw")):
        inner = error_object(raw.encode("utf-8", "replace"))
        said[1:] = [words_of({**inner, "metadata": None}, raw) or raw]
    if said:
        return ": ".join(said)
    return "" if body.lstrip()[:1] == "{" else re.sub(r"<[^>]*>", " ", body).strip()


def _details(detail: Json) -> str | None:
    """Return the messages of a list of validation errors, or the detail itself if it is text."""
    if not isinstance(detail, list):
        return text_of(detail)
    found = []
    for each in map(mapping, detail[:5]):
        place = ".".join(str(part) for part in each.get("loc") or ())
        found.append(f"{place}: {each.get('msg', '')}" if place else str(each.get("msg", "")))
    return "; ".join(found) or None


def reported_failure(error: Json) -> ModelError:
    """Return the error for the error object of a `response.failed` event, or of an error event of either API."""
    details = mapping(error)
    message = words_of(details, "") or text_of(error) or UNEXPLAINED
    code = details.get("code") or details.get("type")
    known = known_failure(code if isinstance(code, str) else "", message, details)
    if known is not None:
        return known
    if says_too_long(message):
        return ContextWindowExceeded(window_in(details, message))
    if isinstance(code, int) and 400 <= code < 600:
        failed = request_failure(code, {}, json_bytes({"error": details}))
        if not failed.again:
            return failed.error
        delay = failed.delay
        code = {OVERLOADED_STATUS: model_errors.OVERLOADED, 429: "rate_limit_exceeded"}.get(code, code)
        return model_errors.response_failed(model_errors.excerpt(message), code, delay)
    delay = delay_in(message) if code == "rate_limit_exceeded" else None
    if delay is not None and delay > LONGEST_WAIT:
        return model_errors.wait_too_long(429, delay)
    return model_errors.response_failed(model_errors.excerpt(message), code, delay)


def known_failure(code: str, message: str, error: Mapping[str, Json]) -> ModelError | None:
    """Return the error for a code that makes a retry useless; None for other codes."""
    match code:
        case "context_length_exceeded" | "exceed_context_size_error":
            return ContextWindowExceeded(window_in(error, message))
        case "insufficient_quota":
            text = "The account's quota is used up. Look at its plan and billing details."
            return ModelError(text, model_errors.USED_UP)
        case "usage_not_included":
            text = "Your ChatGPT plan does not include the use of this model from here."
            return ModelError(text, model_errors.USED_UP)
        case "invalid_prompt":
            text = f"The provider does not accept the request: {model_errors.excerpt(message)}"
            return ModelError(text, ErrorClass.BAD_REQUEST)
        case "cyber_policy" | "bio_policy":
            # The provider's own message says what the user can do.
            flagged = ErrorClass(code)
            text = FLAGGED[flagged] if message == UNEXPLAINED else model_errors.excerpt(message)
            return ModelError(text, flagged)
        case _:
            return None


def delay_in(message: str) -> float | None:
    """Return the seconds in a text such as "Please try again in 1.3s"."""
    found = re.search(_DELAY, message)
    if found is None:
        return None
    seconds = None
    for number, unit in re.findall(_PART, found[1]):
        factor = _SECONDS.get(unit.lower())
        if factor is None:
            break
        seconds = (seconds or 0.0) + float(number) * factor
    return seconds


class RequestFailure(Struct, frozen=True):
    """A failed response: whether and when to retry, and the error to raise otherwise."""

    error: ModelError
    again: bool = False
    delay: float | None = None
    """Wait that the provider requests, in seconds; None if the back-off decides."""
    status: int | None = None
    """HTTP status of the response; None if there was no response."""


def request_failure(status: int, headers: Mapping[str, str], body: bytes) -> RequestFailure:
    """Return the failure for a status other than 2xx. Header names are in lower case."""
    text = body.decode("utf-8", "replace")
    details = error_object(body)
    message = words_of(details, text)
    kinds = [kind for kind in (details.get("type"), details.get("code")) if isinstance(kind, str)]
    if status == 429 and "usage_limit_reached" in kinds:
        plan, resets_at = text_of(details.get("plan_type")), count(details.get("resets_at"))
        return RequestFailure(model_errors.UsageLimitReached(plan, resets_at, rate_limits(headers)))
    for kind in kinds:
        known = known_failure(kind, message, details)
        if known is not None:
            return RequestFailure(known)
    if status == 401:
        return RequestFailure(model_errors.Unauthorized())
    if status == 413 or (status in (400, 422, 500) and says_too_long(message)):
        return RequestFailure(ContextWindowExceeded(window_in(details, message)))
    if status in (402, 429) and re.search(_USED_UP, text[: model_errors.LONGEST_EXCERPT]):
        return RequestFailure(
            known_failure("insufficient_quota", message, details) or model_errors.provider_failing("")
        )
    if status in (408, 429) or status >= 500:
        return _overloaded(status, headers, message, kinds, text)
    if status == 403 and "Cloudflare" in text and "blocked" in text:
        return RequestFailure(model_errors.access_blocked(status))
    names_model = "not_found_error" in kinds and message.startswith("model:")
    if status in (400, 404) and (names_model or "model_not_found" in kinds or re.search(_NO_MODEL, message)):
        return RequestFailure(model_errors.UnexpectedStatus(status, text, model_unknown=True))
    return RequestFailure(model_errors.UnexpectedStatus(status, text))


OVERLOADED_STATUS: Final = 529
"""HTTP status with which Anthropic and its gateways report that they are overloaded."""


def _overloaded(
    status: int, headers: Mapping[str, str], message: str, kinds: list[str], text: str
) -> RequestFailure:
    """Return the failure of a provider that may answer later. A fault of the provider's own that does not pass is
    final.
    """
    if status >= 500 and re.search(_FINAL, message[: model_errors.LONGEST_EXCERPT]):
        return RequestFailure(model_errors.UnexpectedStatus(status, message))
    delay = retry_after(headers)
    if delay is None and status == 429:
        delay = _delay_of_body(message, text) or _reset(headers)
    if delay is not None and delay > LONGEST_WAIT:
        return RequestFailure(model_errors.wait_too_long(status, delay), delay=delay)
    if status == 500:
        return RequestFailure(model_errors.provider_failing(message), again=True, delay=delay)
    request_id = headers.get("x-request-id") or headers.get("cf-ray")
    named = status == OVERLOADED_STATUS or not {model_errors.OVERLOADED, "overloaded_error"}.isdisjoint(kinds)
    words = message if status >= 500 else ""
    failed = model_errors.retry_limit_reached(status, request_id, words, overloaded=named)
    return RequestFailure(failed, again=True, delay=delay)


def _delay_of_body(message: str, text: str) -> float | None:
    """Return the wait that a refusal requests in its message or in Google's field, in seconds."""
    found = re.search(_RETRY_DELAY, text)
    return float(found[1]) if found else delay_in(message)


def _reset(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until an exhausted limit is reset, from the form that gateways write: `6m0s`, `850ms`."""
    for name, left in headers.items():
        if "ratelimit" in name and "remaining" in name and left.strip() == "0":
            reset = headers.get(name.replace("remaining", "reset"), "")
            delay = _until(reset, headers) if "T" in reset else delay_in(f"try again in {reset}")
            if delay is not None:
                return delay
    return None


def _until(time: str, headers: Mapping[str, str]) -> float | None:
    """Return the seconds from the response's own date to a time such as `2026-11-28T10:00:30Z`."""
    try:
        until = datetime.fromisoformat(time).replace(tzinfo=None) - _date(headers["date"])
    except (KeyError, ValueError):
        return None
    return max(until.total_seconds(), 0.0)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the wait that the headers request, in seconds. A date is counted from the response's own date."""
    for name, factor in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * factor
        except (KeyError, ValueError):
            continue
        if 0.0 <= seconds < float("inf"):
            return seconds
    try:
        until = _date(headers["retry-after"]) - _date(headers["date"])
    except (KeyError, ValueError):
        return None
    return max(until.total_seconds(), 0.0)


def _date(text: str) -> datetime:
    return datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT")
