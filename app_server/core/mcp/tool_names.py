"""The names of servers' tools for the model: `mcp__server__tool`, valid for every model API. Pure.

One invalid name would make every request of the conversation fail, and a duplicate name would call the wrong tool. So
names consist of `[a-zA-Z0-9_-]`, have at most 64 characters, are unique, and are never in `taken`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable

PREFIX = "mcp"
DELIMITER = "__"
MAX_LENGTH = 64
SERVER_NAME = re.compile(r"^[a-zA-Z0-9_-]+$")
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_LENGTH = 40


def qualify(tools: Iterable[tuple[str, str]], taken: Collection[str] = ()) -> dict[str, tuple[str, str]]:
    """Qualified name → (server, tool), in order. Omits duplicate tools of a server and tools without a name."""
    named: dict[str, tuple[str, str]] = {}
    seen: set[tuple[str, str]] = set()
    for pair in tools:
        if pair in seen or not pair[1].strip():
            continue
        seen.add(pair)
        name = _qualified(*pair)
        if name in named or name in taken:
            name = _with_digest(name, "\0".join(pair))
        if name not in named and name not in taken:
            named[name] = pair
    return named


def _qualified(server: str, tool: str) -> str:
    raw = DELIMITER.join((PREFIX, server, tool))
    fit = _UNFIT.sub("_", raw)
    return fit if len(fit) <= MAX_LENGTH else _with_digest(fit, raw)


def _with_digest(name: str, raw: str) -> str:
    digest = hashlib.sha1(raw.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return name[: MAX_LENGTH - _DIGEST_LENGTH] + digest
