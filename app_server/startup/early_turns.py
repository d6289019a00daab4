"""The turns of a stored thread as the thread API shows them, straight from its lines. Fast to import.

It does what `turn_events`, `turn_fold` and `apis.v2.turns` do, for the lines that nearly every thread consists of; a
test compares both over random files. Items that are stored whole, such as commands and patches, are shown by those
modules, which are loaded for them. A thread with anything else is left to the full server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app_server.core.collector import without_collector
from app_server.core.rollout.disk import open_for_reading
from app_server.core.rollout.objects import RECORD_START
from app_server.core.rollout.plain_messages import NotPlain
from app_server.core.rollout.rollout_lines import cut_line, read_lines
from app_server.core.rollout.turn_fields import derived_id, number_of, text_of, times_of
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

TURN_LINES: Final = frozenset(
    name.encode()
    for name in (
        *("task_started", "task_complete", "turn_aborted", "turn_item"),
        *("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content"),
    )
)
REASONING: Final = ("agent_reasoning", "agent_reasoning_raw_content")
OTHER_LINES: Final = frozenset((b"entered_review_mode", b"exited_review_mode", b"thread_rolled_back"))
"""Events that are shown as several items, or change what other lines mean."""

WITHOUT_TURNS: Final = frozenset((b"session_meta", b"response_item", b"turn_context"))
"""Kinds of lines. A compaction is none of them: what follows it may be its end."""

PHASES: Final = frozenset(("commentary", "partial_answer", "final_answer"))


def early_turns(path: Path, thread_id: str) -> list[Json]:
    """Oldest first. Raises NotPlain and OSError."""
    fd = open_for_reading(path)
    try:
        with without_collector():
            return _fold(list(_turn_lines(fd)), thread_id)
    except (ValueError, RecursionError):
        raise NotPlain from None
    finally:
        os.close(fd)


def _turn_lines(fd: int) -> Iterator[tuple[int, bool, bytes]]:
    """Numbers in the file, whether other lines are before, and payloads."""
    apart = False
    for number, line in enumerate(read_lines(fd)):
        kind, payload, name = cut_line(line)
        if line.find(RECORD_START, 1) >= 0:
            raise NotPlain
        if kind == b"event_msg" and name in TURN_LINES:
            yield number, apart, payload
            apart = False
        elif kind in WITHOUT_TURNS or (kind == b"event_msg" and name is not None and name not in OTHER_LINES):
            apart = True
        else:
            raise NotPlain


def _fold(lines: list[tuple[int, bool, bytes]], thread_id: str) -> list[Json]:
    payloads = json.loads("[" + b",".join(payload for _, _, payload in lines).decode() + "]")
    if len(payloads) != len(lines):
        raise NotPlain
    fold = _EarlyFold(thread_id)
    for (number, apart, _), payload in zip(lines, payloads, strict=True):
        if not isinstance(payload, dict):
            raise NotPlain
        fold.read(number, payload, apart=apart)
    return fold.finish()


@dataclass(slots=True)
class _Reasoning:
    id: str
    times: tuple[int, int]
    summary: list[str] = field(default_factory=list)
    content: list[str] = field(default_factory=list)


class _EarlyFold:
    def __init__(self, thread_id: str) -> None:
        self._thread_id = thread_id
        self._turns: dict[str, dict[str, Json]] = {}
        self._ids: set[str] = set()
        self._turn: str | None = None
        self._explicit = False
        """Whether the open turn has a stored start."""
        self._reasoning: _Reasoning | None = None

    def read(self, number: int, payload: Mapping[str, Json], *, apart: bool) -> None:
        name = payload["type"]
        if self._reasoning is not None and (apart or name not in REASONING):
            self._end_reasoning()
        match name:
            case "user_message" | "agent_message":
                if "item_id" not in payload or "turn_id" in payload:  # else a whole item follows
                    self._message(number, name, payload)
            case "agent_reasoning" | "agent_reasoning_raw_content":
                if "item_id" not in payload or "turn_id" in payload:
                    self._reasoning_part(number, name, payload)
            case "task_started":
                self._start(number, payload)
            case "task_complete":
                self._end(payload, "completed" if payload.get("error") is None else "failed")
            case "turn_aborted":
                self._end(payload, "interrupted")
            case "turn_item":
                self._whole_item(payload)
            case _:
                raise NotPlain  # the payload has two types

    def finish(self) -> list[Json]:
        self._end_reasoning()
        self._close()
        return list(self._turns.values())

    # --- turns
    def _start(self, number: int, payload: Mapping[str, Json]) -> None:
        turn_id = text_of(payload, "turn_id") or self._derived("turn", number)
        if turn_id == self._turn:
            return
        if payload.get("late"):
            raise NotPlain
        self._close()
        self._begin(turn_id, _whole(number_of(payload, "started_at")), explicit=True)

    def _begin(self, turn_id: str, started_at: int | None, *, explicit: bool) -> None:
        if turn_id in self._turns:
            raise NotPlain
        self._turn, self._explicit = turn_id, explicit
        self._of(turn_id)["startedAt"] = started_at

    def _of(self, turn_id: str) -> dict[str, Json]:
        turn = self._turns.get(turn_id)
        if turn is None:
            turn = self._turns[turn_id] = {
                "id": turn_id,
                "rootTurnId": turn_id,
                "items": [],
                "itemsView": "full",
                "status": "inProgress",
                "error": None,
                "startedAt": None,
                "completedAt": None,
                "durationMs": None,
            }
        return turn

    def _end(self, payload: Mapping[str, Json], status: str) -> None:
        turn_id = text_of(payload, "turn_id") or self._turn
        if turn_id is None:
            return
        turn, duration = self._of(turn_id), number_of(payload, "duration_ms")
        error = None
        if status == "failed":
            from app_server.startup.early_items import shown_error  # noqa: PLC0415  models, for such turns only

            error = shown_error(payload["error"])
        if turn["startedAt"] is None:
            turn["startedAt"] = _whole(number_of(payload, "started_at"))
        turn |= {
            "status": "completed" if status == "failed" and error is None else status,
            "error": error,
            "completedAt": _whole(number_of(payload, "completed_at")),
            "durationMs": None if duration is None else round(round(duration / 1000, 3) * 1000),
        }
        self._turn = None

    def _close(self) -> None:
        """Ends a turn without a stored end."""
        if self._turn is not None:
            self._of(self._turn)["status"] = "interrupted" if self._explicit else "completed"
            self._turn = None

    # --- items
    def _message(self, number: int, name: str, payload: Mapping[str, Json]) -> None:
        message = payload.get("message")
        if not isinstance(message, str):
            raise NotPlain
        opens = name == "user_message"
        if self._turn is None or (opens and not self._explicit):
            self._close()
            self._begin(self._derived("turn", number), None, explicit=False)
        id = text_of(payload, "item_id") or self._derived("item", number)
        item = _item("userMessage" if opens else "agentMessage", id, times_of(payload))
        if opens:
            item["clientId"], item["content"] = None, _content(message, payload.get("images"))
        else:
            phase = text_of(payload, "phase")
            item |= {"text": message, "phase": phase if phase in PHASES else None, "memoryCitation": None}
        self._add(item, text_of(payload, "turn_id") or self._turn)

    def _reasoning_part(self, number: int, name: str, payload: Mapping[str, Json]) -> None:
        id, times = text_of(payload, "item_id"), times_of(payload)
        known = self._reasoning
        if known is not None and id is not None and (id, times) != (known.id, known.times):
            self._end_reasoning()
        if self._turn is None:
            self._begin(self._derived("turn", number), None, explicit=False)
        if self._reasoning is None:
            self._reasoning = _Reasoning(id or self._derived("item", number), times)
        text = text_of(payload, "text")
        if text is not None:
            (self._reasoning.summary if name == "agent_reasoning" else self._reasoning.content).append(text)

    def _end_reasoning(self) -> None:
        if self._reasoning is None:
            return
        ended, self._reasoning = self._reasoning, None
        item = _item("reasoning", ended.id, ended.times)
        self._add({**item, "summary": ended.summary, "content": ended.content}, self._turn)

    def _whole_item(self, payload: Mapping[str, Json]) -> None:
        from app_server.startup.early_items import shown_items  # noqa: PLC0415  models, for these lines only

        shown = shown_items(payload)
        if shown:
            self._add(shown[0], text_of(payload, "turn_id") or self._turn, shown[1:])

    def _add(self, item: dict[str, Json], turn_id: str | None, behind: list[Json] | None = None) -> None:
        if turn_id is None or item["id"] in self._ids:
            raise NotPlain
        self._ids.add(item["id"])
        self._of(turn_id)["items"] += [item, *(behind or ())]

    def _derived(self, what: str, number: int) -> str:
        return derived_id(self._thread_id, f"{what} {number}")


def _item(kind: str, id: str, times: tuple[int, int]) -> dict[str, Json]:
    started, completed = times
    return {"type": kind, "id": id, "startedAtMs": started or None, "completedAtMs": completed or None}


def _content(message: str, images: Json) -> list[Json]:
    content: list[Json] = []
    if message or not images:
        content.append({"type": "text", "text": message, "text_elements": []})
    if isinstance(images, list):
        content += [
            {"type": "image", "url": image, "detail": None} for image in images if isinstance(image, str)
        ]
    return content


def _whole(seconds: float | None) -> int | None:
    """None for 0, which means unknown in old files."""
    return int(seconds) if seconds else None
