"""Review mode: a turn that looks at a change and reports findings."""

from typing import Literal

from app_server_protocol.engine.item_values import ReviewOutputEvent
from app_server_protocol.outgoing import EngineStruct


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
