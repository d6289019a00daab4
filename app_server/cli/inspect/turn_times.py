"""The use of a turn's time: its items as bars, its questions as gaps, and each moment as one of four categories. Pure.

A moment belongs to an open question if there is one, else to a running tool, else to the writing model. Otherwise it is
a wait: nothing is open, so the model has not begun to answer, or the server is working. Times are milliseconds since
the turn began.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from app_server.cli.inspect.analysis import (
    DELTA,
    ITEM_ENDS,
    ITEM_STARTS,
    TURN_ENDS,
    TURN_STARTS,
    SessionEntry,
)
from app_server_protocol.encoding import Json

QUESTION, TOOL, MODEL, WAIT = "question", "tool", "model", "wait"
PRECEDENCE = (QUESTION, TOOL, MODEL)
OF_THE_MODEL = {
    *("agentmessage", "reasoning", "plan", "contextcompaction", "message", "thought"),
    *("agent_message", "agent_message_content", "agent_reasoning", "reasoning_content", "plan_delta"),
}
OF_THE_USER = {"usermessage", "user message"}
MOST_RUNS, MOST_BARS, MOST_PIECES = 500, 400, 600
"""Limits: runs that are kept of an item, bars and pieces of a turn that are sent to the page."""

Span = tuple[str, float, float]
"""Category, start and end."""


class Bar(Struct):
    """An item of the turn."""

    id: str
    number: int
    """Number of its first entry."""
    start: float
    last: float
    kind: str = ""
    begun: bool = False
    """Whether the server announced its start. Of other items each run of deltas counts by itself."""
    end: float | None = None
    deltas: int = 0
    runs: list[list[float]] = []
    """Start and end of each run of consecutive deltas."""

    @property
    def what(self) -> str:
        kind = (self.kind or self.id).lower()
        if kind in OF_THE_USER:
            return ""
        return MODEL if kind in OF_THE_MODEL or kind.endswith("_delta") else TOOL


class TurnQuestion(Struct):
    """A request of the server for which the turn waits."""

    number: int
    method: str
    item: str
    start: float
    end: float | None = None


class TurnTimes:
    """The times of one turn, from its entries in order."""

    def __init__(self, first: SessionEntry) -> None:
        self.thread, self.turn = first.subject.thread, first.subject.turn
        self.began = first.record.at
        self.ended: float | None = None
        self._bars: dict[str, Bar] = {}
        self._questions: dict[int, TurnQuestion] = {}
        self._last = ""

    def see(self, entry: SessionEntry) -> None:
        subject, at = entry.subject, entry.record.at
        if subject.phase == TURN_STARTS and not self._bars:
            self.began = at
        elif subject.phase == TURN_ENDS:
            self.ended = at
        if entry.asks and entry.kind == "request":
            self._questions[entry.number] = TurnQuestion(entry.number, entry.method, subject.item, at)
        if subject.item and subject.phase:
            self._item(entry, at)

    def over(self, question: int, at: float) -> None:
        """Record that a question is not open any more."""
        if question in self._questions:
            self._questions[question].end = at

    def _item(self, entry: SessionEntry, at: float) -> None:
        subject = entry.subject
        bar = self._bars.get(subject.item)
        if bar is None:
            bar = self._bars[subject.item] = Bar(subject.item, entry.number, at, at, runs=[])
        bar.kind = bar.kind or subject.kind
        bar.last = at
        match subject.phase:
            case phase if phase == ITEM_STARTS:
                bar.begun = True
            case phase if phase == ITEM_ENDS:
                bar.end = at
            case phase if phase == DELTA:
                bar.deltas += 1
                if (self._last == bar.id and bar.runs) or len(bar.runs) >= MOST_RUNS:
                    bar.runs[-1][1] = at
                else:
                    bar.runs.append([at, at])
        self._last = bar.id

    def shown(self, now: float) -> Json:
        """Return the turn in the form for the page. `now` is the time of the last known event."""
        length = max((now if self.ended is None else self.ended) - self.began, 0.001)
        pieces = spent(self._spans(length), length)
        totals = dict.fromkeys((MODEL, TOOL, QUESTION, WAIT), 0.0)
        for what, start, end in pieces:
            totals[what] += end - start
        bars = [*self._bars.values()]
        return {
            "thread": self.thread,
            "turn": self.turn,
            "length": round(length, 3),
            "ended": self.ended is not None,
            "totals": {what: round(spent_on, 3) for what, spent_on in totals.items()},
            "pieces": [[what, round(start, 3), round(end, 3)] for what, start, end in pieces[:MOST_PIECES]],
            "bars": [self._bar(bar, length) for bar in bars[-MOST_BARS:]],
            "more": max(0, len(bars) - MOST_BARS),
            "items": len(bars),
            "deltas": sum(bar.deltas for bar in bars),
            "questions": [self._question(each, length) for each in [*self._questions.values()][-MOST_BARS:]],
        }

    def _spans(self, length: float) -> Iterable[Span]:
        for question in self._questions.values():
            yield QUESTION, question.start - self.began, self._until(question.end, length)
        for bar in self._bars.values():
            if bar.begun and bar.what:
                yield bar.what, bar.start - self.began, self._end(bar, length)
            elif bar.what:
                yield from ((bar.what, start - self.began, end - self.began) for start, end in bar.runs)

    def _until(self, end: float | None, length: float) -> float:
        return length if end is None else end - self.began

    def _end(self, bar: Bar, length: float) -> float:
        if bar.end is None and (not bar.begun or self.ended is not None):
            return bar.last - self.began
        return self._until(bar.end, length)

    def _bar(self, bar: Bar, length: float) -> Json:
        is_open = bar.end is None and bar.begun and self.ended is None
        told: dict[str, Json] = {
            "id": bar.id,
            "n": bar.number,
            "kind": bar.kind,
            "what": bar.what,
            "start": round(bar.start - self.began, 3),
            "end": round(self._end(bar, length), 3),
            "open": is_open,
            "deltas": bar.deltas,
        }
        if bar.runs:
            written = bar.runs[0][0] - self.began, bar.runs[-1][1] - self.began
            told["written"] = [round(at, 3) for at in written]
        return told

    def _question(self, question: TurnQuestion, length: float) -> Json:
        return {
            "n": question.number,
            "method": question.method,
            "item": question.item,
            "start": round(question.start - self.began, 3),
            "end": round(self._until(question.end, length), 3),
            "open": question.end is None and self.ended is None,
        }


def spent(spans: Iterable[Span], length: float) -> list[Span]:
    """Cut the time from 0 to `length` into pieces of one category each. Neighbours have different categories."""
    edges = [(0.0, "", 0), (length, "", 0)]
    for what, start, end in spans:
        start, end = (min(max(at, 0.0), length) for at in (start, end))
        if start < end:
            edges += [(start, what, 1), (end, what, -1)]
    edges.sort(key=lambda edge: edge[0])
    open_now = dict.fromkeys(PRECEDENCE, 0)
    pieces: list[Span] = []
    before = 0.0
    for at, what, change in edges:
        if at > before:
            of = next((each for each in PRECEDENCE if open_now[each]), WAIT)
            if pieces and pieces[-1][0] == of:
                pieces[-1] = of, pieces[-1][1], at
            else:
                pieces.append((of, before, at))
            before = at
        if change:
            open_now[what] += change
    return pieces
