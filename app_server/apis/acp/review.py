"""The result of a review as the text that the user reads. Pure."""

from __future__ import annotations

from typing import Final

from app_server.core.session.review_format import findings_block
from protocol.events.review import ReviewOutputEvent

NO_FINDINGS: Final = "The review found nothing."


def review_text(output: ReviewOutputEvent) -> str:
    text = output.overall_explanation.strip()
    if output.findings:
        text = f"{text}\n{findings_block(output.findings)}".strip()
    return text or NO_FINDINGS
