"""Parts of the items that tools leave: what a command does, how a file changes, what a call came to."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import EngineModel, Json, WireModel
from protocol.v2.fields import LegacyAppPathString


class Item(WireModel):
    """What every item has. The id is unique within the thread; times are null as long as they are not known."""

    type: str
    id: str
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


class ReadCommandAction(WireModel):
    type: Literal["read"] = "read"
    command: str
    name: str
    path: LegacyAppPathString


class ListFilesCommandAction(WireModel):
    type: Literal["listFiles"] = "listFiles"
    command: str
    path: str | None = None


class SearchCommandAction(WireModel):
    type: Literal["search"] = "search"
    command: str
    path: str | None = None
    query: str | None = None


class UnknownCommandAction(WireModel):
    type: Literal["unknown"] = "unknown"
    command: str


CommandAction = TypeAliasType(
    "CommandAction",
    Annotated[
        ReadCommandAction | ListFilesCommandAction | SearchCommandAction | UnknownCommandAction,
        Field(discriminator="type"),
    ],
)


class CommandExecutionSource(StrEnum):
    AGENT = "agent"
    USER_SHELL = "userShell"
    UNIFIED_EXEC_STARTUP = "unifiedExecStartup"
    UNIFIED_EXEC_INTERACTION = "unifiedExecInteraction"


class CommandExecutionStatus(StrEnum):
    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"
    DECLINED = "declined"


class PatchApplyStatus(StrEnum):
    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"
    DECLINED = "declined"


class AddPatchChangeKind(WireModel):
    type: Literal["add"] = "add"


class DeletePatchChangeKind(WireModel):
    type: Literal["delete"] = "delete"


class UpdatePatchChangeKind(EngineModel):
    type: Literal["update"] = "update"
    move_path: str | None = None


PatchChangeKind = TypeAliasType(
    "PatchChangeKind",
    Annotated[
        AddPatchChangeKind | DeletePatchChangeKind | UpdatePatchChangeKind, Field(discriminator="type")
    ],
)


class FileUpdateChange(WireModel):
    """One file of a patch: `diff` is the content where the file is added or deleted, else a unified diff."""

    path: str
    kind: PatchChangeKind
    diff: str


class McpToolCallAppContext(WireModel):
    connector_id: str
    link_id: str | None = None
    resource_uri: str | None = None
    app_name: str | None = None
    action_name: str | None = None


class McpAppDisplayMode(StrEnum):
    INLINE = "inline"
    FULLSCREEN = "fullscreen"


class McpAppUi(WireModel):
    resource_uri: str
    preferred_model_display_mode: McpAppDisplayMode


class McpToolCallError(WireModel):
    message: str


class McpToolCallResult(WireModel):
    """The result as the server gave it."""

    content: tuple[Json, ...]
    structured_content: Json = None
    meta: Json = Field(default=None, alias="_meta")


class McpToolCallStatus(StrEnum):
    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"


class DynamicToolCallStatus(StrEnum):
    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"


class InputTextDynamicToolCallOutputContentItem(WireModel):
    type: Literal["inputText"] = "inputText"
    text: str


class InputImageDynamicToolCallOutputContentItem(WireModel):
    type: Literal["inputImage"] = "inputImage"
    image_url: str


class InputAudioDynamicToolCallOutputContentItem(WireModel):
    type: Literal["inputAudio"] = "inputAudio"
    audio_url: str


DynamicToolCallOutputContentItem = TypeAliasType(
    "DynamicToolCallOutputContentItem",
    Annotated[
        InputTextDynamicToolCallOutputContentItem
        | InputImageDynamicToolCallOutputContentItem
        | InputAudioDynamicToolCallOutputContentItem,
        Field(discriminator="type"),
    ],
)


class SearchWebSearchAction(WireModel):
    type: Literal["search"] = "search"
    queries: tuple[str, ...] | None = None
    query: str | None = None


class OpenPageWebSearchAction(WireModel):
    type: Literal["openPage"] = "openPage"
    url: str | None = None


class FindInPageWebSearchAction(WireModel):
    type: Literal["findInPage"] = "findInPage"
    pattern: str | None = None
    url: str | None = None


class OtherWebSearchAction(WireModel):
    type: Literal["other"] = "other"


WebSearchAction = TypeAliasType(
    "WebSearchAction",
    Annotated[
        SearchWebSearchAction | OpenPageWebSearchAction | FindInPageWebSearchAction | OtherWebSearchAction,
        Field(discriminator="type"),
    ],
)
