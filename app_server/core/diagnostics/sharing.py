"""The check of the server that all clients of the user share: whether one runs, and what is in the way."""

from __future__ import annotations

from collections.abc import Callable

from app_server.places.looking import Found
from app_server.places.socket_place import SocketPlace
from protocol.checks import Check, ok, warning

NAME = "shared server"


def check_shared_server(place: SocketPlace, look: Callable[[SocketPlace], Found], version: str) -> Check:
    """Report what is at the place; `version` is that of this program."""
    found = look(place)
    if found.obstacle is not None:
        advice = "move it away; until then each proxy serves its client by itself"
        return warning(NAME, f"none can be started: {found.obstacle}", advice)
    if found.is_locked:
        return _running(place, found, version)
    if found.is_answered:
        return warning(NAME, f"another program listens on {place.socket}", "end that program")
    if found.is_starting:
        return ok(NAME, "one is being started")
    left = (
        "; the socket of one that was killed is left, and the next one replaces it" if found.is_left else ""
    )
    return ok(NAME, f"none runs{left}{_otherwise(found)}")


def _running(place: SocketPlace, found: Found, version: str) -> Check:
    who = f"pid {found.said.get('pid', 'unknown')}"
    if not found.is_answered:
        if found.is_starting:
            return ok(NAME, "one is being started")
        what = f"one ({who}) holds {place.server_lock} and cannot be reached on {place.socket}"
        return warning(NAME, what, f"end it (`lslocks` shows the holder); its log is {place.log}")
    runs = found.said.get("version", version)
    where = ", ".join(map(str, found.said.get("addresses", [place.socket])))
    if runs != version:
        text = f"version {runs} runs ({who}), and this is {version}"
        return warning(NAME, text, "`app-server daemon reload` replaces it with its clients connected")
    return ok(NAME, f"version {runs} runs ({who}) on {where}{_otherwise(found)}")


def _otherwise(found: Found) -> str:
    return "; clients of codex find a server of codex" if found.is_known_otherwise else ""
