"""The texts of a review: the reviewer's prompt for each kind of target, the description for the user, and the findings
for the conversation's history. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from app_server_protocol.engine.item_values import ReviewFinding, ReviewOutputEvent, ReviewRequest

SHORT_SHA = 7
"""Length of a commit id that is shown to a person, in digits."""

TASK = "Report what its author would want to fix, the most important first."


def uncommitted_changes() -> ReviewRequest:
    prompt = (
        "Review the changes in this working tree that are not committed: what is staged, what is not, and files that "
        f"git does not track. `git status` and `git diff HEAD` show them. {TASK}"
    )
    return ReviewRequest(prompt=prompt, user_facing_hint="current changes")


def against_branch(branch: str, merge_base: str | None) -> ReviewRequest:
    """Return a request for a review against a branch. `merge_base`: the newest commit that both have; None if
    unknown.
    """
    if merge_base is None:
        how = (
            f"Find the commit where the work left `{branch}` (or the branch that it follows) by `git merge-base`, and "
            "look at the difference from there to the working tree."
        )
    else:
        how = f"They have commit {merge_base} in common; `git diff {merge_base}` shows what was done since."
    return ReviewRequest(
        prompt=f"Review the changes that a merge into the branch `{branch}` would bring. {how} {TASK}",
        user_facing_hint=f"changes against '{branch}'",
    )


def of_commit(sha: str, title: str | None) -> ReviewRequest:
    named = f"{sha} ({title})" if title else sha
    hint = f"commit {sha[:SHORT_SHA]}"
    return ReviewRequest(
        prompt=f"Review the changes of commit {named}; `git show {sha}` prints them. {TASK}",
        user_facing_hint=f"{hint}: {title}" if title else hint,
    )


def as_instructed(instructions: str) -> ReviewRequest:
    return ReviewRequest(prompt=instructions, user_facing_hint=instructions)


def outcome(output: ReviewOutputEvent) -> str:
    """Return the explanation and the findings of a review as one text; empty if there are none."""
    text = output.overall_explanation.strip()
    return f"{text}\n{findings_block(output.findings)}".strip() if output.findings else text


def findings_block(findings: Sequence[ReviewFinding]) -> str:
    """Return one list entry per finding: title, location, body."""
    head = "Full review comments:" if len(findings) > 1 else "Review comment:"
    return "\n".join(["", head, *("\n" + _finding(finding) for finding in findings)])


def _finding(finding: ReviewFinding) -> str:
    place = finding.code_location
    lines = f"{place.line_range.start}-{place.line_range.end}"
    body = "\n".join(f"  {line}" for line in finding.body.splitlines())
    return f"- {finding.title} — {place.absolute_file_path}:{lines}\n{body}"
