"""Stored conversations of earlier sessions, written without a server."""

from __future__ import annotations

import json
from pathlib import Path

from app_server_protocol.encoding import Json

WHEN = "2025-10-20T10:00:00.000Z"


def store(home: Path, conversations: int, exchanges: int = 1) -> Path:
    """Write `conversations` rollouts, spread over the days of a year; return the path of the last."""
    path = home
    for n in range(conversations):
        month, day = 1 + n % 12, 1 + n % 28
        folder = home / "sessions" / "2025" / f"{month:02d}" / f"{day:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        id = f"0199f0a0-0000-7000-8000-{n:012d}"
        stamp = f"2025-{month:02d}-{day:02d}T10-{n // 60 % 60:02d}-{n % 60:02d}"
        path = folder / f"rollout-{stamp}-{id}.jsonl"
        write_rollout(path, id, exchanges)
    return path


def store_one(home: Path, exchanges: int) -> Path:
    """Write one rollout that is newer than those of `store`."""
    folder = home / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True, exist_ok=True)
    id = f"0199f0a0-0000-7000-8000-{10**11 + exchanges:012d}"
    path = folder / f"rollout-2026-01-01T00-00-00-{id}.jsonl"
    write_rollout(path, id, exchanges)
    return path


def write_rollout(path: Path, id: str, exchanges: int) -> None:
    """Write a rollout. A question and its answer make four lines, two of them items that the model sees again."""
    meta = {
        "id": id,
        "timestamp": WHEN,
        "cwd": "/tmp",
        "originator": "bench",
        "cli_version": "0.58.0",
        "instructions": None,
        "source": "vscode",
        "model_provider": "bench",
    }
    answer = "y" * 400
    with path.open("w") as file:
        file.write(_line("session_meta", meta))
        for n in range(exchanges):
            question = f"question {n} " + "x" * 200
            file.write(_said("user", "input_text", question))
            file.write(_line("event_msg", {"type": "user_message", "message": question, "images": []}))
            file.write(_line("event_msg", {"type": "agent_message", "message": answer}))
            file.write(_said("assistant", "output_text", answer))


def _said(role: str, kind: str, text: str) -> str:
    content = [{"type": kind, "text": text}]
    return _line("response_item", {"type": "message", "role": role, "content": content})


def _line(kind: str, payload: Json) -> str:
    return json.dumps({"timestamp": WHEN, "type": kind, "payload": payload}, separators=(",", ":")) + "\n"
