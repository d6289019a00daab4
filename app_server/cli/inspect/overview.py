"""Facts about a whole session, updated with each entry and bounded: counts, turns, methods, requests. Pure."""

from __future__ import annotations

from collections import deque
from statistics import median

from msgspec import Struct

from app_server.cli.inspect.analysis import SessionEntry
from app_server.cli.inspect.session_records import Source
from app_server.cli.inspect.turn_times import TurnTimes
from app_server_protocol.encoding import Json

MOST_TURNS, MOST_METHODS, MOST_OPEN, MOST_PAIRS, MOST_LATENCIES = 1000, 400, 1000, 100_000, 1000
TOLD_OPEN = 200
"""Maximum number of open requests that are sent to the page."""
CONTENT = 400
"""Maximum length of a message's text in one line of the page, in characters."""
PARTS = 120
FIRST_WIDTH = 10.0
"""Initial width of a part, in milliseconds."""


class Histogram:
    """Messages and bytes over time, in a bounded number of equal parts. Parts are joined in pairs as time passes."""

    def __init__(self) -> None:
        self._width = FIRST_WIDTH
        self._counts = {source: [0] * PARTS for source in ("client", "server")}
        self._sizes = {source: [0] * PARTS for source in ("client", "server")}
        self._last = 0

    def add(self, source: str, at: float, size: int) -> None:
        while at >= self._width * PARTS:
            self._width *= 2
            self._last //= 2
            for parts in (*self._counts.values(), *self._sizes.values()):
                joined = [parts[n] + parts[n + 1] for n in range(0, PARTS, 2)]
                parts[:] = joined + [0] * (PARTS - len(joined))
        part = max(0, int(at / self._width))
        self._last = max(self._last, part)
        self._counts[source][part] += 1
        self._sizes[source][part] += size

    def shown(self) -> Json:
        """Return the parts up to the last one with a message."""
        end = self._last + 1
        return {
            "width": self._width,
            "counts": {source: parts[:end] for source, parts in self._counts.items()},
            "sizes": {source: parts[:end] for source, parts in self._sizes.items()},
        }


class MethodFigures(Struct):
    count: int = 0
    size: int = 0
    latencies: deque[float] = deque()
    slowest: float = -1


class Overview:
    def __init__(self) -> None:
        self.messages = {"client": 0, "server": 0}
        self.sizes = {"client": 0, "server": 0}
        self.at = 0.0
        """Time of the last known event, in milliseconds since the session began."""
        self.violations: deque[int] = deque(maxlen=MOST_PAIRS)
        """Numbers of entries with violations. If there are very many, the newest are kept."""
        self.waiting: dict[int, SessionEntry] = {}
        """Requests without an answer, by entry number."""
        self.stderr: deque[SessionEntry] = deque(maxlen=2000)
        self.stderr_lines = 0
        self.histogram = Histogram()
        self.slow: deque[tuple[float, float, str]] = deque(maxlen=MOST_LATENCIES)
        """Facts about answers: time, latency, sender."""
        self._pairs: dict[int, int] = {}
        self._turns: dict[tuple[str, str], TurnTimes] = {}
        self._methods: dict[str, MethodFigures] = {}

    def add(self, entry: SessionEntry) -> None:
        record = entry.record
        self.at = max(self.at, record.at)
        if entry.violates:
            self.violations.append(entry.number)
        if record.source is Source.STDERR:
            self.stderr.append(entry)
            self.stderr_lines += 1
        elif record.source is not Source.INSPECTOR:
            self.messages[record.source] += 1
            self.sizes[record.source] += record.size
            self.histogram.add(record.source, record.at, record.size)
        if entry.kind in ("request", "answer", "error", "notification"):
            self._figure(entry)
        self._requests(entry)
        if entry.subject.turn:
            self._turn(entry).see(entry)

    def _figure(self, entry: SessionEntry) -> None:
        if entry.method not in self._methods and len(self._methods) >= MOST_METHODS:
            return
        found = self._methods.setdefault(entry.method, MethodFigures(latencies=deque(maxlen=MOST_LATENCIES)))
        found.size += entry.record.size
        if entry.request < 0:
            found.count += 1
        else:
            found.latencies.append(entry.latency)
            found.slowest = max(found.slowest, entry.latency)
            self.slow.append((entry.record.at, entry.latency, entry.record.source))

    def _requests(self, entry: SessionEntry) -> None:
        if entry.kind == "request":
            self.waiting[entry.number] = entry
            if len(self.waiting) > MOST_OPEN:
                del self.waiting[next(iter(self.waiting))]
        over = entry.request if entry.request >= 0 else entry.withdraws
        if over < 0:
            return
        asked = self.waiting.pop(over, None)
        if asked is None:
            return
        self._pairs[over] = entry.number
        if len(self._pairs) > MOST_PAIRS:
            del self._pairs[next(iter(self._pairs))]
        turn = self._turns.get((asked.subject.thread, asked.subject.turn))
        if turn is not None:
            turn.over(over, entry.record.at)

    def _turn(self, entry: SessionEntry) -> TurnTimes:
        key = entry.subject.thread, entry.subject.turn
        if key not in self._turns:
            if len(self._turns) >= MOST_TURNS:
                del self._turns[next(iter(self._turns))]
            self._turns[key] = TurnTimes(entry)
        return self._turns[key]

    def turn(self, thread: str, turn: str) -> TurnTimes | None:
        """Return a turn. Without a name, it is the last one that began; without a thread, that of any thread. None if
        there is none.
        """
        named = (each for each in reversed(self._turns.values()) if turn in ("", each.turn))
        return next((each for each in named if thread in ("", each.thread)), None)

    def partner(self, entry: SessionEntry) -> int:
        """Return the entry number of the answer to a request, or of the request of an answer; -1 if it is not known."""
        return entry.request if entry.request >= 0 else self._pairs.get(entry.number, -1)

    def brief(self) -> dict[str, Json]:
        """Return the facts that are sent to the page whenever something changes."""
        return {
            "at": self.at,
            "messages": self.messages,
            "sizes": self.sizes,
            "violations": len(self.violations),
            "stderr": self.stderr_lines,
            "waiting": len(self.waiting),
            "questions": [n for n, each in self.waiting.items() if each.asks][-TOLD_OPEN:],
        }

    def choices(self) -> Json:
        """Return the possible values of the filters."""
        turns: dict[str, list[str]] = {}
        for thread, turn in self._turns:
            turns.setdefault(thread, []).append(turn)
        return {"turns": turns, "methods": sorted(self._methods)}

    def open_requests(self) -> Json:
        return [
            {
                "n": each.number,
                "at": each.record.at,
                "from": each.record.source,
                "method": each.method,
                "thread": each.subject.thread,
                "form": each.record.form,
                "text": each.record.text[:CONTENT],
            }
            for each in [*self.waiting.values()][-TOLD_OPEN:]
        ]

    def figures(self) -> Json:
        methods = [
            {
                "name": name,
                "count": each.count,
                "size": each.size,
                "median": median(each.latencies) if each.latencies else -1,
                "slowest": each.slowest,
            }
            for name, each in self._methods.items()
        ]
        return {"methods": methods, "histogram": self.histogram.shown(), "answers": list(self.slow)}
