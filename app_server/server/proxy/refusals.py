"""The rare parts of a meeting of a proxy and a server: a server that is slow to answer, and one that refuses. A proxy
loads them when it meets one, since `json` and locks take longer to import than all that it does otherwise.
"""

from __future__ import annotations

import json

from app_server.engine.support.filelock import is_held
from app_server.engine.support.socket_paths import SocketPaths


def is_starting(place: SocketPaths) -> bool:
    """Return whether a server is being started; a service manager starts one with the first client that connects."""
    return is_held(place.startup_lock)


def reason_of(line: bytes, number: int) -> str:
    """Return the reason in a line that is no acceptance, or what is wrong with the line. `number` is that of the form
    of prefaces that this proxy understands.
    """
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if not isinstance(said, dict) or "preface" not in said:
        return "what listens there is no server of this kind"
    if said.get("preface") != number:
        return "the server there is of a version that does not understand this one"
    return str(said.get("reason", "the server there gave no reason"))
