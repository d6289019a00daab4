"""Answers of servers: results of tool calls, resources and templates, parsed leniently, truncated, and converted for
the model. Pure.

A note replaces an invalid image, because an API would reject every later request of the conversation for it. The model
receives the message of an `McpFailure` raised here.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final, Generic, TypeVar

from msgspec import Struct
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from app_server.engine.mcp.mcp_errors import MAX_IMAGE_CHARS, MAX_RESULT_BLOCKS, MAX_RESULT_CHARS
from app_server.engine.support.images import ImageUnreadable, checked_url
from app_server_protocol import mcp
from app_server_protocol.base import Model
from app_server_protocol.encoding import Json
from app_server_protocol.responses import FunctionCallOutputPayload, InputImage, InputText

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class McpCallOutcome(Struct, frozen=True):
    """The outcome of a call: a result, which may report that the tool failed, or an error text."""

    result: mcp.CallToolResult | None
    error: str | None
    seconds: float

    @property
    def is_error(self) -> bool:
        return self.result is None or self.result.is_error is True

    def payload(self) -> FunctionCallOutputPayload:
        """Return the output for the model."""
        if self.result is None:
            return FunctionCallOutputPayload(content=self.error or "", success=False)
        return payload_of(self.result)

    def event_result(self) -> mcp.McpResult:
        """Return the result for clients."""
        if self.result is None:
            return mcp.ErrResult(err=self.error or "")
        return mcp.OkResult(ok=self.result)


def parse_result(raw: Json) -> mcp.CallToolResult | None:
    """Return a server's result, truncated; None if it is invalid. Slow for large images: call it in a thread."""
    if not isinstance(raw, dict):
        return None
    blocks, structured = raw.get("content"), raw.get("structuredContent")
    if blocks is None and structured is not None:
        blocks = []
    if not isinstance(blocks, list):
        return None
    if structured is not None and len(to_json(structured)) > MAX_RESULT_CHARS:
        blocks, structured = blocks or [_text(to_json(structured).decode())], None
    flag = raw.get("isError")
    return mcp.CallToolResult(
        content=tuple(_cut([_block(one) for one in blocks[:MAX_RESULT_BLOCKS]], len(blocks))),
        is_error=flag if isinstance(flag, bool) else None,
        structured_content=structured,
    )


def payload_of(result: mcp.CallToolResult) -> FunctionCallOutputPayload:
    """Return structured content if present, else the blocks as JSON; images stay images."""
    success = result.is_error is not True
    if result.structured_content is not None:
        return FunctionCallOutputPayload(content=_json(result.structured_content), success=success)
    content = "[" + ",".join(_json(block) for block in result.content) + "]"
    items = tuple(_item(block) for block in result.content)
    if not any(isinstance(item, InputImage) for item in items):
        return FunctionCallOutputPayload(content=content, success=success)
    return FunctionCallOutputPayload(content=content, content_items=items, success=success)


def text_result(text: str, *, is_error: bool | None = None) -> mcp.CallToolResult:
    """Return a result with one text, for the tools that list and read resources."""
    return mcp.CallToolResult(content=(_text(text),), is_error=is_error)


def known_fields(model: type[Model], raw: Json) -> Json:
    """Return `raw` without unknown fields: icons and similar fields only cost context."""
    if not isinstance(raw, dict):
        return raw
    names = {info.alias or name for name, info in model.model_fields.items()}
    return {key: value for key, value in raw.items() if key in names}


@cache
def _blocks() -> TypeAdapter[mcp.ContentBlock]:
    """Return the reader of blocks, built on the first result, because building it takes longer than all else in this
    module.
    """
    return TypeAdapter(mcp.ContentBlock)


def _block(raw: Json) -> mcp.ContentBlock:
    try:
        value = {key: part for key, part in raw.items() if key != "_meta"} if isinstance(raw, dict) else raw
        return _blocks().validate_python(value)
    except (ValidationError, AttributeError, TypeError):
        return _text(_json(raw))


def _cut(blocks: list[mcp.ContentBlock], count: int) -> list[mcp.ContentBlock]:
    """Return the blocks with their text and images truncated."""
    kept: list[mcp.ContentBlock] = []
    text_left, image_left = MAX_RESULT_CHARS, MAX_IMAGE_CHARS
    for block in blocks:
        match block:
            case mcp.TextContent():
                if len(block.text) > text_left:
                    note = f"{block.text[:text_left]}\n[cut here: the text had {len(block.text)} characters]"
                    kept.append(_text(note))
                    text_left = 0
                    continue
                text_left -= len(block.text)
            case mcp.ImageContent():
                if (fault := _image_fault(block, image_left)) is not None:
                    kept.append(_text(f"[an image was left out: {fault}]"))
                    continue
                image_left -= len(block.data)
            case _:
                size = len(_json(block))
                if size > text_left:
                    kept.append(_text(f"[content of type {block.type[:40]} was left out: {size} characters]"))
                    continue
                text_left -= size
        kept.append(block)
    if count > len(blocks):
        kept.append(_text(f"[{count - len(blocks)} more blocks were left out]"))
    return kept


def _image_fault(image: mcp.ImageContent, room: int) -> str | None:
    """Return the reason why this image is not valid for a model; None if it is valid."""
    kind, data = _media(image)
    if kind not in IMAGE_TYPES:
        return f"its type is {kind[:40]!r}"
    if len(data) > room:
        return f"it has {len(data)} characters"
    try:
        checked_url(f"data:{kind};base64,{data}")
    except ImageUnreadable as error:
        return str(error)
    return None


def _media(image: mcp.ImageContent) -> tuple[str, str]:
    """Return type and base64 of an image. The server may have sent a data URL."""
    head, comma, data = image.data.partition(",") if image.data.startswith("data:") else ("", "", "")
    if comma and head.endswith(";base64"):
        return head.removeprefix("data:").removesuffix(";base64").lower(), data
    return image.mime_type.lower(), image.data


def _item(block: mcp.ContentBlock) -> InputText | InputImage:
    match block:
        case mcp.TextContent():
            return InputText(text=block.text)
        case mcp.ImageContent():
            kind, data = _media(block)
            return InputImage(image_url=f"data:{kind};base64,{data}")
        case _:
            return InputText(text=_json(block))


def _text(text: str) -> mcp.TextContent:
    return mcp.TextContent(text=text)


def _json(value: Json) -> str:
    if isinstance(value, Model):
        return value.to_json().decode()
    try:
        return to_json(value).decode()
    except ValueError:
        return ascii(value)


ALL_SERVERS: Final = "codex"
"""Name of the server in events if the model named none."""

READ_RESOURCE: Final = "resources/read"

Listed = TypeVar("Listed", bound=mcp.McpModel, covariant=True)
Contents = mcp.TextResourceContents | mcp.BlobResourceContents


class ResourceKind(Struct, Generic[Listed], frozen=True):
    """One of the two kinds of lists that a server has."""

    method: str
    key: str
    """Key of the list, both in the server's result and in the output for the model."""
    model: type[Listed]

    def parse(self, raw: Iterable[Json]) -> tuple[Listed, ...]:
        """Return the valid entries; drop the others."""
        found: list[Listed] = []
        for one in raw:
            try:
                found.append(self.model.model_validate(known_fields(self.model, one)))
            except ValidationError:
                continue
        return tuple(found)


RESOURCES: Final = ResourceKind("resources/list", "resources", mcp.Resource)
TEMPLATES: Final = ResourceKind("resources/templates/list", "resourceTemplates", mcp.ResourceTemplate)


def list_output(
    kind: ResourceKind[Listed],
    server: str | None,
    found: Iterable[tuple[str, Listed]],
    next_cursor: str | None = None,
) -> str:
    """Return a list for the model. `found` has the entries, each with its server. `server` is None if the list is of
    all servers.
    """
    listed = [{"server": name, **one.to_value()} for name, one in found]
    output: dict[str, Json] = {kind.key: listed} if server is None else {"server": server, kind.key: listed}
    if next_cursor is not None:
        output["nextCursor"] = next_cursor
    return _json(output)


def read_output(server: str, uri: str, contents: Iterable[Contents]) -> str:
    """Return the contents of a resource for the model."""
    return _json({"server": server, "uri": uri, "contents": [one.to_value() for one in contents]})


def parse_contents(raw: Iterable[Json]) -> tuple[Contents, ...]:
    """Return the valid contents of a resource, truncated."""
    found: list[Contents] = []
    room = MAX_RESULT_CHARS
    for one in raw:
        if not isinstance(one, dict):
            continue
        try:
            if isinstance(one.get("text"), str):
                text = one["text"]
                if len(text) > room:
                    one = one | {"text": f"{text[:room]}\n[cut here: the text had {len(text)} characters]"}
                found.append(
                    mcp.TextResourceContents.model_validate(known_fields(mcp.TextResourceContents, one))
                )
                room -= min(room, len(text))
            elif isinstance(one.get("blob"), str):
                size = len(one["blob"])
                if size > room:
                    note = f"[left out: {size} characters of base64]"
                    found.append(mcp.TextResourceContents(uri=str(one.get("uri")), text=note))
                    continue
                found.append(
                    mcp.BlobResourceContents.model_validate(known_fields(mcp.BlobResourceContents, one))
                )
                room -= size
        except ValidationError:
            continue
    return tuple(found)
