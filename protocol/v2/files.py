"""Files for clients. Paths are absolute, contents base64; neither the sandbox nor a question stands before them."""

from protocol.base import WireModel
from protocol.fields import Flag
from protocol.paths import AbsolutePath
from protocol.structs import WireStruct
from protocol.v2.fields import AbsolutePathBuf


class FsReadFileParams(WireModel):
    path: AbsolutePath


class FsReadFileResponse(WireStruct):
    data_base64: str


class FsWriteFileParams(WireModel):
    path: AbsolutePath
    data_base64: str


class FsWriteFileResponse(WireStruct):
    pass


class FsCreateDirectoryParams(WireModel):
    path: AbsolutePath
    recursive: Flag | None = None


class FsCreateDirectoryResponse(WireStruct):
    pass


class FsGetMetadataParams(WireModel):
    path: AbsolutePath


class FsGetMetadataResponse(WireStruct):
    """Times are 0 where they are not known."""

    is_directory: bool
    is_file: bool
    is_symlink: bool
    created_at_ms: int
    modified_at_ms: int


class FsReadDirectoryParams(WireModel):
    path: AbsolutePath


class FsReadDirectoryEntry(WireStruct):
    file_name: str
    is_directory: bool
    is_file: bool


class FsReadDirectoryResponse(WireStruct):
    entries: tuple[FsReadDirectoryEntry, ...]


class FsRemoveParams(WireModel):
    path: AbsolutePath
    recursive: Flag | None = None
    force: Flag | None = None


class FsRemoveResponse(WireStruct):
    pass


class FsCopyParams(WireModel):
    source_path: AbsolutePath
    destination_path: AbsolutePath
    recursive: Flag = False


class FsCopyResponse(WireStruct):
    pass


class FsWatchParams(WireModel):
    watch_id: str
    path: AbsolutePath


class FsWatchResponse(WireStruct):
    path: AbsolutePathBuf


class FsUnwatchParams(WireModel):
    watch_id: str


class FsUnwatchResponse(WireStruct):
    pass


class FsChangedNotification(WireStruct):
    """Something changed at these paths below what is watched."""

    watch_id: str
    changed_paths: tuple[AbsolutePathBuf, ...]
