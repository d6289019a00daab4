"""The settings of a provider's quirks: the words that a quirk may have, and their part of the table of settings.

`engine.model.quirks.Quirks` has these words as the types of its fields, so that the type checker compares them with
those that the writers of requests ask for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, get_args

from app_server.engine.config.config_values import WireApi
from app_server.engine.config.setting_types import TEXT, TEXTS, Kind, Setting, WrongValue, choice, one_of
from app_server_protocol.encoding import Json

ModelList = Literal[
    "any", "openai", "anthropic", "ollama", "lmstudio", "llamacpp", "vllm", "openrouter", "litellm"
]
Role = Literal["developer", "system"]
AfterTool = Literal["user", "assistant"]
ToolIds = Literal["plain", "nine", "forty"]
ToolPictures = Literal["user", "part"]
ThoughtsBack = Literal["always", "turn", "never"]
Effort = Literal["reasoning_effort", "openrouter", "deepseek", "zai", "qwen", "together", "template", "none"]
SchemaForm = Literal["full", "plain", "gemini"]
Arguments = Literal["text", "object"]
ThinkTags = Literal["none", "closed", "open"]


def _flag_or_pattern(value: Json) -> Json:
    if not isinstance(value, bool | str):
        raise WrongValue("must be true, false or a pattern of model names")
    if isinstance(value, str):
        try:
            re.compile(value)
        except re.error as error:
            raise WrongValue(f"is no valid pattern of model names: {error}") from None
    return value


FLAG_OR_PATTERN: Final = Kind(
    "boolean, or a pattern of model names", {"type": ["boolean", "string"]}, _flag_or_pattern
)


def _texts(doc: str) -> Setting:
    return Setting(TEXTS, doc, None)


def _text(doc: str) -> Setting:
    return Setting(TEXT, doc, None)


def _flag(doc: str) -> Setting:
    return Setting(FLAG_OR_PATTERN, doc, None)


def _word(words: object, doc: str) -> Setting:
    """Return a setting with one of the words of a literal type."""
    return Setting(one_of(get_args(words)), doc, None)


QUIRKS: Final[Mapping[str, Setting]] = {
    "optional": _texts("fields of a request that may be left out if the provider refuses them"),
    "omit": _texts("fields of a request that are never sent"),
    "wire": Setting(choice(WireApi), "the API; `wire` of the provider counts first", None),
    "list": _word(ModelList, "the kind of server, which says how it is asked for its models"),
    "local": _flag("the server runs on the user's machine"),
    "role": _word(Role, "role of developer messages over the Responses API"),
    "after_tool": _word(
        AfterTool, "`assistant`: a message stands between a tool's output and the user's next words"
    ),
    "tool_ids": _word(ToolIds, "form of call ids: `nine` letters and digits, `forty` characters at most"),
    "null_content": _flag("a message with calls may have `content: null`"),
    "tool_pictures": _word(
        ToolPictures, "where images of tools go: a message of the `user`, or a `part` of the output"
    ),
    "single_calls": _flag("calls of one answer are written one by one over Chat Completions"),
    "text_parts": _flag("a message may have parts"),
    "thoughts_field": _text("the name under which thoughts go back over Chat Completions"),
    "thoughts_back": _word(ThoughtsBack, "when thoughts go back; `turn`: since the user's last message"),
    "empty_thoughts": _flag("an assistant message without thoughts gets empty ones"),
    "content_thoughts": _flag("thoughts without encrypted content go back as text over the Responses API"),
    "effort": _word(Effort, "how a reasoning effort is said"),
    "schema": _word(SchemaForm, "form of tools' JSON Schemas"),
    "arguments": _word(Arguments, "`object`: arguments of calls that go back are always a JSON object"),
    "max_tokens": _text("the name of the limit of an answer over Chat Completions"),
    "cache_control": _flag("marks of Claude's prompt cache are sent over Chat Completions"),
    "cache_key": _flag("`prompt_cache_key` and `store` are sent over Chat Completions"),
    "session_header": _text("the header that carries the conversation's id"),
    "text_calls": _flag("calls that are printed as text are read as calls"),
    "think_tags": _word(
        ThinkTags, "thoughts stand in `<think>` tags; `open`: an answer begins inside of them"
    ),
    "custom_tools": _flag("the Responses API takes tools of free text"),
    "web_search": _flag("the provider searches the web by itself"),
    "store_items": _flag("the provider keeps the items of a conversation and wants their ids back"),
    "responses_only": _flag("models call tools over the Responses API only, if a reasoning effort is sent"),
    "blank_overflow": _flag("a status 400 without a body says that the conversation is too long"),
    "reasoning_context": _text("the value of `reasoning.context` that the provider demands"),
}
"""Settings for the fields of `engine.model.quirks.Quirks`."""
