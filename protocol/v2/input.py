"""What a user says: text, pictures, sounds, skills, mentions."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import WireModel
from protocol.fields import CleanText, Count
from protocol.paths import PathText


class ImageDetail(StrEnum):
    AUTO = "auto"
    LOW = "low"
    HIGH = "high"
    ORIGINAL = "original"


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
