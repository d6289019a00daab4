"""Patches: the prompt for consent, begin and end, and the diff of the whole turn."""

from typing import Annotated, Literal

from typing_extensions import TypeAliasType

from protocol.base import EngineModel, omit_none
from protocol.items import ExternallyTagged
from protocol.structs import EngineStruct


class AddFileChange(EngineModel):
    """A new file with this content."""

    content: str


class DeleteFileChange(EngineModel):
    """The file goes; this was its content."""

    content: str


class UpdateFileChange(EngineModel):
    """The file changes, and is moved if `move_path` says where to."""

    unified_diff: str
    move_path: str | None = None


FileChange = TypeAliasType(
    "FileChange",
    Annotated[
        AddFileChange | DeleteFileChange | UpdateFileChange,
        ExternallyTagged({"add": AddFileChange, "delete": DeleteFileChange, "update": UpdateFileChange}),
    ],
)


class ApplyPatchApprovalRequestEvent(EngineModel):
    """A patch waits for the user. Before its `patch_apply_begin`; the request to the client that carries the
    question is written after this event. Keys of `changes` are absolute paths."""

    type: Literal["apply_patch_approval_request"] = "apply_patch_approval_request"
    call_id: str
    changes: dict[str, FileChange]
    reason: str | None = omit_none()
    grant_root: str | None = omit_none()


class PatchApplyBeginEvent(EngineModel):
    """A patch is about to be applied. `auto_approved` is false if the user was asked."""

    type: Literal["patch_apply_begin"] = "patch_apply_begin"
    call_id: str
    auto_approved: bool
    changes: dict[str, FileChange]


class PatchApplyEndEvent(EngineStruct):
    """A patch was applied or failed as a whole. Exactly one for each begin."""

    type: Literal["patch_apply_end"] = "patch_apply_end"
    call_id: str
    stdout: str
    stderr: str
    success: bool


class TurnDiffEvent(EngineStruct):
    """What patches changed in the turn so far, as one unified diff. After the `patch_apply_end` that
    altered it."""

    type: Literal["turn_diff"] = "turn_diff"
    unified_diff: str
