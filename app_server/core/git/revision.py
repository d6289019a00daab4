"""What a working directory's repository had checked out. Apart from what reads it: stored conversations have it too."""

from __future__ import annotations

from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Revision:
    commit_hash: str | None = None
    branch: str | None = None
    repository_url: str | None = None
