"""Changes to a stored thread: archive, delete, name, metadata, cutting its end off."""

from protocol.base import WireModel
from protocol.fields import CleanText
from protocol.structs import WireStruct
from protocol.v2.thread import Thread


class ThreadArchiveParams(WireModel):
    thread_id: str


class ThreadArchiveResponse(WireStruct):
    pass


class ThreadUnarchiveParams(WireModel):
    thread_id: str


class ThreadUnarchiveResponse(WireStruct):
    thread: Thread


class ThreadDeleteParams(WireModel):
    thread_id: str


class ThreadDeleteResponse(WireStruct):
    pass


class ThreadSetNameParams(WireModel):
    thread_id: str
    name: CleanText


class ThreadSetNameResponse(WireStruct):
    pass


class ThreadMetadataGitInfoUpdateParams(WireModel):
    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ThreadMetadataUpdateParams(WireModel):
    thread_id: str
    git_info: ThreadMetadataGitInfoUpdateParams | None = None


class ThreadMetadataUpdateResponse(WireStruct):
    thread: Thread


class ThreadRevertParams(WireModel):
    """Cuts a thread off before a turn. Files stay as they are."""

    thread_id: str
    before_turn_id: str


class ThreadRevertResponse(WireStruct):
    thread: Thread
    turns_backwards_cursor: str | None = None
    items_backwards_cursor: str | None = None
