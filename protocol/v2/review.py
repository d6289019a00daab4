"""Reviews: the model looks at changes and reports what it finds."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import WireModel
from protocol.fields import CleanText
from protocol.structs import WireStruct
from protocol.v2.turn import Turn


class UncommittedChangesReviewTarget(WireModel):
    type: Literal["uncommittedChanges"] = "uncommittedChanges"


class BaseBranchReviewTarget(WireModel):
    type: Literal["baseBranch"] = "baseBranch"
    branch: str


class CommitReviewTarget(WireModel):
    type: Literal["commit"] = "commit"
    sha: str
    title: str | None = None


class CustomReviewTarget(WireModel):
    type: Literal["custom"] = "custom"
    instructions: CleanText


ReviewTarget = TypeAliasType(
    "ReviewTarget",
    Annotated[
        UncommittedChangesReviewTarget | BaseBranchReviewTarget | CommitReviewTarget | CustomReviewTarget,
        Field(discriminator="type"),
    ],
)


class ReviewDelivery(StrEnum):
    INLINE = "inline"


class ReviewStartParams(WireModel):
    thread_id: str
    target: ReviewTarget
    delivery: ReviewDelivery | None = None


class ReviewStartResponse(WireStruct):
    """`reviewThreadId` is the same thread."""

    turn: Turn
    review_thread_id: str
