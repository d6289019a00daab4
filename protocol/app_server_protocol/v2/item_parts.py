"""Parts of items: the user's input (text, pictures, sounds, skills, mentions), and parts of commands, file changes and
tool calls.
"""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.ids import PathText
from app_server_protocol.outgoing import EngineStruct, WireStruct, always_written
from app_server_protocol.v2.fields import LegacyAppPathString
from app_server_protocol.wire_fields import CleanText, Count


class Item(WireStruct):
    """Base of every item. The id is unique within the thread; times are null as long as they are not known."""

    type: str
    id: str
    started_at_ms: int | None = always_written(None)
    completed_at_ms: int | None = always_written(None)


class ReadCommandAction(WireStruct):
    type: Literal["read"] = "read"
    command: str
    name: str
    path: LegacyAppPathString


class ListFilesCommandAction(WireStruct):
    type: Literal["listFiles"] = "listFiles"
    command: str
    path: str | None = None


class SearchCommandAction(WireStruct):
    type: Literal["search"] = "search"
    command: str
    path: str | None = None
    query: str | None = None


class UnknownCommandAction(WireStruct):
    type: Literal["unknown"] = "unknown"
    command: str


CommandAction = TypeAliasType(
    "CommandAction",
    Annotated[
        ReadCommandAction | ListFilesCommandAction | SearchCommandAction | UnknownCommandAction,
        Field(discriminator="type"),
    ],
)


CommandExecutionSource = TypeAliasType(
    "CommandExecutionSource", Literal["agent", "userShell", "unifiedExecStartup", "unifiedExecInteraction"]
)


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


class AddPatchChangeKind(WireStruct):
    type: Literal["add"] = "add"


class DeletePatchChangeKind(WireStruct):
    type: Literal["delete"] = "delete"


class UpdatePatchChangeKind(EngineStruct):
    type: Literal["update"] = "update"
    move_path: str | None = None


PatchChangeKind = TypeAliasType(
    "PatchChangeKind",
    Annotated[
        AddPatchChangeKind | DeletePatchChangeKind | UpdatePatchChangeKind, Field(discriminator="type")
    ],
)


class FileUpdateChange(WireStruct):
    """One file of a patch: `diff` is the content where the file is added or deleted, else a unified diff."""

    path: str
    kind: PatchChangeKind
    diff: str


class McpToolCallError(WireStruct):
    message: str


class McpToolCallResult(WireStruct):
    """The result as the server gave it."""

    content: tuple[Json, ...]
    structured_content: Json = None
    meta: Json = msgspec.field(default=None, name="_meta")


class McpToolCallStatus(StrEnum):
    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"


class DynamicToolCallStatus(StrEnum):
    IN_PROGRESS = "inProgress"
    COMPLETED = "completed"
    FAILED = "failed"


class InputTextDynamicToolCallOutputContentItem(WireStruct):
    type: Literal["inputText"] = "inputText"
    text: str


class InputImageDynamicToolCallOutputContentItem(WireStruct):
    type: Literal["inputImage"] = "inputImage"
    image_url: str


class InputAudioDynamicToolCallOutputContentItem(WireStruct):
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


class SearchWebSearchAction(WireStruct):
    type: Literal["search"] = "search"
    queries: tuple[str, ...] | None = None
    query: str | None = None


class OpenPageWebSearchAction(WireStruct):
    type: Literal["openPage"] = "openPage"
    url: str | None = None


class FindInPageWebSearchAction(WireStruct):
    type: Literal["findInPage"] = "findInPage"
    pattern: str | None = None
    url: str | None = None


class OtherWebSearchAction(WireStruct):
    type: Literal["other"] = "other"


WebSearchAction = TypeAliasType(
    "WebSearchAction",
    Annotated[
        SearchWebSearchAction | OpenPageWebSearchAction | FindInPageWebSearchAction | OtherWebSearchAction,
        Field(discriminator="type"),
    ],
)


ImageDetail = TypeAliasType("ImageDetail", Literal["auto", "low", "high", "original"])


class ByteRange(WireModel):
    start: Count
    end: Count


class TextElement(WireModel):
    """A range of the text, in bytes of UTF-8, and what a client shows in its place."""

    byte_range: ByteRange
    placeholder: str | None = None


class TextUserInput(WireModel):
    """Words. `text_elements` are the ranges that a client shows in another way than as plain text."""

    type: Literal["text"] = "text"
    text: CleanText
    text_elements: tuple[TextElement, ...] = Field(default=(), alias="text_elements")


class ImageUserInput(WireModel):
    """A picture by URL, which may be a data URL."""

    type: Literal["image"] = "image"
    url: CleanText
    detail: ImageDetail | None = None


class LocalImageUserInput(WireModel):
    """A picture's file on the server's machine; read when the request to the model is built."""

    type: Literal["localImage"] = "localImage"
    path: PathText
    detail: ImageDetail | None = None


class AudioUserInput(WireModel):
    """A sound by URL, which may be a data URL."""

    type: Literal["audio"] = "audio"
    url: CleanText


class LocalAudioUserInput(WireModel):
    """A sound's file on the server's machine."""

    type: Literal["localAudio"] = "localAudio"
    path: PathText


class SkillUserInput(WireModel):
    """A skill that the model shall use, by the path of its description."""

    type: Literal["skill"] = "skill"
    name: CleanText
    path: PathText


class MentionUserInput(WireModel):
    """A file or another thing that the text speaks of."""

    type: Literal["mention"] = "mention"
    name: CleanText
    path: PathText


UserInput = TypeAliasType(
    "UserInput",
    Annotated[
        TextUserInput
        | ImageUserInput
        | LocalImageUserInput
        | AudioUserInput
        | LocalAudioUserInput
        | SkillUserInput
        | MentionUserInput,
        Field(discriminator="type"),
    ],
)
