"""Builds the body of a request to the Responses API. Pure; the cost is linear in the new items."""

from __future__ import annotations

from collections.abc import Sequence

from app_server.core.model.families import ModelFamily
from app_server.core.model.item_bytes import (
    ItemBytes,
    command_calls,
    json_bytes,
    plain_output,
    wants_plain_outputs,
)
from app_server.core.model.prompt import (
    FreeformTool,
    FunctionTool,
    LocalShellTool,
    Prompt,
    RequestSettings,
    ToolSpec,
    WebSearchTool,
)
from protocol import responses
from protocol.policy import ULTRA, ReasoningEffort, ReasoningSummary
from protocol.structs import Json

SCHEMA_NAME = "codex_output_schema"


def responses_body(
    prompt: Prompt, settings: RequestSettings, family: ModelFamily, cache: ItemBytes, *, stored: bool
) -> bytes:
    """`stored`: the provider keeps the conversation and wants its own item ids back."""
    choices = (settings, family, stored, prompt.parallel_tool_calls, prompt.output_schema)
    head, tail = cache.envelope(
        (*choices, prompt.instructions, *prompt.tools),
        lambda: _envelope(prompt, settings, family, stored=stored),
    )
    return b'%b,"input":[%b],%b' % (head, b",".join(_input(prompt, cache, stored=stored)), tail)


def _envelope(
    prompt: Prompt, settings: RequestSettings, family: ModelFamily, *, stored: bool
) -> tuple[bytes, bytes]:
    reasoning = reasoning_options(settings, family)
    head = {"model": settings.model, "instructions": prompt.instructions}
    tail: dict[str, Json] = {
        "tools": [tool_json(tool) for tool in prompt.tools],
        "tool_choice": "auto",
        "parallel_tool_calls": prompt.parallel_tool_calls,
        "reasoning": reasoning,
        "store": stored,
        "stream": True,
        "include": ["reasoning.encrypted_content"] if reasoning is not None else [],
        "prompt_cache_key": settings.conversation_id,
    }
    if text := text_options(prompt, settings, family):
        tail["text"] = text
    return json_bytes(head)[:-1], json_bytes(tail)[1:]


def reasoning_options(settings: RequestSettings, family: ModelFamily) -> dict[str, Json] | None:
    """Return the reasoning effort and the kind of summary; None for models without reasoning."""
    supported = settings.supports_reasoning_summaries
    if not (family.supports_reasoning_summaries if supported is None else supported):
        if settings.sends_chosen_effort and settings.effort is not None:
            chosen = settings.summary not in (ReasoningSummary.AUTO, ReasoningSummary.NONE)
            return {
                "effort": _sent_effort(settings.effort),
                **({"summary": settings.summary.value} if chosen else {}),
            }
        return None
    effort = settings.effort or family.default_effort
    # The API has no word for no summary.
    summary = None if settings.summary is ReasoningSummary.NONE else settings.summary.value
    return {
        **({"effort": _sent_effort(effort)} if effort else {}),
        **({"summary": summary} if summary else {}),
    }


def _sent_effort(effort: str) -> str:
    """Return an effort as the provider knows it: for the most that there is, the highest that every model takes."""
    return ReasoningEffort.HIGH.value if effort == ULTRA else str(effort)


def text_options(prompt: Prompt, settings: RequestSettings, family: ModelFamily) -> dict[str, Json]:
    options: dict[str, Json] = {}
    verbosity = settings.verbosity or family.default_verbosity
    if family.supports_verbosity and verbosity is not None:
        options["verbosity"] = verbosity.value
    if prompt.output_schema is not None:
        options["format"] = {
            "type": "json_schema",
            "strict": True,
            "schema": prompt.output_schema,
            "name": SCHEMA_NAME,
        }
    return options


def tool_json(tool: ToolSpec) -> dict[str, Json]:
    match tool:
        case FunctionTool():
            return {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "strict": tool.strict,
                "parameters": tool.parameters,
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


_OURS = frozenset((responses.GhostSnapshot, responses.OtherItem))


def sendable(items: Sequence[responses.ResponseItem]) -> list[responses.ResponseItem]:
    """Return the items for the model, without snapshots and unknown items."""
    return [item for item in items if type(item) not in _OURS]


def plainly(item: responses.ResponseItem, commands: frozenset[str]) -> responses.ResponseItem:
    """`item`, with its output in plain form where it is a command's."""
    match item:
        case responses.FunctionCallOutput() if item.call_id in commands and item.output.content_items is None:
            output = item.output.model_copy(update={"content": plain_output(item.output.content)})
            return item.model_copy(update={"output": output})
        case responses.CustomToolCallOutput() if item.call_id in commands:
            return item.model_copy(update={"output": plain_output(item.output)})
        case _:
            return item


def _input(prompt: Prompt, cache: ItemBytes, *, stored: bool) -> list[bytes]:
    items = sendable(prompt.input)
    plain = wants_plain_outputs(prompt)
    commands = command_calls(items) if plain else frozenset()

    def write(item: responses.ResponseItem) -> bytes:
        body = plainly(item, commands).to_json()
        return _with_id(body, item) if stored else body

    return cache.of(items, ("responses", plain, stored), write)


def _with_id(body: bytes, item: responses.ResponseItem) -> bytes:
    item_id = getattr(item, "id", None)  # outputs have none
    return b'%b,"id":%b}' % (body[:-1], json_bytes(item_id)) if item_id else body
