"""Approvals for the rest of the session. They decide approval requests and grant nothing by themselves: code that needs
no approval does not look them up.
"""

from __future__ import annotations

from app_server.core.approvals.consent import Consent, Subject


class ApprovalMemory:
    """Session approvals by subject; never written to disk."""

    def __init__(self) -> None:
        self._given: dict[Subject, list[Consent]] = {}

    def remember(self, consent: Consent) -> None:
        if not self.covers(consent):
            self._given.setdefault(consent.subject, []).append(consent)

    def covers(self, request: Consent) -> bool:
        return any(consent.covers(request) for consent in self._given.get(request.subject, ()))
