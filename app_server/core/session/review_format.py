"""A review's findings as text for the conversation's history. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.events.review import ReviewFinding


def findings_block(findings: Sequence[ReviewFinding]) -> str:
    """One list entry per finding: title, place, body."""
    head = "Full review comments:" if len(findings) > 1 else "Review comment:"
    return "\n".join(["", head, *("\n" + _finding(finding) for finding in findings)])


def _finding(finding: ReviewFinding) -> str:
    place = finding.code_location
    lines = f"{place.line_range.start}-{place.line_range.end}"
    body = "\n".join(f"  {line}" for line in finding.body.splitlines())
    return f"- {finding.title} — {place.absolute_file_path}:{lines}\n{body}"
