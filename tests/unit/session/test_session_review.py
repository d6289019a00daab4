"""What a reviewer answers, however it wraps it, and what the conversation remembers of a review."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.session.review import note, parse_review
from app_server.core.session.review_texts import findings_block
from protocol.base import Json
from protocol.events.review import ReviewOutputEvent

FINDING: Json = {
    "title": "Off by one",
    "body": "The last entry\nis skipped.",
    "confidence_score": 0.9,
    "priority": 1,
    "code_location": {"absolute_file_path": "/w/a.py", "line_range": {"start": 3, "end": 4}},
}
OUTPUT: Json = {
    "findings": [FINDING],
    "overall_correctness": "patch is incorrect",
    "overall_explanation": "One mistake.",
    "overall_confidence_score": 0.8,
}


@pytest.mark.parametrize(
    "wrapping", ["{}", "Here it is:\n```json\n{}\n```\nThat is all.", "\n\n{} \n", "I found: {}"]
)
def test_findings_are_found_in_whatever_is_around_them(wrapping: str) -> None:
    output = parse_review(wrapping.replace("{}", json.dumps(OUTPUT)))
    assert [finding.title for finding in output.findings] == ["Off by one"]
    assert output.overall_explanation == "One mistake."


@pytest.mark.parametrize(
    "text", ["Looks good.", "", "{", "} {", "[1, 2]", '{"findings": "many"}', "{" * 100_000]
)
def test_what_is_no_review_is_its_explanation(text: str) -> None:
    assert parse_review(text) == ReviewOutputEvent(overall_explanation=text)


@given(st.text())
def test_no_answer_breaks_the_review(text: str) -> None:
    assert isinstance(parse_review(text), ReviewOutputEvent)


def test_the_note_tells_place_and_body_of_each_finding() -> None:
    output = parse_review(json.dumps({**OUTPUT, "findings": [FINDING, FINDING]}))
    block = findings_block(output.findings)
    assert block.count("- Off by one — /w/a.py:3-4\n  The last entry\n  is skipped.") == 2
    assert block.splitlines()[1] == "Full review comments:"
    assert findings_block(output.findings[:1]).splitlines()[1] == "Review comment:"
    text = note(output)
    assert text.startswith("<user_action>")
    assert "One mistake." in text
    assert block in text


def test_the_note_of_an_interrupted_review_says_so() -> None:
    text = note(None)
    assert "interrupted" in text
    assert "<action>review</action>" in text
    assert "None." in text
