"""Checkpoints of a thread: back to a message, with the files."""

from typing import Final, Literal

from typing_extensions import TypeAliasType

from app_server_protocol.method_table import ClientRequest
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import AbsolutePathBuf, ByPages, InThread
from app_server_protocol.v2.thread import Thread
from app_server_protocol.wire_fields import Flag

RestoreScope = TypeAliasType("RestoreScope", Literal["conversation", "files", "both"])
"""Part of the thread that goes back."""

ConflictResolution = TypeAliasType("ConflictResolution", Literal["keep", "merge"])
"""Way with files that the user has changed after the agent: they are kept, or the agent's part is taken out of them, if
that is clean."""

CheckpointFileAction = TypeAliasType(
    "CheckpointFileAction", Literal["restore", "delete", "recreate", "keep", "conflict", "unavailable"]
)
CheckpointFileAuthor = TypeAliasType("CheckpointFileAuthor", Literal["agent", "user", "both", "uncertain"])


class ThreadCheckpointListParams(ByPages, InThread):
    """The turns of a thread with what they changed in files, the newest first."""


class ThreadCheckpoint(WireStruct):
    """A turn, before which the files can be put."""

    turn_id: str
    words: str
    """Beginning of the user's message."""
    at: int | None
    """Begin, in seconds since 1970."""
    files_changed: int
    """Number of files that the turn is known to have changed."""
    files_covered: int
    """Number of these whose content before is known."""
    uncovered: tuple[str, ...] = ()
    """Reasons why some changes are not known."""


class ThreadRestore(WireStruct):
    """A restore, which can be undone by a restore of files before it."""

    undo_turn_id: str
    before_turn_id: str
    at: int
    files_changed: int
    complete: bool
    """Whether it has come to its end: otherwise the server was ended meanwhile."""


class ThreadCheckpointListResponse(WireStruct):
    data: tuple[ThreadCheckpoint, ...]
    restores: tuple[ThreadRestore, ...] = ()
    """Restores of the thread, the newest first, on the first page."""
    next_cursor: str | None = None


class ThreadCheckpointPreviewParams(InThread):
    """A restore as it would be now."""

    before_turn_id: str
    """Id of a turn, or the `undoTurnId` of a restore, to whose begin the files are put back."""
    restore: RestoreScope
    uncertain: Flag = False
    """Whether changes that may be the user's are restored, too."""


class ThreadCheckpointFile(WireStruct):
    """A file of a restore, with the author of its changes."""

    path: AbsolutePathBuf
    action: CheckpointFileAction
    by: CheckpointFileAuthor
    diff: str | None = None
    """Difference from the present text to the restored one."""
    reason: str | None = None
    """Reason why the file could not be changed."""


class ThreadCheckpointPreviewResponse(WireStruct):
    files: tuple[ThreadCheckpointFile, ...]
    turns: tuple[str, ...]
    """Ids of the turns that leave the conversation."""
    token: str
    """Digest of the states that were looked at."""


class ThreadCheckpointRestoreParams(ThreadCheckpointPreviewParams):
    """Does what the preview with this token has shown."""

    token: str
    conflicts: ConflictResolution = "keep"


class ThreadCheckpointRestoreResponse(WireStruct):
    files: tuple[ThreadCheckpointFile, ...]
    turns: tuple[str, ...]
    undo_turn_id: str | None = None
    """Id by which the restore of the files can be undone; null if no file was changed."""
    thread: Thread | None = None
    """The thread without these turns, if the conversation went back."""


THREAD_CHECKPOINT_LIST: Final = ClientRequest(
    "thread/checkpoint/list",
    ThreadCheckpointListParams,
    ThreadCheckpointListResponse,
    "The turns of a thread with what they changed in files, by pages. An extension.",
    experimental=True,
)
THREAD_CHECKPOINT_PREVIEW: Final = ClientRequest(
    "thread/checkpoint/preview",
    ThreadCheckpointPreviewParams,
    ThreadCheckpointPreviewResponse,
    "What going back to a message would do with files and conversation. An extension.",
    experimental=True,
)
THREAD_CHECKPOINT_RESTORE: Final = ClientRequest(
    "thread/checkpoint/restore",
    ThreadCheckpointRestoreParams,
    ThreadCheckpointRestoreResponse,
    "Goes back to a message, with files, conversation or both; what only the user wrote stays. An extension.",
    experimental=True,
)
