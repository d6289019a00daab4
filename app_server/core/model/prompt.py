"""The content of one request to the model: instructions, the history, and the tools it may call."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.base import Json
from protocol.records import dataclass
from protocol.responses import ResponseItem


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool with JSON arguments, described by a JSON Schema."""

    name: str
    description: str
    parameters: Json
    strict: bool = False


@dataclass(frozen=True, slots=True)
class FreeformTool:
    """A tool that takes plain text, which `format` describes, for example by a grammar."""

    name: str
    description: str
    format: Json


@dataclass(frozen=True, slots=True)
class WebSearchTool:
    """A search that the provider runs by itself."""


@dataclass(frozen=True, slots=True)
class LocalShellTool:
    """The shell tool that some models know without a description."""


ToolSpec = FunctionTool | FreeformTool | WebSearchTool | LocalShellTool


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    instructions: str
    input: Sequence[ResponseItem]
    tools: Sequence[ToolSpec] = ()
    parallel_tool_calls: bool = False
    output_schema: Json | None = None
    """The JSON Schema that the final answer has to follow."""
