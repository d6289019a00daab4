"""Review mode: a turn that looks at a change and reports findings."""

from typing import Literal

from app_server_protocol.outgoing import EngineStruct


class ReviewRequest(EngineStruct):
    prompt: str
    user_facing_hint: str


class ReviewLineRange(EngineStruct):
    start: int
    end: int


class ReviewCodeLocation(EngineStruct):
    absolute_file_path: str
    line_range: ReviewLineRange


class ReviewFinding(EngineStruct):
    title: str
    body: str
    confidence_score: float
    priority: int
    code_location: ReviewCodeLocation


class ReviewOutputEvent(EngineStruct):
    """The result of a review."""

    always = ("findings", "overall_correctness", "overall_explanation", "overall_confidence_score")

    findings: tuple[ReviewFinding, ...] = ()
    overall_correctness: str = ""
    overall_explanation: str = ""
    overall_confidence_score: float = 0.0


class EnteredReviewModeEvent(EngineStruct):
    """A review begins. Before everything that the reviewer does."""

    type: Literal["entered_review_mode"] = "entered_review_mode"
    prompt: str
    user_facing_hint: str


class ExitedReviewModeEvent(EngineStruct):
    """The review is over; the output is null if it was interrupted. After `entered_review_mode` and
    before the end of the turn, once, whatever happened."""

    type: Literal["exited_review_mode"] = "exited_review_mode"
    review_output: ReviewOutputEvent | None = None
