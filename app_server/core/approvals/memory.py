"""What the user approved for the rest of the session. It answers questions and grants nothing: whoever has no
question to ask has nothing to look up here.
"""

from __future__ import annotations

from app_server.core.approvals.consent import Consent, Subject


class ApprovalMemory:
    """Each yes for the session, by what it was about; never written to disk."""

    def __init__(self) -> None:
        self._given: dict[Subject, list[Consent]] = {}

    def remember(self, consent: Consent) -> None:
        if not self.covers(consent):
            self._given.setdefault(consent.subject, []).append(consent)

    def covers(self, question: Consent) -> bool:
        return any(consent.covers(question) for consent in self._given.get(question.subject, ()))
