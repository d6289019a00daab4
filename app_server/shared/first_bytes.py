"""What a client speaks, by the first bytes that it says: lines, HTTP, or the preface of a proxy.

Without I/O. Whoever says anything else, too much or nothing for too long is none of ours.
"""

from __future__ import annotations

from enum import Enum

from app_server.proxy.preface import BEGINNING_OF_ANY, MOST_BYTES

FIRST_MESSAGE_SECONDS = 10
"""Until a client has to have said something. After a preface there is no such time: an editor may be slow to speak."""

MOST_WAITING = 1 << 16
"""Bytes of a first line that are waited for before it is served: its client does speak."""


class Speech(Enum):
    LINES = "lines"
    HTTP = "HTTP"
    PREFACE = "a preface"


class Nonsense(Exception):
    """The bytes begin nothing that is served here."""


def speech_of(said: bytes) -> Speech | None:
    """Return what a new connection begins with; None while that is still open. Raises Nonsense."""
    if not said:
        return None
    if said.startswith(b"G"):
        return Speech.HTTP
    if not said.startswith(b"{"):
        raise Nonsense
    whole = b"\n" in said
    if said.startswith(BEGINNING_OF_ANY):
        if len(said) > MOST_BYTES and b"\n" not in said[:MOST_BYTES]:
            raise Nonsense
        return Speech.PREFACE if whole else None
    if whole or len(said) > MOST_WAITING:
        return Speech.LINES
    return None


def speech_after_preface(said: bytes) -> Speech | None:
    """Return what the client behind a proxy begins with; None while that is still open. It may say any line."""
    if not said:
        return None
    return Speech.HTTP if said.startswith(b"G") else Speech.LINES
