"""Command outputs in the plain form that models trained on free-form patches are used to.

History keeps a command's output as a JSON text; here it becomes lines: exit code, wall time, output. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from app_server.core.model.payload import mapping
from app_server.core.model.prompt import FreeformTool, Prompt
from protocol.responses import CustomToolCall, FunctionCall, LocalShellCall, ResponseItem

APPLY_PATCH = "apply_patch"
COMMAND_FUNCTIONS = ("shell", "container.exec", APPLY_PATCH)
TOTAL_LINES = "Total output lines: "


def wants_plain_outputs(prompt: Prompt) -> bool:
    """Whether the request offers the free-form patch tool."""
    return any(isinstance(tool, FreeformTool) and tool.name == APPLY_PATCH for tool in prompt.tools)


def command_calls(items: Iterable[ResponseItem]) -> frozenset[str]:
    """The ids of all calls that ran a command or a patch."""
    ids = set()
    for item in items:
        match item:
            case FunctionCall() if item.name in COMMAND_FUNCTIONS:
                ids.add(item.call_id)
            case CustomToolCall() if item.name == APPLY_PATCH:
                ids.add(item.call_id)
            case LocalShellCall():
                ids.add(item.call_id or item.id or "")
            case _:
                pass
    return frozenset(ids)


def plain_output(stored: str) -> str:
    """`stored` as lines; anything that is no command's output stays as it is."""
    if not stored.startswith('{"output":'):
        return stored
    try:
        result = json.loads(stored)
        output, metadata = result["output"], mapping(result["metadata"])
        lines = [
            f"Exit code: {int(metadata['exit_code'])}",
            f"Wall time: {_number(metadata['duration_seconds'])} seconds",
        ]
    except (ValueError, KeyError, TypeError, RecursionError):
        return stored
    if not isinstance(output, str):
        return stored
    total, rest = _total_lines(output)
    if total is not None:
        lines.append(f"{TOTAL_LINES}{total}")
    return "\n".join([*lines, "Output:", rest])


def _total_lines(output: str) -> tuple[int | None, str]:
    """The note that a shortened output begins with, and the output without it."""
    if not output.startswith(TOTAL_LINES):
        return None, output
    number, _, rest = output.removeprefix(TOTAL_LINES).partition("\n")
    if not (number.isascii() and number.isdigit()):
        return None, output
    return int(number), rest.removeprefix("\n")


def _number(seconds: float) -> str:
    return f"{seconds:.1f}".removesuffix(".0")
