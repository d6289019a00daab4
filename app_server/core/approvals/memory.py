"""Approvals for the rest of the session. They decide approval requests and grant nothing by themselves: code that needs
no approval does not look them up.
"""

from __future__ import annotations

from app_server.core.approvals.consent import Consent, PatchSubject, Subject


class ApprovalMemory:
    """Session approvals by subject; never written to disk."""

    def __init__(self) -> None:
        self._given: dict[Subject, list[Consent]] = {}
        self._for_files: list[Consent] = []

    def remember(self, consent: Consent) -> None:
        if self.covers(consent):
            return
        if isinstance(consent.subject, PatchSubject) and consent.subject.text is None:
            self._for_files.append(consent)
        else:
            self._given.setdefault(consent.subject, []).append(consent)

    def covers(self, request: Consent) -> bool:
        given = (*self._given.get(request.subject, ()), *self._for_files)
        return any(consent.covers(request) for consent in given)
