"""Methods about turns: start, steer, interrupt, review."""

from typing import Final

from protocol.table import AnyClientRequest, ClientRequest
from protocol.v2 import review, turn

_THREAD: Final = "threadId"
"""Requests about the same thread are served one after another."""

TURN_START: Final = ClientRequest(
    "turn/start",
    turn.TurnStartParams,
    turn.TurnStartResponse,
    "Says something; begins a turn, or joins the one that runs. All notifications of the turn come after the answer.",
    ordered_by=_THREAD,
)
TURN_STEER: Final = ClientRequest(
    "turn/steer",
    turn.TurnSteerParams,
    turn.TurnSteerResponse,
    "Says something to the turn that runs. Refused if that is not the expected one.",
    ordered_by=_THREAD,
)
TURN_INTERRUPT: Final = ClientRequest(
    "turn/interrupt",
    turn.TurnInterruptParams,
    turn.TurnInterruptResponse,
    "Ends a turn. Answered at once; `turn/completed` follows.",
    ordered_by=_THREAD,
)
REVIEW_START: Final = ClientRequest(
    "review/start",
    review.ReviewStartParams,
    review.ReviewStartResponse,
    "Begins a review of changes, as a turn.",
    ordered_by=_THREAD,
)

REQUESTS: Final[tuple[AnyClientRequest, ...]] = (
    TURN_START,
    TURN_STEER,
    TURN_INTERRUPT,
    REVIEW_START,
)
