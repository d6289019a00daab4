"""Paths and names of rollouts: `sessions/YYYY/MM/DD/rollout-<local time>-<conversation id>.jsonl`.

A journal is in the same folder, under a name that listings do not match. Nothing here accesses the disk.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from app_server_protocol.ids import ConversationId

SESSIONS = "sessions"
ARCHIVED = "archived_sessions"
OTHER_HOMES = "thread_homes"
"""Links to other homes. Their conversations are found by their ids, and are in no list."""

_STAMP = r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}"
_ID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = re.compile(rf"rollout-({_STAMP})-({_ID})\.jsonl")


class RolloutName(Struct, frozen=True, order=True):
    """The parts of a rollout's file name. Names sort by time, then by id."""

    stamp: str
    conversation_id: ConversationId

    @property
    def file_name(self) -> str:
        return f"rollout-{self.stamp}-{self.conversation_id}.jsonl"


def new_rollout_path(home: Path, local_time: datetime, conversation_id: ConversationId) -> Path:
    """Return the path for a new conversation."""
    name = RolloutName(local_time.strftime("%Y-%m-%dT%H-%M-%S"), conversation_id)
    return home / SESSIONS / local_time.strftime("%Y/%m/%d") / name.file_name


def parse_rollout_name(file_name: str) -> RolloutName | None:
    match = _NAME.fullmatch(file_name)
    return RolloutName(match[1], ConversationId(match[2].lower())) if match else None


def conversation_of(file_name: str, stated: str) -> ConversationId:
    """Return the id of the conversation whose rollout has this name, or the id that the file states if the name has
    another form. The name decides: what a file states is not trusted to lead to another conversation.
    """
    name = parse_rollout_name(file_name)
    return ConversationId(stated) if name is None else name.conversation_id


def stored_path(home: Path, name: RolloutName, *, archived: bool = False) -> Path:
    """Return where a rollout of that name is."""
    folder = home / ARCHIVED if archived else home / SESSIONS / name.stamp[:10].replace("-", "/")
    return folder / name.file_name


def journal_path(rollout: Path) -> Path:
    return rollout.with_name(f".{rollout.name}.pending")
