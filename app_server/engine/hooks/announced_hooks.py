"""Callbacks that clients announce, and the way to ask a client. Pure: the server's part for them passes it in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from msgspec import Struct

from app_server.engine.hooks.hook_definitions import LONGEST_TIMEOUT
from app_server.engine.hooks.matching import BadMatcher, NamePattern, name_pattern
from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookEvent

DEFAULT_SECONDS: Final = 60
"""Time limit of an answer, if the client named none."""


class BadCallbacks(ValueError):
    """Announced callbacks that cannot be read. The text says what was expected."""


class AnnouncedHooks(Struct, frozen=True):
    """The callbacks that a client has announced."""

    events: frozenset[HookEvent]
    pattern: NamePattern
    timeout: int


def announced_hooks(value: Json) -> AnnouncedHooks:
    """Read `capabilities.hooks`. Raises BadCallbacks."""
    match value:
        case {"events": [*names]} if all(isinstance(name, str) for name in names):
            pass
        case _:
            raise BadCallbacks("`events` must be a list of names")
    known = {event.value: event for event in HookEvent}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BadCallbacks(f"{unknown[0][:40]!r} is no event; expected some of {', '.join(known)}")
    matcher, timeout = value.get("matcher"), value.get("timeoutSec")
    if matcher is not None and not isinstance(matcher, str):
        raise BadCallbacks("`matcher` must be a text")
    if timeout is not None and (not isinstance(timeout, int) or not 1 <= timeout <= LONGEST_TIMEOUT):
        raise BadCallbacks(f"`timeoutSec` must be a whole number from 1 to {LONGEST_TIMEOUT}")
    try:
        pattern = name_pattern(matcher)
    except BadMatcher as mistake:
        raise BadCallbacks(f"`matcher`: {mistake}") from mistake
    return AnnouncedHooks(frozenset(known[name] for name in names), pattern, timeout or DEFAULT_SECONDS)


class CallbackFailed(Exception):
    """The client left before it answered, or answered with an error. The text says which."""


class ClientCallback(Struct, frozen=True, eq=False, kw_only=True):
    """The callbacks of one client in one thread."""

    client: str
    """Name of the client."""
    announced: AnnouncedHooks
    is_here: Callable[[], bool]
    """Returns whether the client still follows the thread."""
    ask: Callable[[str, Mapping[str, Json]], Awaitable[Json]]
    """Sends an event with its input to the client, and returns the answer. Raises CallbackFailed."""
