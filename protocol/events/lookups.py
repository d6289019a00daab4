"""Answers to operations that only look something up. Each carries the id of its operation."""

from typing import Literal

from protocol.structs import EngineStruct, shown


class HistoryEntry(EngineStruct):
    """One line of the user's message history over all conversations."""

    conversation_id: str
    ts: int
    text: str


class GetHistoryEntryResponseEvent(EngineStruct, omit_defaults=True):
    """Answer to `get_history_entry_request`; the entry is left out if there is none at that place."""

    type: Literal["get_history_entry_response"] = shown("get_history_entry_response")
    offset: int
    log_id: int
    entry: HistoryEntry | None = None


class CustomPrompt(EngineStruct):
    """A prompt that the user keeps as a file."""

    name: str
    path: str
    content: str
    description: str | None = None
    argument_hint: str | None = None


class ListCustomPromptsResponseEvent(EngineStruct):
    """Answer to `list_custom_prompts`."""

    type: Literal["list_custom_prompts_response"] = "list_custom_prompts_response"
    custom_prompts: tuple[CustomPrompt, ...]
