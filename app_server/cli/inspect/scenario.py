"""A session as steps that can be played again, and as a test. Pure.

The steps are the messages that the client sends, and the messages that it has to receive before each. A test of one
message also has its expected content, with ids and times left open. A step waits for answers, for requests of the
server, and for turns that start or end. The model decides how a message is cut into deltas, and how many items a turn
has, so steps do not count these.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pprint import pformat

from msgspec import Struct

from app_server.cli.inspect.analysis import (
    DELTA,
    ITEM_STARTS,
    TURN_ENDS,
    TURN_STARTS,
    SessionEntry,
    Subject,
    Subjects,
)
from app_server.cli.inspect.rules.order import Requests, WireMessage
from app_server.cli.inspect.session_records import Record, SessionHead, Source
from app_server_protocol.encoding import Json

Key = tuple[str, str]
"""Kind of an awaited message, and its detail. `answer` has an id as JSON, `request` a method; `turn starts`, `turn
ends`, `item starts` and `delta` have an empty detail.
"""
MILESTONES = (TURN_STARTS, TURN_ENDS)
WITHIN_TURNS = (ITEM_STARTS, DELTA)


class Send(Struct, frozen=True):
    message: Json
    """Message of the client. A string is a line that is no JSON."""
    to: tuple[str, int] | None = None
    """For an answer: the method of the request, and its number among the requests of that method, counted from 1. None
    for any other message.
    """


class Receive(Struct, frozen=True):
    """A step that waits until a number of messages of a kind have arrived since the beginning."""

    kind: str
    which: str = ""
    count: int = 1
    sample: Json = None
    """Recorded message, from which the player learns which ids replace the recorded ids. None if there is none."""
    expected: Json = None
    """Expected content of the message. `<thread1>` stands for one id, which is the same in all places, and `<any time>`
    for any value.
    """

    @property
    def place(self) -> tuple[str, str, int]:
        """The kind, detail and number of the awaited message."""
        return self.kind, self.which, self.count


Step = Send | Receive


def key_of(wire: WireMessage, subject: Subject) -> Key | None:
    """Return the key of a message of the server, by which it is counted. None if it is not counted."""
    if wire.method and "id" in wire.message:
        return "request", wire.method
    if not wire.method:
        return "answer", json.dumps(wire.message.get("id"))
    return (subject.phase, "") if subject.phase in (*MILESTONES, *WITHIN_TURNS) else None


def key_of_any(message: Mapping[str, Json]) -> Key:
    """Return the key of a message of the server that no step awaits by itself."""
    method = message.get("method")
    return ("told", method) if isinstance(method, str) else ("answer", json.dumps(message.get("id")))


class Counted:
    """Counts the messages of one connection."""

    def __init__(self) -> None:
        self._requests, self._subjects = Requests(), Subjects()
        self.counts: Counter[Key] = Counter()
        self.requests: dict[Json, tuple[str, int]] = {}
        """Method and number among those of that method of the server's requests, by their ids as JSON."""

    def see(self, sent: bool, message: dict[str, Json]) -> Key | None:
        """Count a message. Return the key of a message of the server; None for a message of the client."""
        wire = self._requests.match(sent, message)
        subject = self._subjects.of(wire)
        key = None if sent else key_of(wire, subject)
        if key is not None:
            self.counts[key] += 1
            if key[0] == "request":
                self.requests[json.dumps(message["id"])] = key[1], self.counts[key]
            if subject.phase == TURN_ENDS and key[0] == "answer":
                self.counts[TURN_ENDS, ""] += 1  # the answer to a prompt of a session is the end of its turn
        elif not sent:
            self.counts[key_of_any(message)] += 1
        return key


def steps_of(records: Iterable[Record]) -> list[Step]:
    """Return the client's messages in a session as steps, with the messages for which each has to wait."""
    steps: list[Step] = []
    counted = Counted()
    waiting: list[Receive] = []
    within: Receive | None = None
    for record in records:
        message = record.value()
        if record.source is Source.CLIENT and record.form in ("message", "text"):
            steps += waiting if within is None else [*waiting, within]
            waiting, within = [], None
            to = None
            if isinstance(message, dict):
                if "method" not in message:
                    to = counted.requests.get(json.dumps(message.get("id")))
                counted.see(True, message)
            steps.append(Send(record.text if message is None else message, to))
        elif record.source is Source.SERVER and isinstance(message, dict):
            key = counted.see(False, message)
            if key is not None and key[0] in WITHIN_TURNS:
                within = Receive(*key, count=1)
            elif key is not None:
                waiting.append(Receive(*key, count=counted.counts[key], sample=message))
                within = None
    return [*steps, *waiting]


class Names:
    """The ids of another run that correspond to the recorded ids."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}

    def learn(self, recorded: Json, now: Json) -> None:
        """Walk both messages at once. Texts that differ in the same place correspond to each other."""
        match recorded, now:
            case (str(), str()) if recorded != now:
                self._found[recorded] = now
            case (dict(), dict()):
                for name in recorded.keys() & now.keys():
                    self.learn(recorded[name], now[name])
            case (list(), list()):
                for old, new in zip(recorded, now, strict=False):
                    self.learn(old, new)
            case _:
                pass

    def put_into(self, message: Json) -> Json:
        match message:
            case str():
                return self._found.get(message, message)
            case dict():
                return {name: self.put_into(value) for name, value in message.items()}
            case list():
                return [self.put_into(value) for value in message]
            case _:
                return message


HEAD = '''"""A session that was recorded{began}, exported by `app-server inspect`.

Runs with pytest. Change SERVER to what should be tested, and the steps to what matters: a step that is taken out is not
waited for. Ids that the server gave are replaced by those that it gives when this runs. Secrets were masked. In what is
`expected`, `<any time>` stands for whatever comes, and `<thread1>` for one id.
"""

from app_server.cli.inspect.scenario import Receive, Send
from app_server.cli.inspect.session_replay import play

SERVER = {server}

STEPS = [
{steps}]


def test_the_session_goes_as_it_was_recorded() -> None:
    assert play(SERVER, STEPS) == []
'''


def as_test(head: SessionHead, steps: Sequence[Step]) -> str:
    """Return the session as the text of a test module."""
    began = f" on {head.began}" if head.began else ""
    lines = "".join(f"    {_written(step)},\n" for step in steps)
    return HEAD.format(
        began=began.replace("\\", "").replace('"', ""), server=repr(head.shown_server()), steps=lines
    )


def _written(step: Step) -> str:
    match step:
        case Send(message, None):
            return f"Send({_literal(message)})"
        case Send(message, to):
            return f"Send({_literal(message)}, to={to!r})"
        case Receive(kind, which, count, sample, expected):
            which = f", {which!r}" if which else ""
            example = f", sample={_literal(_ids_only(sample))}" if sample is not None else ""
            wanted = f", expected={_literal(expected)}" if expected is not None else ""
            return f"Receive({kind!r}{which}, count={count}{example}{wanted})"


def _literal(value: Json) -> str:
    return pformat(value, width=100, sort_dicts=False).replace("\n", "\n        ")


def _ids_only(value: Json, name: str = "") -> Json:
    """Return the parts of a message that a client may repeat: its ids, and paths."""
    match value:
        case dict():
            kept = {key: _ids_only(inner, key) for key, inner in value.items()}
            return {key: inner for key, inner in kept.items() if inner not in (None, {}, [])}
        case list():
            return [_ids_only(inner) for inner in value if isinstance(inner, dict | list)]
        case str() if name == "id" or name.endswith(("Id", "_id", "Path", "_path")):
            return value
        case _:
            return None


def unmet(step: Receive, counts: Mapping[Key, int]) -> bool:
    return counts.get((step.kind, step.which), 0) < step.count


# --- a test of one message
ANY = re.compile(r"<any [a-z]+>")
ROLE = re.compile(r"<[a-z]+\d+>")
TIMES = re.compile(r"(At|_at|AtMs|[dD]urationMs|timestamp|timestamp_ms|[dD]uration)$")
PATHS = re.compile(r"(^path|Path|_path|^cwd|Home|_home)$")
IDS = re.compile(r"^(.*?)_?(Id|id)$")


def test_of(head: SessionHead, entries: Sequence[SessionEntry], number: int) -> str:
    """Return a test of the message with that number, which is among the entries. Raises ValueError if it cannot be
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
            steps.append(Receive(*key_of_any({"id": message.get("id")})))
        return as_test(head, steps)
    key, count = _place(until)
    last = max((at for at, step in enumerate(steps) if isinstance(step, Send)), default=-1)
    waiting = [
        step for step in steps[last + 1 :] if not isinstance(step, Receive) or step.place != (*key, count)
    ]
    return as_test(head, [*steps[: last + 1], *waiting, Receive(*key, count=count, expected=opened(message))])


def _place(entries: Sequence[SessionEntry]) -> tuple[Key, int]:
    """Return the key of the last entry, and its number among those with the same key."""
    counted = Counted()
    key: Key | None = None
    for entry in entries:
        message = entry.record.value()
        if entry.record.form == "message" and isinstance(message, dict):
            key = counted.see(entry.record.source is Source.CLIENT, message) or key_of_any(message)
    assert key is not None
    return key, counted.counts[key]


def opened(message: Json) -> Json:
    """Return a message with placeholders for all values that differ from run to run."""
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
    """Return the differences from the expected message, each with its place in the message."""
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
