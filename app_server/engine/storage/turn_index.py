"""Index of the turns of a rollout, so that some turns can be read without the others, or the thread be cut between two.

The index is made by one pass over the file and cached; that of a long file is saved, too (`saved_turns`). It is
continued when the file has grown, because rollouts are append-only. For each turn it has these facts:

1. the offset of the turn's first line, and the state of the decoder there;
2. the offset after the last line about the turn;
3. the ids of the turn's items, which depend on all lines before.
"""

from __future__ import annotations

import os
from collections import OrderedDict, deque
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from app_server.engine.storage import turn_places
from app_server.engine.storage.decode import OF_TURNS, DecoderState, RolloutDecoder
from app_server.engine.storage.history_calls import CALLS
from app_server.engine.storage.line_reader import raw_lines
from app_server.engine.storage.pagination import TurnCut, TurnNotFound
from app_server.engine.storage.record import (
    RawLine,
    RevertedRanges,
    lines_behind,
    read_record,
)
from app_server.engine.storage.reverts import LOOKS_BACK, find_reverts, first_line_of_turn
from app_server.engine.storage.segments import opened_whole
from app_server.engine.storage.turn_fold import ItemIds
from app_server.engine.support.lazy import Lazy
from app_server_protocol.engine.events import ItemCompleted, SessionEvent, TurnEnded, TurnRenamed, TurnStarted
from app_server_protocol.engine.items import UserMessage
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.storage.saved_turns import SavedTurns
    from app_server.engine.storage.turn_places import FileId, TurnPlace, TurnSnapshot

KEPT = 8
"""Maximum number of files whose indexes are cached. This is a choice: a client pages through a few threads at a time.
"""

SAMPLE_BYTES = 256
"""Number of bytes that are compared at the beginning and at the end of the indexed part. A file with different bytes
there is another file.
"""


_BEGINNING = OF_TURNS | CALLS
"""Names of the records with which a turn may begin."""
_WITHIN = DecoderState()
"""State before a line with which no turn begins. It is never used."""


class TurnPlaces(Struct, frozen=True):
    places: tuple[TurnPlace, ...]
    reverted_lines: RevertedRanges
    """Reverted lines between the turns."""
    behind: tuple[RawLine, ...] = ()
    """Lines that a crash kept out of the file, as if they stood at its end."""


class TurnIndex(Struct):
    """Index of one file, up to the line that was read last."""

    conversation_id: str
    lines: int = 0
    size: int = 0
    """Size of the part of the file that is indexed, in bytes. It ends with a whole line."""
    reverted_lines: RevertedRanges = msgspec.field(default_factory=RevertedRanges)
    _places: dict[str, TurnPlace] = msgspec.field(default_factory=dict)
    """Turns by id, in their order."""
    _decoder: RolloutDecoder = msgspec.field(default_factory=lambda: RolloutDecoder(""))
    ids: ItemIds = msgspec.field(default_factory=ItemIds)
    _gone: RolloutDecoder | None = None
    """Decoder of reverted lines, while such lines are read."""

    @classmethod
    def empty(cls, conversation_id: str, reverted_lines: RevertedRanges | None = None) -> TurnIndex:
        """Begin an index. `reverted_lines`: the reverted lines of the file, which do not count."""
        return cls(
            conversation_id,
            reverted_lines=reverted_lines or RevertedRanges(),
            _decoder=RolloutDecoder(conversation_id),
        )

    @classmethod
    def of_snapshot(cls, conversation_id: str, saved: TurnSnapshot) -> TurnIndex:
        """Return an index that goes on from a snapshot."""
        times = {item: 1 for place in saved.places for item in place.items} | {**saved.times}
        return cls(
            conversation_id,
            saved.lines,
            saved.size,
            RevertedRanges.of(saved.reverted_lines),
            {place.id: place for place in saved.places},
            RolloutDecoder.at(conversation_id, saved.state),
            ItemIds(times),
        )

    def snapshot(self, sample: bytes) -> TurnSnapshot | None:
        """Return what is needed to go on from the last line; None if more is open there than a snapshot has."""
        if self.lines in self.reverted_lines or not self._decoder.is_settled:
            return None
        known = {item for place in self.places for item in place.items}
        times = {id: times for id, times in self.ids.times.items() if times != 1 or id not in known}
        return turn_places.TurnSnapshot(
            self.lines,
            self.size,
            self._decoder.state(),
            self.places,
            self.reverted_lines.bounds(),
            times,
            sample,
        )

    @property
    def places(self) -> tuple[TurnPlace, ...]:
        return tuple(self._places.values())

    def take(self, raw: RawLine) -> None:
        self.lines, self.size = raw.number + 1, raw.end
        record = read_record(raw.data)
        if raw.number in self.reverted_lines:
            self._gone = self._gone or RolloutDecoder(self.conversation_id)
            self.ids.pass_over(() if record is None else self._gone.take(raw.number, record))
        elif record is not None:
            self._gone = None
            before = self._decoder.state() if record.name in _BEGINNING else _WITHIN
            for event in self._decoder.take(raw.number, record):
                self._take_event(event, raw, before)

    def closed(self, rest: Sequence[RawLine], *, is_open: bool = False) -> tuple[TurnPlace, ...]:
        """Return the turns as the end of the file leaves them. `rest` are lines that may not stay in the file: a last
        line without a line end, and lines that a crash left over. This index does not change, and can be continued.
        """
        if not rest and not self._decoder.copy().finish(is_open=is_open):
            return self.places
        other = replace(
            self,
            _places={place.id: replace(place, items=[*place.items]) for place in self.places},
            _decoder=self._decoder.copy(),
            ids=self.ids.copy(),
            _gone=None,
        )
        for each in rest:
            other.take(each)
        end = RawLine(other.lines, other.size, other.size, b"")
        before = other._decoder.state()
        for event in other._decoder.finish(is_open=is_open):
            other._take_event(event, end, before, to_the_end=True)
        return other.places

    def _take_event(
        self,
        event: SessionEvent | TurnRenamed,
        raw: RawLine,
        before: DecoderState,
        *,
        to_the_end: bool = False,
    ) -> None:
        """Apply an event to the index, as `TurnFold` does."""
        if isinstance(event, TurnRenamed):
            self._rename(event, raw)
            return
        match event.event:
            case TurnStarted() | TurnEnded() | ItemCompleted() if event.turn_id is not None:
                place = self._places.setdefault(
                    event.turn_id, turn_places.TurnPlace(event.turn_id, raw.number, raw.begin, before)
                )
            case _:
                return
        place.end, place.to_the_end = raw.end, place.to_the_end or to_the_end
        if isinstance(event.event, ItemCompleted):
            place.items.append(self.ids.end(event.event.item.id))
            place.of_user = place.of_user or isinstance(event.event.item, UserMessage)
        elif isinstance(event.event, TurnStarted):
            place.implicit = not self._decoder.explicit

    def _rename(self, event: TurnRenamed, raw: RawLine) -> None:
        place = self._places.get(event.before)
        if place is None:
            return
        place.end = raw.end
        if event.after not in self._places:
            # This is a copy, since readers of the earlier index still use the old object.
            names = (*place.names, event.after)
            named = replace(place, id=event.after, names=names, items=[*place.items], implicit=False)
            self._places = {each.id: each for each in (named if one is place else one for one in self.places)}


class _Kept(Struct):
    index: TurnIndex
    sample: bytes = b""
    """Bytes of the file at its begin and where the index ends."""
    saved_size: int = 0
    """Size of the part of the file whose turns are saved, in bytes."""


class TurnIndexes:
    """Cache of the indexes of the files that were read last. Thread-safe."""

    def __init__(self, saved: Lazy[SavedTurns] | None = None) -> None:
        """Begin with an empty cache. `saved` has the turns of long files; None if nothing is saved."""
        self._kept: OrderedDict[FileId, _Kept] = OrderedDict()
        self._saved = saved
        self._lock = Lock()

    def of(
        self, fd: int, conversation_id: str, leftover: Sequence[bytes] = (), *, is_open: bool = False
    ) -> TurnPlaces:
        """Return the turns of an open rollout in its present state. `leftover`: lines that a crash kept out of the
        file. `is_open`: the conversation goes on.
        """
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino)
        with self._lock:
            kept = self._known(fd, status, conversation_id)
            index, known_size = kept.index, kept.index.size
            behind = raw_lines(fd, index.lines, index.size, status.st_size)
            reverts = find_reverts(behind, index.reverted_lines, fd)
            if reverts is not None:
                index = TurnIndex.empty(conversation_id, reverts)
            rest: list[RawLine] = []
            for raw in raw_lines(fd, index.lines, index.size, status.st_size):
                if raw.whole:
                    index.take(raw)
                else:
                    rest.append(raw)
            self._keep(key, _Kept(index, _sample(fd, index.size), kept.saved_size))
            if index.size != known_size:
                self._save(status, conversation_id)
            number, end = (rest[-1].number + 1, rest[-1].end) if rest else (index.lines, index.size)
            behind_end = tuple(lines_behind(number, end, leftover))
            return TurnPlaces(
                index.closed([*rest, *behind_end], is_open=is_open), index.reverted_lines, behind_end
            )

    def forget(self, fd: int) -> None:
        """Forget the index of an open file, also the one that is saved: it does not fit the file."""
        status = os.fstat(fd)
        with self._lock:
            self._kept.pop((status.st_dev, status.st_ino), None)
            if self._is_saved(status) and self._saved is not None:
                self._saved.get().forget((status.st_dev, status.st_ino))

    # --- with the lock held
    def _known(self, fd: int, status: os.stat_result, conversation_id: str) -> _Kept:
        """Return the index that is cached or saved, if it is of this file; else an empty one."""
        key = (status.st_dev, status.st_ino)
        kept = self._kept.pop(key, None)
        if kept is None and self._is_saved(status) and self._saved is not None:
            saved = self._saved.get().load(key, conversation_id)
            if saved is not None:
                kept = _Kept(TurnIndex.of_snapshot(conversation_id, saved), saved.sample, saved.size)
        if (
            kept is not None
            and kept.index.conversation_id == conversation_id
            and kept.index.size <= status.st_size
            and kept.sample == _sample(fd, kept.index.size)
        ):
            return kept
        return _Kept(TurnIndex.empty(conversation_id))

    def _is_saved(self, status: os.stat_result) -> bool:
        """Return whether the turns of a file may be saved: it is long, and has a name."""
        return self._saved is not None and turn_places.may_be_saved(status.st_size) and status.st_nlink > 0

    def _keep(self, key: FileId, kept: _Kept) -> None:
        self._kept[key] = kept
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _save(self, status: os.stat_result, conversation_id: str) -> None:
        """Save the index of a file if it is due."""
        kept = self._kept[status.st_dev, status.st_ino]
        if (
            self._saved is None
            or not self._is_saved(status)
            or not turn_places.is_due(kept.index.size, kept.saved_size)
        ):
            return
        snapshot = kept.index.snapshot(kept.sample)
        if snapshot is not None:
            self._saved.get().save((status.st_dev, status.st_ino), conversation_id, snapshot)
            kept.saved_size = snapshot.size


def _sample(fd: int, size: int) -> bytes:
    start = max(0, size - SAMPLE_BYTES)
    return os.pread(fd, min(SAMPLE_BYTES, size), 0) + os.pread(fd, size - start, start)


def find_cut(
    path: Path, conversation_id: str, indexes: TurnIndexes, turn_id: str, *, behind: bool
) -> TurnCut:
    """Find the cut before a turn; with `behind`, the cut after it, so that the turn stays. Raises TurnNotFound and
    RolloutUnreadable. Slow for long files: call it in a thread.
    """
    with opened_whole(path) as fd:
        places = indexes.of(fd, conversation_id).places
        at = next((n for n, place in enumerate(places) if place.id == turn_id), None)
        if at is None:
            raise TurnNotFound(turn_id)
        at += behind
        if at == len(places):
            return TurnCut(None, 0)
        # codex counts only the turns that have a message of the user.
        return TurnCut(_first_line(fd, places[at]), sum(place.of_user for place in places[at:]))


def _first_line(fd: int, place: TurnPlace) -> int:
    before = deque(raw_lines(fd, 0, 0, place.begin), maxlen=LOOKS_BACK)
    return first_line_of_turn(before, place.number, implicit=place.implicit)
