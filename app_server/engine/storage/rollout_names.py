"""Paths and names of rollouts: `sessions/YYYY/MM/DD/rollout-<local time>-<conversation id>.jsonl`. When codex reverts a
conversation, it continues it in a further file, whose name has an id of its own after that of the conversation.

The journal of a rollout is in the same folder, under a name that listings do not match. Nothing here accesses the disk.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from app_server_protocol.ids import ConversationId

SESSIONS = "sessions"
ARCHIVED = "archived_sessions"
OTHER_HOMES = "thread_homes"
"""Folder with links to other homes. Their conversations are found by id, and are in no list."""

MOST_APART = timedelta(hours=26)
"""Maximum difference between the time stamp of a name and the time in its id, for any time zone. If they differ by
more, the id does not say the time of the name.
"""

_EPOCH = date(1970, 1, 1)
_DAY_MS = 86_400_000
_STAMP_FORM = "%Y-%m-%dT%H-%M-%S"
_STAMP = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}"
_ID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = re.compile(rf"rollout-({_STAMP})-({_ID})(?:_({_ID}))?\.jsonl")


class RolloutName(Struct, frozen=True, order=True):
    """The parts of a rollout's file name. Names sort by time, then by id."""

    stamp: str
    conversation_id: ConversationId
    segment: str = ""
    """Id of a further file of the conversation; empty for its first file."""

    @property
    def file_name(self) -> str:
        segment = f"_{self.segment}" if self.segment else ""
        return f"rollout-{self.stamp}-{self.conversation_id}{segment}.jsonl"

    @property
    def started(self) -> str:
        """Start of the conversation, as a text that sorts by time. It comes from the id, which has the time in UTC with
        milliseconds, or else from the stamp, which is local and may come from another time zone.
        """
        return started_at(self.stamp, self.conversation_id)


def started_at(stamp: str, conversation_id: str) -> str:
    """Return `RolloutName.started` of a name with these parts."""
    if conversation_id[14:15] == "7":
        try:
            at_ms = int(conversation_id[:8] + conversation_id[9:13], 16)
            apart = abs(at_ms // _DAY_MS - _day_number(stamp[:10]))
            if apart <= 2:
                started = _time_text(at_ms)
                if apart == 0 or abs(_time(started[:19]) - _time(stamp)) <= MOST_APART:
                    return started
        except (ValueError, OverflowError):
            pass
    return f"{stamp}.000"


def _time_text(at_ms: int) -> str:
    """Return a time in milliseconds since 1970 as a text. A list needs it for every file, so this is arithmetic but for
    the day. Raises OverflowError for years beyond 9999.
    """
    seconds, milliseconds = divmod(at_ms, 1000)
    days, second = divmod(seconds, 86_400)
    return f"{_day(days)}T{second // 3600:02}-{second // 60 % 60:02}-{second % 60:02}.{milliseconds:03}"


@lru_cache(maxsize=1024)
def _day(days: int) -> str:
    return (_EPOCH + timedelta(days=days)).isoformat()


@lru_cache(maxsize=4096)
def _day_number(day: str) -> int:
    """Return the number of days from 1970 to this day. Raises ValueError if there is no such day."""
    return (date.fromisoformat(day) - _EPOCH).days


def _time(stamp: str) -> datetime:
    return datetime.fromisoformat(f"{stamp[:13]}:{stamp[14:16]}:{stamp[17:]}")


def new_rollout_path(home: Path, local_time: datetime, conversation_id: ConversationId) -> Path:
    """Return the path of a new conversation."""
    name = RolloutName(local_time.strftime(_STAMP_FORM), conversation_id)
    return home / SESSIONS / local_time.strftime("%Y/%m/%d") / name.file_name


def parse_rollout_name(file_name: str) -> RolloutName | None:
    match = _NAME.fullmatch(file_name)
    if match is None:
        return None
    return RolloutName(match[1], ConversationId(match[2].lower()), (match[3] or "").lower())


def home_of(rollout: Path) -> Path | None:
    """Return the home whose folders contain this rollout; None if the path is outside of any home's folders."""
    if rollout.parent.name == ARCHIVED:
        return rollout.parents[1]
    return rollout.parents[4] if len(rollout.parents) > 4 and rollout.parents[3].name == SESSIONS else None


def conversation_of(file_name: str, stated: str) -> ConversationId:
    """Return the id of the conversation whose rollout has this name; the id that the file states if the name has
    another form. The name takes precedence, so that the content of a file cannot lead to another conversation.
    """
    name = parse_rollout_name(file_name)
    return ConversationId(stated) if name is None else name.conversation_id


def stored_path(home: Path, name: RolloutName, *, archived: bool = False) -> Path:
    """Return the path of a rollout with that name."""
    folder = home / ARCHIVED if archived else home / SESSIONS / name.stamp[:10].replace("-", "/")
    return folder / name.file_name


def journal_path(rollout: Path) -> Path:
    return rollout.with_name(f".{rollout.name}.pending")
