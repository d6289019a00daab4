"""Conversion of items of the engine into items of the thread API, and of clients' inputs into inputs of the engine.
Pure.

Items are built without validation: an item of the engine, or of an old file, is shown whatever its values are.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Final

from pydantic import ValidationError

from app_server.engine.approvals.shell import quote, summaries
from app_server.engine.approvals.shell.shell_script import script_of
from app_server.engine.session import review_texts
from app_server_protocol import event_items as inputs
from app_server_protocol import mcp
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items as engine
from app_server_protocol.engine.item_values import (
    AddFileChange,
    DeleteFileChange,
    FileChange,
    ListFilesCommand,
    ParsedCommand,
    ReadCommand,
    ReviewOutputEvent,
    SearchCommand,
    UnknownCommand,
    UpdateFileChange,
)
from app_server_protocol.engine.items import CommandSource, ItemStatus
from app_server_protocol.responses import ResponseItem, SearchAction, WebSearchAction, checked_response_item
from app_server_protocol.rpc_errors import invalid_field, invalid_params
from app_server_protocol.v2 import item_parts as parts
from app_server_protocol.v2 import items as wire
from app_server_protocol.wire_fields import PREFIX, describe_validation_error


def user_inputs(items: Sequence[parts.UserInput]) -> tuple[inputs.SentInput, ...]:
    """Convert the client's inputs. Raises RpcError for audio."""
    return tuple(_engine_input(item) for item in items)


def response_items(given: Sequence[Json], field: str) -> tuple[ResponseItem, ...]:
    """Check items of the model's API. An item of an unknown kind is accepted, and has no effect. Raises RpcError if an
    item is invalid, or if there is none.
    """
    if not given:
        raise invalid_field(f"{field} must not be empty", field)
    return tuple(_response_item(raw, field, n) for n, raw in enumerate(given))


def _response_item(raw: Json, field: str, n: int) -> ResponseItem:
    try:
        return checked_response_item(raw)
    except ValidationError as error:
        problem = describe_validation_error(error)[0].removeprefix(PREFIX)
        text = f"{field}[{n}] is not a valid response item: {problem}"
        raise invalid_field(text, f"{field}.{n}") from error


def shown_inputs(items: Sequence[inputs.SentInput]) -> tuple[parts.UserInput, ...]:
    return tuple(_shown_input(item) for item in items)


def _engine_input(item: parts.UserInput) -> inputs.SentInput:
    match item:
        case parts.TextUserInput():
            elements = tuple(element.to_value() for element in item.text_elements)
            return inputs.TextInput(text=item.text, text_elements=elements)
        case parts.ImageUserInput():
            return inputs.ImageInput(image_url=item.url)
        case parts.LocalImageUserInput():
            return inputs.LocalImageInput(path=item.path)
        case parts.SkillUserInput():
            return inputs.SkillInput(name=item.name, path=item.path)
        case parts.MentionUserInput():
            return inputs.MentionInput(name=item.name, path=item.path)
        case parts.AudioUserInput() | parts.LocalAudioUserInput():
            text = f"input of type `{item.type}` is not supported"
            raise invalid_params(text, "input", "unsupported_input")


def _shown_input(item: inputs.SentInput) -> parts.UserInput:
    """Convert an input without validation, so that a stored input never keeps its item from being shown."""
    match item:
        case inputs.TextInput():
            return parts.TextUserInput.model_construct(
                text=item.text, text_elements=tuple(map(_element, item.text_elements))
            )
        case inputs.ImageInput():
            return parts.ImageUserInput.model_construct(url=item.image_url)
        case inputs.LocalImageInput():
            return parts.LocalImageUserInput.model_construct(path=item.path)
        case inputs.SkillInput():
            return parts.SkillUserInput.model_construct(name=item.name, path=item.path)
        case inputs.MentionInput():
            return parts.MentionUserInput.model_construct(name=item.name, path=item.path)


def _element(value: Json) -> parts.TextElement:
    match value:
        case {"byteRange": {"start": start, "end": end}, **rest}:
            part = parts.ByteRange.model_construct(start=start, end=end)
            shown: Json = rest.get("placeholder")
            return parts.TextElement.model_construct(byte_range=part, placeholder=shown)
        case _:
            nothing = parts.ByteRange.model_construct(start=0, end=0)
            return parts.TextElement.model_construct(byte_range=nothing, placeholder=None)


NO_REVIEW: Final = "The review ended without a result."

_SOURCES: Final[Mapping[CommandSource, parts.CommandExecutionSource]] = {
    CommandSource.AGENT: "agent",
    CommandSource.PROVIDER: "agent",
    CommandSource.USER_SHELL: "userShell",
    CommandSource.TERMINAL: "unifiedExecStartup",
}
_PHASES: Final = {phase.value: phase for phase in wire.MessagePhase}


def thread_item(item: engine.Item, started_ms: int | None, completed_ms: int | None) -> wire.ThreadItem:  # noqa: C901 - one case for each kind
    """Convert an item; it has not ended if `completed_ms` is None. A time of 0 stands for one that an old file does not
    have.
    """
    at: dict[str, Json] = {
        "id": item.id,
        "started_at_ms": started_ms or None,
        "completed_at_ms": completed_ms or None,
    }
    match item:
        case engine.UserMessage():
            sent = item.content if item.sent is None else item.sent
            return wire.UserMessageThreadItem(**at, client_id=item.client_id, content=shown_inputs(sent))
        case engine.AgentMessage():
            return wire.AgentMessageThreadItem(**at, text=item.text, phase=_PHASES.get(item.phase or ""))
        case engine.Plan():
            return wire.PlanThreadItem(**at, text=item.text)
        case engine.Reasoning():
            return wire.ReasoningThreadItem(**at, summary=item.summary, content=item.content)
        case engine.CommandExecution():
            return _command(item, at)
        case engine.FileChange():
            changes = tuple(_file_change(path, change) for path, change in sorted(item.changes.items()))
            return wire.FileChangeThreadItem(
                **at, changes=changes, status=parts.PatchApplyStatus[item.status.name]
            )
        case engine.McpToolCall():
            return _mcp_call(item, at)
        case engine.DynamicToolCall():
            return _dynamic_call(item, at)
        case engine.WebSearch():
            return wire.WebSearchThreadItem(
                **at, query=item.query, action=None if item.action is None else _search_action(item.action)
            )
        case engine.ImageView():
            return wire.ImageViewThreadItem(**at, path=item.path)
        case engine.EnteredReview():
            return wire.EnteredReviewModeThreadItem(**at, review=item.hint)
        case engine.ExitedReview():
            return wire.ExitedReviewModeThreadItem(**at, review=review_text(item.output))
        case engine.ContextCompaction():
            return wire.ContextCompactionThreadItem(**at)
        case engine.HookPrompt():
            said = [
                wire.HookPromptFragment(text=each.text, hook_run_id=each.hook_run_id)
                for each in item.fragments
            ]
            return wire.HookPromptThreadItem(**at, fragments=tuple(said))


def command_line(argv: Sequence[str]) -> str:
    """Return a command as one line that a shell would read back."""
    return quote.join(argv)


def command_actions(
    parsed: Sequence[ParsedCommand], argv: Sequence[str], cwd: str
) -> tuple[parts.CommandAction, ...]:
    """Return the actions of the command, part by part. If one part is unknown, the whole command is an unknown action,
    so that no part of it is hidden. Parts that only shorten output do not count.
    """
    parsed = [each for each in parsed if not summaries.shortens_output(each.cmd)] or parsed
    if any(isinstance(each, UnknownCommand) for each in parsed):
        return (parts.UnknownCommandAction(command=script_of(argv) or command_line(argv)),)
    return tuple(_action(each, cwd) for each in parsed)


def review_text(output: ReviewOutputEvent | None) -> str:
    """Return the result of a review as one text."""
    return (review_texts.outcome(output) if output is not None else "") or NO_REVIEW


def _command(item: engine.CommandExecution, at: Mapping[str, Json]) -> wire.CommandExecutionThreadItem:
    ran = item.status not in (ItemStatus.IN_PROGRESS, ItemStatus.DECLINED)
    printed = item.output if item.status is not ItemStatus.DECLINED else None
    return wire.CommandExecutionThreadItem(
        **at,
        command=command_line(item.command),
        cwd=item.cwd,
        process_id=item.process_id,
        source=_SOURCES[item.source],
        status=parts.CommandExecutionStatus[item.status.name],
        command_actions=command_actions(item.parsed, item.command, item.cwd),
        aggregated_output=printed or None,
        exit_code=item.exit_code,
        duration_ms=_ms(item.seconds) if ran else None,
    )


def _action(parsed: ParsedCommand, cwd: str) -> parts.CommandAction:
    match parsed:
        case ReadCommand():
            return parts.ReadCommandAction(
                command=parsed.cmd, name=parsed.name, path=posixpath.join(cwd, parsed.path)
            )
        case ListFilesCommand():
            return parts.ListFilesCommandAction(command=parsed.cmd, path=parsed.path)
        case SearchCommand(query=None):
            return parts.ListFilesCommandAction(command=parsed.cmd, path=parsed.path)
        case SearchCommand():
            return parts.SearchCommandAction(command=parsed.cmd, query=parsed.query, path=parsed.path)
        case UnknownCommand():
            return parts.UnknownCommandAction(command=parsed.cmd)


def _file_change(path: str, change: FileChange) -> parts.FileUpdateChange:
    kind: parts.PatchChangeKind
    match change:
        case AddFileChange():
            kind, diff = parts.AddPatchChangeKind(), change.content
        case DeleteFileChange():
            kind, diff = parts.DeletePatchChangeKind(), change.content
        case UpdateFileChange():
            kind = parts.UpdatePatchChangeKind(move_path=change.move_path)
            diff = change.unified_diff
            if change.move_path is not None:
                # The move is part of the text since codex 0.58: a client that shows the diff alone would not show it
                # otherwise.
                diff += f"\n\nMoved to: {change.move_path}"
    return parts.FileUpdateChange(path=path, kind=kind, diff=diff)


def _mcp_call(item: engine.McpToolCall, at: Mapping[str, Json]) -> wire.McpToolCallThreadItem:
    result, error = _mcp_result(item.result)
    return wire.McpToolCallThreadItem(
        **at,
        server=item.invocation.server,
        tool=item.invocation.tool,
        status=parts.McpToolCallStatus[_ended(item.status).name],
        arguments=item.invocation.arguments,
        result=result,
        error=error,
        duration_ms=_ms(item.seconds),
        read_only_hint=item.read_only_hint,
    )


def _mcp_result(
    result: mcp.McpResult | None,
) -> tuple[parts.McpToolCallResult | None, parts.McpToolCallError | None]:
    match result:
        case None:
            return None, None
        case mcp.ErrResult(err=message):
            return None, parts.McpToolCallError(message=message)
        case mcp.OkResult(ok=ok):
            shown = parts.McpToolCallResult(
                content=tuple(block.to_value() for block in ok.content),
                structured_content=ok.structured_content,
                meta=(ok.model_extra or {}).get("_meta"),
            )
            return shown, None


def _dynamic_call(item: engine.DynamicToolCall, at: Mapping[str, Json]) -> wire.DynamicToolCallThreadItem:
    return wire.DynamicToolCallThreadItem(
        **at,
        namespace=item.namespace,
        tool=item.tool,
        arguments=item.arguments,
        status=parts.DynamicToolCallStatus[_ended(item.status).name],
        content_items=None if item.content is None else tuple(map(_tool_content, item.content)),
        success=item.success,
        duration_ms=_ms(item.seconds),
    )


def _tool_content(raw: Json) -> parts.DynamicToolCallOutputContentItem:
    """Convert a part of a result; a part of an unknown kind is shown as text: its JSON on the wire."""
    match raw:
        case {"type": "inputText", "text": str(text)}:
            return parts.InputTextDynamicToolCallOutputContentItem(text=text)
        case {"type": "inputImage", "imageUrl": str(url)}:
            return parts.InputImageDynamicToolCallOutputContentItem(image_url=url)
        case {"type": "inputAudio", "audioUrl": str(url)}:
            return parts.InputAudioDynamicToolCallOutputContentItem(audio_url=url)
        case _:
            return parts.InputTextDynamicToolCallOutputContentItem(text=json.dumps(raw, default=str))


def _search_action(action: WebSearchAction) -> parts.WebSearchAction:
    if isinstance(action, SearchAction):
        return parts.SearchWebSearchAction(query=action.query, queries=None)
    extra = action.model_extra or {}
    match action.type:
        case "search":
            return parts.SearchWebSearchAction(query=_text(extra, "query"), queries=_texts(extra, "queries"))
        case "open_page":
            return parts.OpenPageWebSearchAction(url=_text(extra, "url"))
        case "find_in_page":
            return parts.FindInPageWebSearchAction(pattern=_text(extra, "pattern"), url=_text(extra, "url"))
        case _:
            return parts.OtherWebSearchAction()


def _texts(fields: Mapping[str, Json], name: str) -> tuple[str, ...] | None:
    value = fields.get(name)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else None


def _text(fields: Mapping[str, Json], name: str) -> str | None:
    value = fields.get(name)
    return value if isinstance(value, str) else None


def _ended(status: ItemStatus) -> ItemStatus:
    """Return the status of a call. There is no status for a declined call."""
    return ItemStatus.FAILED if status is ItemStatus.DECLINED else status


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
