"""What the server asks the user for others: an MCP server, the model; and the tools that a client brings."""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypeAliasType

from protocol.base import WireModel
from protocol.fields import Flag
from protocol.structs import Json, WireStruct
from protocol.table import ServerRequest
from protocol.v2.fields import without
from protocol.v2.item_parts import DynamicToolCallOutputContentItem
from protocol.v2.unions import WireUnion


class _Elicitation(WireModel):
    """Base of every question of an MCP server; the turn is null where it belongs to none."""

    model_config = ConfigDict(json_schema_extra=without("threadId", "turnId", "serverName"))
    thread_id: str
    turn_id: str | None = None
    server_name: str


class FormElicitation(_Elicitation):
    """Asks for values; `requestedSchema` is the form, as the server wrote it."""

    mode: Literal["form"] = "form"
    message: str
    requested_schema: Json
    meta: Json = Field(default=None, alias="_meta")


class UrlElicitation(_Elicitation):
    """Asks the user to visit a page."""

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str
    meta: Json = Field(default=None, alias="_meta")


McpServerElicitation = Annotated[FormElicitation | UrlElicitation, Field(discriminator="mode")]


def _with_common_fields(schema: dict[str, Json]) -> None:
    text: Json = {"type": "string"}
    schema["type"] = "object"
    schema["properties"] = {
        "threadId": text,
        "turnId": {"anyOf": [text, {"type": "null"}]},
        "serverName": text,
    }
    schema["required"] = ["threadId", "serverName"]


class McpServerElicitationRequestParams(WireUnion[McpServerElicitation]):
    """A question of an MCP server, or whether one of its tools may run (`_meta.codex_approval_kind`)."""

    model_config = ConfigDict(json_schema_extra=_with_common_fields)


McpServerElicitationAction = TypeAliasType(
    "McpServerElicitationAction", Literal["accept", "decline", "cancel"]
)


class McpServerElicitationRequestResponse(WireModel):
    """Only `accept` is a yes."""

    action: McpServerElicitationAction
    content: Json = None
    meta: Json = Field(default=None, alias="_meta")


class ToolRequestUserInputOption(WireStruct):
    label: str
    description: str


class ToolRequestUserInputQuestion(WireStruct):
    id: str
    header: str
    question: str
    is_other: bool = False
    is_secret: bool = False
    options: tuple[ToolRequestUserInputOption, ...] | None = None


class ToolRequestUserInputAnswer(WireModel):
    answers: tuple[str, ...]


class ToolRequestUserInputParams(WireStruct):
    """Questions of the model to the user."""

    thread_id: str
    turn_id: str
    item_id: str
    questions: tuple[ToolRequestUserInputQuestion, ...]
    is_blocking: bool
    auto_resolution_ms: int | None = None


class ToolRequestUserInputResponse(WireModel):
    """The answers, by the ids of the questions."""

    answers: dict[str, ToolRequestUserInputAnswer]


class DynamicToolCallParams(WireStruct):
    """The model calls a tool that the client brought."""

    thread_id: str
    turn_id: str
    call_id: str
    namespace: str | None = None
    tool: str
    arguments: Json


class DynamicToolCallResponse(WireModel):
    """Outcome of the tool, for the model."""

    content_items: tuple[DynamicToolCallOutputContentItem, ...]
    success: Flag


ITEM_TOOL_REQUEST_USER_INPUT: Final = ServerRequest(
    "item/tool/requestUserInput",
    ToolRequestUserInputParams,
    ToolRequestUserInputResponse,
    "The model asks the user.",
)
ITEM_TOOL_CALL: Final = ServerRequest(
    "item/tool/call",
    DynamicToolCallParams,
    DynamicToolCallResponse,
    "The model calls a tool that the client brought.",
)
MCP_SERVER_ELICITATION_REQUEST: Final = ServerRequest(
    "mcpServer/elicitation/request",
    McpServerElicitationRequestParams,
    McpServerElicitationRequestResponse,
    "An MCP server asks the user, or one of its tools wants to run.",
)
