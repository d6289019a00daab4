"""Items that are exchanged with the model and kept as history: messages, reasoning, calls and their outputs.

Item ids are read but never written back: the model's API refuses ids that it has not stored itself.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    Tag,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from app_server_protocol.base import EngineModel, omit_none, tag_of
from app_server_protocol.encoding import Json
from app_server_protocol.item_origin import Origin
from app_server_protocol.outgoing import EngineStruct, always_written


class InputText(EngineModel):
    type: Literal["input_text"] = "input_text"
    text: str


class InputImage(EngineModel):
    type: Literal["input_image"] = "input_image"
    image_url: str


class OutputText(EngineModel):
    type: Literal["output_text"] = "output_text"
    text: str


ContentItem = TypeAliasType(
    "ContentItem", Annotated[InputText | InputImage | OutputText, Field(discriminator="type")]
)
FunctionCallOutputContentItem = TypeAliasType(
    "FunctionCallOutputContentItem", Annotated[InputText | InputImage, Field(discriminator="type")]
)


def _unwritten_id(default: str | None = None) -> Any:
    """Return the model's own id of an item: kept in memory, never serialised."""
    return Field(default=default, exclude=True, json_schema_extra={"writeOnly": True})


COMMENTARY: Final = "commentary"
"""Phase of a message that accompanies the work and is not an answer."""


class MessageItem(EngineModel):
    """Something said by the user, the assistant or the developer."""

    type: Literal["message"] = "message"
    role: str
    content: tuple[ContentItem, ...]
    phase: SkipJsonSchema[str | None] = omit_none()
    """`commentary` or `final_answer`, where the model says which; it wants to read it again."""
    origin: Origin = omit_none()
    id: str | None = _unwritten_id()


class SummaryText(EngineModel):
    type: Literal["summary_text"] = "summary_text"
    text: str


class ReasoningText(EngineModel):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class PlainReasoningText(EngineModel):
    type: Literal["text"] = "text"
    text: str


ReasoningItemReasoningSummary = TypeAliasType("ReasoningItemReasoningSummary", SummaryText)
ReasoningItemContent = TypeAliasType(
    "ReasoningItemContent", Annotated[ReasoningText | PlainReasoningText, Field(discriminator="type")]
)


class ReasoningResponseItem(EngineModel):
    """Thoughts of the model: a summary, at times the raw text, and what it wants back encrypted."""

    type: Literal["reasoning"] = "reasoning"
    summary: tuple[ReasoningItemReasoningSummary, ...] = ()
    content: tuple[ReasoningItemContent, ...] | None = None
    encrypted_content: str | None = None
    origin: Origin = omit_none()
    id: str = _unwritten_id("")


class LocalShellStatus(StrEnum):
    COMPLETED = "completed"
    IN_PROGRESS = "in_progress"
    INCOMPLETE = "incomplete"


class LocalShellExec(EngineModel):
    """The command of a local shell call."""

    type: Literal["exec"] = "exec"
    command: tuple[str, ...]
    timeout_ms: int | None = None
    working_directory: str | None = None
    env: dict[str, str] | None = None
    user: str | None = None


LocalShellAction = TypeAliasType("LocalShellAction", LocalShellExec)


class LocalShellCall(EngineModel):
    type: Literal["local_shell_call"] = "local_shell_call"
    call_id: str | None = None
    status: LocalShellStatus
    action: LocalShellAction
    origin: Origin = omit_none()
    id: str | None = _unwritten_id()


class FunctionCall(EngineModel):
    """A tool call; `arguments` is the model's JSON text, not yet parsed."""

    type: Literal["function_call"] = "function_call"
    name: str
    arguments: str
    call_id: str
    origin: Origin = omit_none()
    id: str | None = _unwritten_id()


class FunctionCallOutputPayload(EngineModel):
    """Answer of a tool. On the wire it is a plain string, or the list of content items if there are some; `success`
    stays in memory.
    """

    content: str
    content_items: tuple[FunctionCallOutputContentItem, ...] | None = None
    success: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def from_wire(cls, raw: Json) -> Json:
        match raw:
            case str():
                return {"content": raw}
            case list() | tuple():
                texts = [item["text"] for item in raw if isinstance(item, Mapping) and "text" in item]
                return {"content": "\n".join(map(str, texts)), "content_items": raw}
            case _:
                return raw

    @model_serializer(mode="plain")
    def to_wire(self) -> Json:
        return self.content if self.content_items is None else list(self.content_items)

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        # The published type names the parts, which is more useful than "a string or a list".
        return handler.resolve_ref_schema(handler(core))


class FunctionCallOutput(EngineModel):
    type: Literal["function_call_output"] = "function_call_output"
    call_id: str
    output: FunctionCallOutputPayload
    origin: Origin = omit_none()


class CustomToolCall(EngineModel):
    """A call of a tool that takes free text, such as a patch."""

    type: Literal["custom_tool_call"] = "custom_tool_call"
    status: str | None = omit_none()
    call_id: str
    name: str
    input: str
    origin: Origin = omit_none()
    id: str | None = _unwritten_id()


class CustomToolCallOutput(EngineModel):
    type: Literal["custom_tool_call_output"] = "custom_tool_call_output"
    call_id: str
    output: str
    origin: Origin = omit_none()


class SearchAction(EngineModel):
    type: Literal["search"] = "search"
    query: str


class OtherAction(EngineModel):
    """Anything but a search for one query: several at once, opening a page, finding in it. `other` stands for
    every such type."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(default="other", json_schema_extra={"const": "other"})


def _web_search_tag(raw: object) -> str:
    """Return the kind of a search; one for several queries, or for none, keeps its fields as an `OtherAction`."""
    if not isinstance(raw, Mapping):
        return "search" if isinstance(raw, SearchAction) else "other"
    is_plain = tag_of(raw) == "search" and isinstance(raw.get("query"), str) and "queries" not in raw
    return "search" if is_plain else "other"


WebSearchAction = TypeAliasType(
    "WebSearchAction",
    Annotated[
        Annotated[SearchAction, Tag("search")] | Annotated[OtherAction, Tag("other")],
        Discriminator(_web_search_tag),
    ],
)


def searched_query(action: WebSearchAction) -> str | None:
    """Return the query of a search; None for an action without one."""
    if isinstance(action, SearchAction):
        return action.query
    query = (action.model_extra or {}).get("query")
    return query if action.type == "search" and isinstance(query, str) else None


class WebSearchCall(EngineModel):
    """A search that the model's provider ran by itself."""

    type: Literal["web_search_call"] = "web_search_call"
    status: str | None = omit_none()
    action: WebSearchAction
    id: str | None = _unwritten_id()


class SnapshotOfTurn(EngineStruct, omit_defaults=True):
    """Facts that an undo needs beside the commit. Snapshots of other programs lack them."""

    worktree: str
    """The root of the working tree."""
    folder: str
    """The folder of the turn, relative to it: nothing outside of that was looked at. Ends with a slash, or is empty."""
    after: str | None = None
    """The commit of what the turn left; absent until it has ended. What differs from it is the user's."""
    private_files: tuple[str, ...] = always_written(())
    """Files that only their owner could read."""
    nested_repositories: tuple[str, ...] = always_written(())
    """Repositories in the folder, whose files are not part of the snapshot."""


class GhostCommit(EngineStruct, omit_defaults=True):
    """A commit outside of every branch that holds the working tree, with what was untracked before it."""

    id: str
    parent: str | None = always_written(None)
    preexisting_untracked_files: tuple[str, ...] = always_written(())
    preexisting_untracked_dirs: tuple[str, ...] = always_written(())
    turn: SnapshotOfTurn | None = None


class GhostSnapshot(EngineModel):
    """State of the working tree that an undo leads back to. Kept in history, never sent to the model. Recorded ahead of
    a turn's first call, and again, with what the turn left, at its end.
    """

    type: Literal["ghost_snapshot"] = "ghost_snapshot"
    ghost_commit: GhostCommit


class OtherItem(EngineModel):
    """An item of a kind that is not known here; it keeps its type, for which `other` stands, and its
    fields."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(default="other", json_schema_extra={"const": "other"})


KnownItem = (
    MessageItem
    | ReasoningResponseItem
    | LocalShellCall
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | WebSearchCall
    | GhostSnapshot
)

CallItem = FunctionCall | CustomToolCall | LocalShellCall
OutputItem = FunctionCallOutput | CustomToolCallOutput


def call_key(call: CallItem) -> tuple[bool, str]:
    """Return the key that pairs a call with its output; custom tools have separate keys, because their outputs do."""
    if isinstance(call, LocalShellCall):
        return False, call.call_id or call.id or ""
    return isinstance(call, CustomToolCall), call.call_id


def output_key(output: OutputItem) -> tuple[bool, str]:
    """Return the key that pairs an output with its call."""
    return isinstance(output, CustomToolCallOutput), output.call_id


def output_of(call: CallItem, payload: FunctionCallOutputPayload) -> OutputItem:
    """Return the output item that answers a call."""
    custom, call_id = call_key(call)
    if custom:
        return CustomToolCallOutput(call_id=call_id, output=payload.content)
    return FunctionCallOutput(call_id=call_id, output=payload)


def aborted_output(call: CallItem) -> OutputItem:
    """Return the item that replaces the missing output of a call."""
    return output_of(call, FunctionCallOutputPayload(content="aborted"))


_ITEMS: Final = (*get_args(KnownItem), OtherItem)


def is_response_item(value: object) -> bool:
    return isinstance(value, _ITEMS)


_KINDS: Final[Mapping[str, type[KnownItem]]] = {
    get_args(kind.__annotations__["type"])[0]: kind for kind in get_args(KnownItem)
}


def _item_tag(raw: Json) -> str:
    kind = tag_of(raw)
    return "other" if kind is None or kind not in _KINDS else kind


ResponseItem = TypeAliasType(
    "ResponseItem",
    Annotated[
        Annotated[MessageItem, Tag("message")]
        | Annotated[ReasoningResponseItem, Tag("reasoning")]
        | Annotated[LocalShellCall, Tag("local_shell_call")]
        | Annotated[FunctionCall, Tag("function_call")]
        | Annotated[FunctionCallOutput, Tag("function_call_output")]
        | Annotated[CustomToolCall, Tag("custom_tool_call")]
        | Annotated[CustomToolCallOutput, Tag("custom_tool_call_output")]
        | Annotated[WebSearchCall, Tag("web_search_call")]
        | Annotated[GhostSnapshot, Tag("ghost_snapshot")]
        | Annotated[OtherItem, Tag("other")],
        Discriminator(_item_tag),
    ],
)


class _Tagged(EngineModel):
    type: str


def checked_response_item(raw: Json) -> ResponseItem:
    """Return the item that a client gave. An unknown type is returned as an `OtherItem`. Raises ValidationError for a
    damaged item.
    """
    model = _KINDS.get(_Tagged.model_validate(raw).type)
    return parse_response_item(raw) if model is None else model.model_validate(raw)


def parse_response_item(raw: Json) -> ResponseItem:
    """Return the item that `raw` describes. An unknown or damaged item is returned as an `OtherItem`; never raises."""
    if not isinstance(raw, Mapping):
        return OtherItem()
    kind = tag_of(raw)
    model = None if kind is None else _KINDS.get(kind)
    if model is not None:
        try:
            return model.model_validate(raw)
        except ValidationError:
            pass
    extra = {str(key): value for key, value in raw.items() if key != "type"}
    try:
        return OtherItem.model_validate({**extra, "type": "other" if kind is None else kind})
    except ValidationError:  # a key that is not text
        return OtherItem()
