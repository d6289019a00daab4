"""New sessions, with the MCP servers that a client names for them, their modes and options; prompts, their end, and the
content blocks of prompts and messages, which are those of the Model Context Protocol. The updates of `session/update`
are written as plain data, except tool calls.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel, omit_none, tag_of
from app_server_protocol.encoding import Json
from app_server_protocol.ids import PathText
from app_server_protocol.method_table import ClientNotification, ClientRequest
from app_server_protocol.outgoing import WireStruct, always_written
from app_server_protocol.wire_fields import CleanText


class NameAndValue(WireModel):
    """An environment variable or an HTTP header."""

    name: str
    value: str


class HttpMcpServer(WireModel):
    type: Literal["http"]
    name: str
    url: str
    headers: tuple[NameAndValue, ...] = ()


class SseMcpServer(WireModel):
    """An older transport, which is not supported."""

    type: Literal["sse"]
    name: str


class StdioMcpServer(WireModel):
    """The only kind without a type."""

    name: str
    command: PathText
    args: tuple[str, ...] = ()
    env: tuple[NameAndValue, ...] = ()


def _server_tag(raw: Json) -> str:
    kind = tag_of(raw)
    return kind if kind in ("http", "sse") else "stdio"


SessionMcpServer = TypeAliasType(
    "SessionMcpServer",
    Annotated[
        Annotated[HttpMcpServer, Tag("http")]
        | Annotated[SseMcpServer, Tag("sse")]
        | Annotated[StdioMcpServer, Tag("stdio")],
        Discriminator(_server_tag),
    ],
)


class SessionMode(WireStruct, omit_defaults=True):
    id: str
    name: str
    description: str | None = None


class SessionModeState(WireStruct):
    current_mode_id: str
    available_modes: tuple[SessionMode, ...]


class ConfigOptionValue(WireStruct, omit_defaults=True):
    value: str
    name: str
    description: str | None = None


class SessionConfigOption(WireStruct, omit_defaults=True):
    """One choice out of several; `category` is where clients show it."""

    type: Literal["select"] = always_written("select")
    id: str
    name: str
    description: str | None = None
    category: str | None = None
    current_value: str
    options: tuple[ConfigOptionValue, ...]


class TextBlock(WireModel):
    type: Literal["text"] = "text"
    text: CleanText


class ImageBlock(WireModel):
    """Base64, or nothing where `uri` names a file."""

    type: Literal["image"] = "image"
    data: str = ""
    mime_type: str
    uri: str | None = omit_none()


class AudioBlock(WireModel):
    type: Literal["audio"] = "audio"
    data: str
    mime_type: str


class ResourceLinkBlock(WireModel):
    """Names something that is not sent along."""

    type: Literal["resource_link"] = "resource_link"
    name: CleanText
    uri: CleanText
    title: CleanText | None = omit_none()
    description: CleanText | None = omit_none()
    mime_type: str | None = omit_none()
    size: int | None = omit_none()


class ResourceContents(WireModel):
    """Something with its content: `text`, or `blob` in base64."""

    uri: CleanText
    mime_type: str | None = omit_none()
    text: CleanText | None = omit_none()
    blob: str | None = omit_none()


class ResourceBlock(WireModel):
    type: Literal["resource"] = "resource"
    resource: ResourceContents


class OtherBlock(WireModel):
    """Block of a kind that is not known here."""

    type: str = ""


_KINDS = frozenset({"text", "image", "audio", "resource_link", "resource"})


def _tag(raw: Json) -> str:
    kind = tag_of(raw)
    return kind if kind in _KINDS else "other"


ContentBlock = TypeAliasType(
    "ContentBlock",
    Annotated[
        Annotated[TextBlock, Tag("text")]
        | Annotated[ImageBlock, Tag("image")]
        | Annotated[AudioBlock, Tag("audio")]
        | Annotated[ResourceLinkBlock, Tag("resource_link")]
        | Annotated[ResourceBlock, Tag("resource")]
        | Annotated[OtherBlock, Tag("other")],
        Discriminator(_tag),
    ],
)


MOST_BLOCKS = 1000

Blocks = Annotated[tuple[ContentBlock, ...], Field(max_length=MOST_BLOCKS)]


class SessionSystemPrompt(WireModel):
    """Instructions of the client for the model, beside those of the server or in place of them: `append` or
    `override`.
    """

    mode: str
    content: Blocks


class NewSessionRequest(WireModel):
    cwd: PathText
    mcp_servers: tuple[SessionMcpServer, ...] = ()
    additional_directories: tuple[PathText, ...] | None = None
    system_prompt: SessionSystemPrompt | None = None


class NewSessionResponse(WireStruct):
    session_id: str
    modes: SessionModeState
    config_options: tuple[SessionConfigOption, ...]


NEW_SESSION: Final = ClientRequest(
    "session/new", NewSessionRequest, NewSessionResponse, "Opens a session in a folder."
)


class StopReason(StrEnum):
    END_TURN = "end_turn"
    MAX_TOKENS = "max_tokens"
    MAX_TURN_REQUESTS = "max_turn_requests"
    REFUSAL = "refusal"
    CANCELLED = "cancelled"


class PromptRequest(WireModel):
    session_id: str
    prompt: Blocks


class PromptUsage(WireStruct):
    """Tokens of all requests of a turn. The input is without what a cache held; thoughts are part of the output."""

    total_tokens: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    thought_tokens: int = 0
    cached_read_tokens: int = 0
    cached_write_tokens: int = 0


class PromptResponse(WireStruct, omit_defaults=True):
    stop_reason: StopReason
    usage: PromptUsage | None = None
    """None if no request told its tokens, or if a later prompt joined the turn, whose answer has them."""


class SteeringOutcome(StrEnum):
    INJECTED = "injected"
    """The words joined the turn that runs."""
    PROMPT_REQUIRED = "promptRequired"
    """Nothing runs: a prompt is needed."""


class SteeringResponse(WireStruct):
    outcome: SteeringOutcome


PROMPT: Final = ClientRequest(
    "session/prompt",
    PromptRequest,
    PromptResponse,
    "Says something; answered when the turn is over.",
)
STEERING: Final = ClientRequest(
    "_session/steering",
    PromptRequest,
    SteeringResponse,
    "Says something to the turn that runs; answered at once. An extension that hosts know.",
    extension=True,
)

CANCEL: Final = ClientNotification("session/cancel", "Ends the turn that runs.")
CANCEL_REQUEST: Final = ClientNotification("$/cancel_request", "Ends a request, in both directions.")
