"""Shapes of the Model Context Protocol that pass through: tools, resources, content, results of calls.

Unknown fields are kept, because these values are passed on from a server to the model and to the client.
"""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag
from pydantic.alias_generators import to_camel
from typing_extensions import TypeAliasType

from app_server_protocol.base import EngineModel, Model, omit_none, requires, tag_of
from app_server_protocol.encoding import Json


class McpModel(Model):
    """camelCase as that protocol spells it, and open for what its servers add."""

    model_config = ConfigDict(
        extra="allow", alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )


class TypedMcpModel(McpModel):
    """With a `type` that is always written; what it may be is for that protocol to say."""

    model_config = ConfigDict(json_schema_extra=requires("type"))


Role = TypeAliasType("Role", Literal["assistant", "user"])


class Annotations(McpModel):
    audience: tuple[Role, ...] | None = omit_none()
    last_modified: str | None = omit_none()
    priority: float | None = omit_none()


class TextContent(TypedMcpModel):
    annotations: Annotations | None = omit_none()
    text: str
    type: str = "text"


class ImageContent(TypedMcpModel):
    """An image, base64."""

    annotations: Annotations | None = omit_none()
    data: str
    mime_type: str
    type: str = "image"


class AudioContent(TypedMcpModel):
    """Sound, base64."""

    annotations: Annotations | None = omit_none()
    data: str
    mime_type: str
    type: str = "audio"


class ResourceLink(TypedMcpModel):
    annotations: Annotations | None = omit_none()
    description: str | None = omit_none()
    mime_type: str | None = omit_none()
    name: str
    size: int | None = omit_none()
    title: str | None = omit_none()
    type: str = "resource_link"
    uri: str


class TextResourceContents(McpModel):
    mime_type: str | None = omit_none()
    text: str
    uri: str


class BlobResourceContents(McpModel):
    blob: str
    mime_type: str | None = omit_none()
    uri: str


EmbeddedResourceResource = TypeAliasType(
    "EmbeddedResourceResource", TextResourceContents | BlobResourceContents
)


class EmbeddedResource(TypedMcpModel):
    annotations: Annotations | None = omit_none()
    resource: EmbeddedResourceResource
    type: str = "resource"


class OtherContent(TypedMcpModel):
    """Content of a kind that is not known here, kept as it came."""

    type: str = "other"


_CONTENT: Final = frozenset({"text", "image", "audio", "resource_link", "resource"})


def _content_tag(raw: Json) -> str:
    kind = tag_of(raw)
    return kind if kind in _CONTENT else "other"


ContentBlock = TypeAliasType(
    "ContentBlock",
    Annotated[
        Annotated[TextContent, Tag("text")]
        | Annotated[ImageContent, Tag("image")]
        | Annotated[AudioContent, Tag("audio")]
        | Annotated[ResourceLink, Tag("resource_link")]
        | Annotated[EmbeddedResource, Tag("resource")]
        | Annotated[OtherContent, Tag("other")],
        Discriminator(_content_tag),
    ],
)


class CallToolResult(McpModel):
    content: tuple[ContentBlock, ...]
    is_error: bool | None = omit_none()
    structured_content: Json = omit_none()


class ToolAnnotations(McpModel):
    destructive_hint: bool | None = omit_none()
    idempotent_hint: bool | None = omit_none()
    open_world_hint: bool | None = omit_none()
    read_only_hint: bool | None = omit_none()
    title: str | None = omit_none()


class ToolInputSchema(TypedMcpModel):
    properties: Json = omit_none()
    required: tuple[str, ...] | None = omit_none()
    type: str = "object"


class ToolOutputSchema(TypedMcpModel):
    properties: Json = omit_none()
    required: tuple[str, ...] | None = omit_none()
    type: str = "object"


class McpToolDefinition(McpModel):
    annotations: ToolAnnotations | None = omit_none()
    description: str | None = omit_none()
    input_schema: ToolInputSchema
    name: str
    output_schema: ToolOutputSchema | None = omit_none()
    title: str | None = omit_none()


class Resource(McpModel):
    annotations: Annotations | None = omit_none()
    description: str | None = omit_none()
    mime_type: str | None = omit_none()
    name: str
    size: int | None = omit_none()
    title: str | None = omit_none()
    uri: str


class ResourceTemplate(McpModel):
    annotations: Annotations | None = omit_none()
    description: str | None = omit_none()
    mime_type: str | None = omit_none()
    name: str
    title: str | None = omit_none()
    uri_template: str


class McpAuthStatus(StrEnum):
    """Login at a server: whether it wants one, and whether there is one."""

    UNSUPPORTED = "unsupported"
    NOT_LOGGED_IN = "not_logged_in"
    BEARER_TOKEN = "bearer_token"
    O_AUTH = "o_auth"


class McpInvocation(EngineModel):
    """Which tool of which server is called with what."""

    server: str
    tool: str
    arguments: Json = None


class OkResult(EngineModel):
    """The server answered; the answer itself may say that the tool failed (`isError`)."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)
    ok: CallToolResult = Field(alias="Ok")


class ErrResult(EngineModel):
    """The call did not come through; the text says why."""

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)
    err: str = Field(alias="Err")


McpResult = TypeAliasType("McpResult", OkResult | ErrResult)
