"""Writes the bodies of requests to the Responses API. Pure.

The cost of a body is linear in the new items.
"""

from __future__ import annotations

from app_server.engine.model import answers
from app_server.engine.model.call_ids import ForeignIds
from app_server.engine.model.item_cache import SCHEMA_NAME, InputBytes, ItemBytes
from app_server.engine.model.prompt import (
    TEXT_ARGUMENT,
    FreeformTool,
    FunctionTool,
    LocalShellTool,
    Prompt,
    RequestSettings,
    ToolSpec,
    WebSearchTool,
)
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.schema_forms import in_form
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.item_origin import without_origin
from app_server_protocol.policy import ReasoningSummary
from app_server_protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    InputImage,
    LocalShellCall,
    MessageItem,
    ReasoningResponseItem,
    ResponseItem,
)
from app_server_protocol.values import replace


class ResponsesWriter:
    """Writes the requests of one conversation. The part that a request shares with the last one is not
    written again.
    """

    def __init__(self) -> None:
        self._around, self._input = ItemBytes(), InputBytes()
        self._ids = ForeignIds()

    def body(self, prompt: Prompt, settings: RequestSettings, quirks: Quirks) -> bytes:
        """Return the body of a request."""
        choices = (settings, quirks, prompt.parallel_tool_calls, prompt.output_schema)
        head, tail = self._around.envelope(
            (*choices, prompt.instructions, *prompt.tools), lambda: _envelope(prompt, settings, quirks)
        )
        items = self._input.of(
            replace(prompt, input=self._ids.of(prompt.input)),
            quirks,
            lambda item: not _is_unsent(item, quirks),
            lambda item: _item_json(item, quirks),
        )
        return b'%b,"input":[%b],%b' % (head, b",".join(items), tail)


def _is_unsent(item: ResponseItem, quirks: Quirks) -> bool:
    """Return whether an item is left out: a blank one, or a thought of another provider."""
    match item:
        case MessageItem():
            is_model = item.role == "assistant"
            return not any(
                not is_model if isinstance(part, InputImage) else part.text.strip() for part in item.content
            )
        case ReasoningResponseItem():
            if item.origin is not None:
                return True
            return item.encrypted_content is None and not (quirks.store_items or quirks.content_thoughts)
        case _:
            return False


def _item_json(item: ResponseItem, quirks: Quirks) -> bytes:
    sent = without_origin(item)
    if isinstance(sent, MessageItem) and sent.role == "developer" and quirks.role != "developer":
        sent = sent.model_copy(update={"role": quirks.role})
    elif (
        isinstance(sent, FunctionCall)
        and quirks.arguments == "object"
        and not answers.is_json_object(sent.arguments)
    ):
        arguments = json_bytes(answers.lenient_arguments(sent.arguments) or {}).decode()
        sent = sent.model_copy(update={"arguments": arguments})
    elif not quirks.custom_tools and isinstance(sent, CustomToolCall):
        arguments = json_bytes({"input": sent.input}).decode()
        sent = FunctionCall(name=sent.name, arguments=arguments, call_id=sent.call_id, id=sent.id)
    elif not quirks.custom_tools and isinstance(sent, LocalShellCall):
        arguments = json_bytes(answers.call_arguments(sent)).decode()
        call_id = sent.call_id or sent.id or ""
        sent = FunctionCall(name=answers.call_name(sent), arguments=arguments, call_id=call_id, id=sent.id)
    elif not quirks.custom_tools and isinstance(sent, CustomToolCallOutput):
        payload = FunctionCallOutputPayload(content=sent.output)
        sent = FunctionCallOutput(call_id=sent.call_id, output=payload)
    body = sent.to_json()
    item_id = getattr(item, "id", None) if quirks.store_items else None  # outputs have none
    return b'%b,"id":%b}' % (body[:-1], json_bytes(item_id)) if item_id else body


def _envelope(prompt: Prompt, settings: RequestSettings, quirks: Quirks) -> tuple[bytes, bytes]:
    reasoning = reasoning_options(settings)
    if reasoning is not None and quirks.reasoning_context is not None:
        reasoning |= {"context": quirks.reasoning_context}
    encrypted = reasoning is not None or settings.row.thoughts is None
    head = {"model": settings.model, "instructions": prompt.instructions}
    tail: dict[str, Json] = {
        "tools": [
            tool_json(tool, quirks)
            for tool in prompt.tools
            if quirks.web_search or not isinstance(tool, WebSearchTool)
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": prompt.parallel_tool_calls,
        "reasoning": reasoning,
        "store": quirks.store_items,
        "stream": True,
        "include": ["reasoning.encrypted_content"] if encrypted else [],
        "prompt_cache_key": settings.conversation_id,
    }
    if settings.max_output_tokens is not None:
        tail["max_output_tokens"] = settings.max_output_tokens
    if text := text_options(prompt, settings):
        tail["text"] = text
    if settings.service_tier is not None:
        tail["service_tier"] = settings.service_tier
    sent = {name: value for name, value in tail.items() if name not in quirks.omit}
    return json_bytes(head)[:-1], json_bytes(sent)[1:]


def reasoning_options(settings: RequestSettings) -> dict[str, Json] | None:
    """Return the reasoning effort and the kind of summary; None for models without reasoning."""
    supported, row = settings.supports_reasoning_summaries, settings.row
    if not (row.reasons if supported is None else supported):
        if settings.sends_chosen_effort and settings.effort is not None:
            chosen = settings.summary not in (ReasoningSummary.AUTO, ReasoningSummary.NONE)
            return {
                "effort": row.sent_effort(settings.effort),
                **({"summary": settings.summary.value} if chosen else {}),
            }
        return None
    effort = settings.effort or row.default_reasoning_level
    # The API has no value for "no summary".
    summary = None if settings.summary is ReasoningSummary.NONE else settings.summary.value
    return {
        **({"effort": row.sent_effort(effort)} if effort else {}),
        **({"summary": summary} if summary else {}),
    }


def text_options(prompt: Prompt, settings: RequestSettings) -> dict[str, Json]:
    options: dict[str, Json] = {}
    verbosity = settings.verbosity or settings.row.verbosity
    if settings.row.support_verbosity and verbosity is not None:
        options["verbosity"] = verbosity.value
    if prompt.output_schema is not None:
        options["format"] = {
            "type": "json_schema",
            "strict": True,
            "schema": prompt.output_schema,
            "name": SCHEMA_NAME,
        }
    return options


def tool_json(tool: ToolSpec, quirks: Quirks) -> dict[str, Json]:
    """Return a tool in the form of a request."""
    if isinstance(tool, FreeformTool) and not quirks.custom_tools:
        tool = FunctionTool(tool.name, tool.description, TEXT_ARGUMENT)
    match tool:
        case FunctionTool():
            strict = {} if quirks.omits("strict") else {"strict": tool.strict}
            return {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                **strict,
                "parameters": in_form(tool.parameters, quirks.schema),
            }
        case FreeformTool():
            return {
                "type": "custom",
                "name": tool.name,
                "description": tool.description,
                "format": tool.format,
            }
        case WebSearchTool():
            return {"type": "web_search"}
        case LocalShellTool():
            return {"type": "local_shell"}
