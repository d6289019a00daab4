"""What the user and the agent said in a stored conversation, as one text for a search, and the words around a match.

Output of commands, tool calls and reasoning are not searched. Turns that were taken back are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from app_server.core.rollout.disk import opened
from app_server.core.rollout.lines import counting_lines
from app_server.core.rollout.record import read_record
from app_server.core.rollout.summary import request_in

SEARCHED_CHARACTERS: Final = 256 * 1024
"""Of one conversation; what was said later is not found."""
BEFORE, AFTER = 48, 96
"""Characters of a snippet around a match."""
_MESSAGE: Final = b'_message"'


def read_message_text(path: Path) -> str:
    """Read the messages in their order, a line end between two. Raises `RolloutUnreadable`."""
    texts, length = list[str](), 0
    with opened(path, whole=True) as fd:
        for raw in counting_lines(fd):
            if _MESSAGE not in raw.data or (record := read_record(raw.data)) is None:
                continue
            match record.name if record.kind == "event_msg" else None, record.value():
                case "user_message", {"message": str(words)}:
                    texts.append(request_in(words))
                case "agent_message", {"message": str(words)}:
                    texts.append(words)
                case _:
                    continue
            length += len(texts[-1]) + 1
            if length >= SEARCHED_CHARACTERS:
                break
    return "\n".join(texts)[:SEARCHED_CHARACTERS]


def snippet(text: str, term: str) -> str | None:
    """Return the words around the first place where `text` has `term`, in whatever case; None where it is nowhere."""
    wanted = term.casefold()
    folded = text.casefold()
    at = folded.find(wanted)
    if at < 0:
        return None
    begin, end = at, at + len(wanted)
    if len(folded) != len(text):
        begin, end = _place(text, begin), _place(text, end)
    first, last = max(0, begin - BEFORE), min(len(text), end + AFTER)
    words = " ".join(text[first:last].split())
    return f"{'…' if first > 0 else ''}{words}{'…' if last < len(text) else ''}"


def _place(text: str, folded_place: int) -> int:
    """Return where a place in `text.casefold()` is in `text`: some characters fold to several."""
    folded = 0
    for place, character in enumerate(text):
        if folded >= folded_place:
            return place
        folded += len(character.casefold())
    return len(text)
