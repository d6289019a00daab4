"""One message as a test: the client's messages until then, and what is expected, with ids and times left open. Pure.

In what is expected `<thread1>` stands for one id, the same wherever it is written, and `<any time>` for whatever comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from app_server.inspector.analysis import SessionEntry
from app_server.inspector.scenario import Counted, Key, Receive, Send, as_test, key_of_any, steps_of
from app_server.inspector.session_records import SessionHead, Source
from protocol.structs import Json

ANY = re.compile(r"<any [a-z]+>")
ROLE = re.compile(r"<[a-z]+\d+>")
TIMES = re.compile(r"(At|_at|AtMs|[dD]urationMs|timestamp|timestamp_ms|[dD]uration)$")
PATHS = re.compile(r"(^path|Path|_path|^cwd|Home|_home)$")
IDS = re.compile(r"^(.*?)_?(Id|id)$")


def test_of(head: SessionHead, entries: Sequence[SessionEntry], number: int) -> str:
    """Write a test of the message with that number, which is among the entries. Raises ValueError where nothing can be
    tested.
    """
    until = [entry for entry in entries if entry.number <= number]
    chosen = until[-1] if until and until[-1].number == number else None
    message = chosen.record.value() if chosen is not None and chosen.record.form == "message" else None
    if chosen is None or not isinstance(message, dict):
        raise ValueError("only a message can be tested")
    steps = steps_of(entry.record for entry in until)
    if chosen.record.source is Source.CLIENT:
        if chosen.kind == "request":
            steps.append(Receive(*answer_to(message)))
        return as_test(head, steps)
    key, count = _place(until)
    last = max((at for at, step in enumerate(steps) if isinstance(step, Send)), default=-1)
    waiting = [step for step in steps[last + 1 :] if _key(step) != (*key, count)]
    return as_test(head, [*steps[: last + 1], *waiting, Receive(*key, count=count, expected=opened(message))])


def answer_to(message: Mapping[str, Json]) -> Key:
    return key_of_any({"id": message.get("id")})


def _key(step: Send | Receive) -> tuple[str, str, int] | None:
    return (step.kind, step.which, step.count) if isinstance(step, Receive) else None


def _place(entries: Sequence[SessionEntry]) -> tuple[Key, int]:
    """Return what the last entry counts as, and its place among those."""
    counted = Counted()
    key: Key | None = None
    for entry in entries:
        message = entry.record.value()
        if entry.record.form == "message" and isinstance(message, dict):
            key = counted.see(entry.record.source is Source.CLIENT, message) or key_of_any(message)
    assert key is not None
    return key, counted.counts[key]


def opened(message: Json) -> Json:
    """Return a message with what differs from run to run left open."""
    roles: dict[str, str] = {}
    counts: dict[str, int] = {}

    def walked(value: Json, name: str, around: str) -> Json:
        match value:
            case dict():
                return {key: walked(inner, key, name) for key, inner in value.items()}
            case list():
                return [walked(inner, name, around) for inner in value]
            case str() | int() | float() if TIMES.search(name) and not isinstance(value, bool):
                return "<any time>"
            case str() if PATHS.search(name):
                return "<any path>"
            case str() if name == "userAgent":
                return "<any text>"
            case str() if (found := IDS.match(name)) is not None:
                role = re.sub("[^a-z]", "", (found[1] or around or "id").lower()).removesuffix("s") or "id"
                if value not in roles:
                    counts[role] = counts.get(role, 0) + 1
                    roles[value] = f"<{role}{counts[role]}>"
                return roles[value]
            case _:
                return value

    found = walked(message, "", "")
    if isinstance(message, dict) and isinstance(found, dict) and "id" in message:
        found["id"] = "<any id>" if "method" in message else message["id"]
    return found


def differences(expected: Json, found: Json) -> list[str]:
    """List what is not as expected, each with its place in the message."""
    return [*_differences(expected, found, "message", {})]


def _differences(expected: Json, found: Json, place: str, roles: dict[str, Json]) -> Iterator[str]:
    match expected, found:
        case (str(), _) if ANY.fullmatch(expected):
            return
        case (str(), str()) if ROLE.fullmatch(expected):
            if roles.setdefault(expected, found) != found:
                yield f"{place}: {expected} is {roles[expected]!r}, and here {found!r}"
        case (dict(), dict()):
            for name in [*expected, *(name for name in found if name not in expected)]:
                if name not in found:
                    yield f"{place}.{name} is missing"
                elif name not in expected:
                    yield f"{place}.{name} was not expected"
                else:
                    yield from _differences(expected[name], found[name], f"{place}.{name}", roles)
        case (list(), list()) if len(expected) == len(found):
            for at, (one, other) in enumerate(zip(expected, found, strict=True)):
                yield from _differences(one, other, f"{place}[{at}]", roles)
        case _ if expected != found or isinstance(expected, bool) != isinstance(found, bool):
            yield f"{place}: expected {expected!r:.200}, got {found!r:.200}"
