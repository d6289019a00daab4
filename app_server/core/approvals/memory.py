"""What the user approved for the rest of the session.

An entry covers exactly one request: the same words, in the same directory, with the same rights.
"""

from __future__ import annotations

from collections.abc import Hashable


class ApprovalMemory:
    """A set of requests; it is never written to disk."""

    def __init__(self) -> None:
        self._approved: set[Hashable] = set()

    def remember(self, request: Hashable) -> None:
        self._approved.add(request)

    def covers(self, request: Hashable) -> bool:
        return request in self._approved
