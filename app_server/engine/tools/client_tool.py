"""Tools that the client declared: the model calls them and the client runs them.

This module bounds the answers of the client. It reads or fetches no address in them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from app_server.engine.mcp import input_schemas
from app_server.engine.model.prompt import FunctionTool, ToolSpec
from app_server.engine.support import images
from app_server.engine.support.engine_errors import ConversationError
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools.tool_base import Tool, ToolCall, ToolContext, ToolOutput, text_output
from app_server.engine.tools.tool_schemas import parse_json
from app_server_protocol.encoding import Json
from app_server_protocol.engine.items import DynamicToolCall, ItemStatus
from app_server_protocol.engine.questions import ClientTool, ToolCallAnswer, ToolCallQuestion
from app_server_protocol.responses import FunctionCallOutputPayload, InputImage, InputText
from app_server_protocol.values import replace

NO_ANSWER = "the client did not run the tool"
MOST_TOOLS = 128
MAX_NAME = 128
MAX_DESCRIPTIONS = 128 * 1024
MAX_TEXT = 256 * 1024
"""Maximum size of the texts of one answer, in characters."""
MAX_IMAGES = 20 * 1024 * 1024
"""Maximum size of the images of one answer, in characters."""
MOST_PARTS = 256
RESERVED_PREFIX = "mcp__"
_NAME = r"[a-zA-Z0-9_-]+"
_ADDRESS = r"(?i)data:image/[\w.+-]+;base64,|https?://"


class DynamicTool:
    """One tool of the client, as the model calls it."""

    parallel = False

    def __init__(self, tool: ClientTool, name: str | None = None) -> None:
        self.name = name or tool.offered_name
        self._tool = tool

    @property
    def bare_name(self) -> str:
        """The name without its namespace."""
        return self._tool.name

    def item(self, call: ToolCall) -> DynamicToolCall:
        """Return the item of a call as it begins."""
        arguments = parse_json(call.arguments)
        return DynamicToolCall(
            id=call.call_id,
            tool=self._tool.name,
            arguments={} if arguments is None else arguments,
            namespace=self._tool.namespace,
        )

    def spec(self) -> ToolSpec:
        return FunctionTool(
            name=self.name, description=self._tool.description, parameters=self._tool.input_schema
        )

    async def invoke(self, call: ToolCall, turn: ToolContext) -> ToolOutput:
        item = self.item(call)
        question = ToolCallQuestion(
            call_id=call.call_id, tool=item.tool, namespace=item.namespace, arguments=item.arguments
        )
        turn.items.start(item)
        began = turn.sources.clock()
        async with turn.changes.command():
            answer = await turn.approvals.questions.ask(call.call_id, lambda: turn.emit(question))
        if not isinstance(answer, ToolCallAnswer):
            answer = ToolCallAnswer(False, (InputText(text=NO_ANSWER),))
        parts = await run_in_thread(bounded, answer.content)
        turn.items.complete(
            replace(
                item,
                status=ItemStatus.COMPLETED if answer.success else ItemStatus.FAILED,
                content=tuple(map(_shown, parts)),
                success=answer.success,
                seconds=turn.sources.clock() - began,
            )
        )
        return _output(parts, success=answer.success)


def dynamic_tools(tools: Iterable[ClientTool]) -> list[Tool]:
    return [DynamicTool(tool) for tool in tools]


def without_namespaces(tools: Sequence[ClientTool], taken: Iterable[str]) -> list[Tool]:
    """Offer namespaced tools under their bare names too, which some models use, unless these are taken."""
    bare = Counter(tool.name for tool in tools if tool.namespace is not None)
    names = {name for name, count in bare.items() if count == 1} - {*taken}
    return [
        DynamicTool(tool, tool.name) for tool in tools if tool.namespace is not None and tool.name in names
    ]


def checked_tools(tools: Sequence[ClientTool], reserved: Iterable[str]) -> tuple[ClientTool, ...]:
    """Return the tools with schemas that models accept; `reserved` are other names. Raises ConversationError."""
    if len(tools) > MOST_TOOLS:
        raise ConversationError(f"there are more than {MOST_TOOLS} dynamic tools")
    if sum(len(tool.description) for tool in tools) > MAX_DESCRIPTIONS:
        raise ConversationError(
            f"the descriptions of dynamic tools have more than {MAX_DESCRIPTIONS} characters"
        )
    for tool in tools:
        _check_name(tool.name, "dynamic tool name")
        if tool.namespace is not None:
            _check_name(tool.namespace, "dynamic tool namespace")
        if len(tool.offered_name) > MAX_NAME:
            raise ConversationError(
                f"dynamic tool name must be at most {MAX_NAME} characters: {tool.offered_name[:MAX_NAME]}"
            )
        if tool.offered_name in reserved or tool.offered_name.startswith(RESERVED_PREFIX):
            raise ConversationError(f"dynamic tool name is reserved: {tool.offered_name}")
    counted = Counter(tool.offered_name for tool in tools)
    for name, count in counted.items():
        if count > 1:
            raise ConversationError(f"duplicate dynamic tool name: {name}")
    return tuple(replace(tool, input_schema=_schema(tool)) for tool in tools)


def _check_name(name: str, what: str) -> None:
    if not name:
        raise ConversationError(f"{what} must not be empty")
    if not re.fullmatch(_NAME, name):
        raise ConversationError(f"{what} must match ^[a-zA-Z0-9_-]+$: {name[:MAX_NAME]}")


def _schema(tool: ClientTool) -> dict[str, Json]:
    try:
        return input_schemas.normalize_schema(tool.input_schema)
    except input_schemas.InvalidSchema as error:
        raise ConversationError(
            f"dynamic tool input schema is not supported for {tool.offered_name}: {error}"
        ) from error


def bounded(parts: Sequence[InputText | InputImage]) -> tuple[InputText | InputImage, ...]:
    """Return the parts, with a note in place of each part that is too long or is not an image that a model accepts.
    Slow for large images: call it in a thread.
    """
    return tuple(_bounded(parts))


def _bounded(parts: Sequence[InputText | InputImage]) -> Iterator[InputText | InputImage]:
    text_left, image_left = MAX_TEXT, MAX_IMAGES
    for part in parts[:MOST_PARTS]:
        match part:
            case InputText(text=text):
                if len(text) > text_left:
                    text = f"{text[:text_left]}\n[cut here: the text had {len(text)} characters]"
                text_left = max(text_left - len(part.text), 0)
                yield InputText(text=text)
            case InputImage(image_url=url):
                if not re.match(_ADDRESS, url):
                    yield InputText(text="[an image was left out: its address is no data URL of an image]")
                elif len(url) > image_left:
                    yield InputText(text=f"[an image was left out: it has {len(url)} characters]")
                else:
                    image_left -= len(url)
                    yield _checked(url)
    if len(parts) > MOST_PARTS:
        yield InputText(text=f"[{len(parts) - MOST_PARTS} more parts were left out]")


def _checked(url: str) -> InputText | InputImage:
    try:
        return InputImage(image_url=images.checked_url(url))
    except images.ImageUnreadable as error:
        return InputText(text=f"[an image was left out: {error}]")


def _shown(part: InputText | InputImage) -> Json:
    if isinstance(part, InputImage):
        return {"type": "inputImage", "imageUrl": part.image_url}
    return {"type": "inputText", "text": part.text}


def _output(parts: tuple[InputText | InputImage, ...], *, success: bool) -> ToolOutput:
    """Return the output as plain text if all parts are text: not every provider understands parts."""
    texts = [part.text for part in parts if isinstance(part, InputText)]
    if len(texts) == len(parts):
        return text_output("\n".join(texts), success=success)
    payload = FunctionCallOutputPayload(content="\n".join(texts), content_items=parts, success=success)
    return ToolOutput(payload)
