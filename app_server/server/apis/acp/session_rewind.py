"""`/rewind` of a session: lists the messages whose turns changed files, and puts the files back to one after the user
has agreed to the shown differences. The conversation stays.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from app_server.engine.session.rewind import TURN_RUNS
from app_server.engine.support.engine_errors import ConversationError
from app_server.server.apis.acp.acp_session import AcpSession
from app_server.server.apis.acp.formatting import diffs_of, one_line
from app_server.server.apis.acp.permission_requests import decision
from app_server.server.apis.acp.tool_call_views import ToolCallView, text_content
from app_server.server.rpc.outgoing import OutboundQueue
from app_server_protocol.acp.tool_calls import (
    REQUEST_PERMISSION,
    PermissionOption,
    RequestPermissionRequest,
    SessionToolCall,
    SessionToolCallFields,
    SessionToolCallUpdate,
    ToolCallStatus,
    ToolKind,
)
from app_server_protocol.engine.item_values import UpdateFileChange
from app_server_protocol.policy import ReviewDecision

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app_server.engine.checkpoints.history import Span
    from app_server.engine.checkpoints.plan import PlannedFile

MOST_LISTED: Final = 30
"""Maximum number of messages, and of files, that are listed."""
EXPECTED: Final = "Expected `/rewind NUMBER` with a number of the list.\n"
OPTIONS: Final = (
    PermissionOption(option_id="allow_once", name="Yes, restore these files", kind="allow_once"),
    PermissionOption(option_id="decline", name="No, keep them", kind="reject_once"),
)


async def rewind_text(session: AcpSession, outgoing: OutboundQueue, id: str, argument: str) -> str:
    """Return the answer to the command: the list of messages, or what was restored. `id` is that of the question."""
    rewinds = session.live.session.rewinds
    turns = (await rewinds.recorded()).undoable()
    if not turns:
        return "There is no message to go back to: no change of files by the agent is recorded.\n"
    if not argument:
        return _listed(turns)
    if not argument.isdecimal() or not 1 <= int(argument) <= len(turns):
        return EXPECTED
    if session.live.session.running:
        return f"{TURN_RUNS[0].upper()}{TURN_RUNS[1:]}.\n"
    turn = turns[int(argument) - 1]
    try:
        preview = await rewinds.preview((turn.id,), uncertain=True)
        if preview is None or not preview.plan.files:
            return "The files are as they were before that message.\n"
        files = preview.plan.files
        if any(each.writes for each in files):
            agreed = await _agreed(session, outgoing, id, turn, files, await rewinds.diffs(preview))
            if not agreed:
                return "Nothing was restored.\n"
        done = await rewinds.restore(turn.id, token=preview.plan.token, conflicts="keep", uncertain=True)
    except ConversationError as refused:
        return f"{refused}\n"
    more = "" if done.undo_id is None else "`/redo` puts back what was taken back; the conversation stays.\n"
    return _summary(done.files, session.cwd) + more


async def _agreed(
    session: AcpSession,
    outgoing: OutboundQueue,
    id: str,
    turn: Span,
    files: Sequence[PlannedFile],
    diffs: Mapping[str, str],
) -> bool:
    """Ask the user, who sees what is done with each file, and the differences."""
    shown = diffs_of(
        {path: UpdateFileChange(unified_diff=diff, move_path=None) for path, diff in diffs.items()}, {}
    )
    title = one_line(f"Restore files to before: {turn.words}")
    call = ToolCallView(id=id, title=title, kind=ToolKind.EDIT)
    fields = call.fields((text_content(_summary(files, session.cwd)), *shown))
    session.send(SessionToolCall(**fields | {"status": ToolCallStatus.PENDING}))
    request = RequestPermissionRequest(
        session_id=session.id, tool_call=SessionToolCallFields(**fields), options=OPTIONS
    )
    reply = await outgoing.request(REQUEST_PERMISSION.method, request.to_json())
    agreed = reply.error is None and decision(reply.result) is ReviewDecision.APPROVED
    status = ToolCallStatus.COMPLETED if agreed else ToolCallStatus.FAILED
    session.send(SessionToolCallUpdate(tool_call_id=id, status=status))
    return agreed


def _listed(turns: Sequence[Span]) -> str:
    rows = []
    for number, turn in enumerate(turns[:MOST_LISTED], 1):
        count = len({change.path for change in turn.changes})
        rows.append(
            f"{number}. {one_line(turn.words) or '(no words)'} ({count} {'file' if count == 1 else 'files'})\n"
        )
    return "Go back to before a message with `/rewind NUMBER`:\n\n" + "".join(rows)


def _summary(files: Sequence[PlannedFile], cwd: str) -> str:
    """Return what is done with each file."""
    lines = []
    for each in files[:MOST_LISTED]:
        inside = each.path.startswith(cwd.rstrip("/") + "/")
        path = os.path.relpath(each.path, cwd) if inside else each.path
        about = each.action.value if each.writes else f"kept ({_why(each)})"
        lines.append(f"- {path.encode('utf-8', 'replace').decode()}: {about}\n")
    if len(files) > MOST_LISTED:
        lines.append(f"- and {len(files) - MOST_LISTED} more\n")
    return "".join(lines)


def _why(file: PlannedFile) -> str:
    if file.action.value == "unavailable":
        return "its old content is gone"
    return "changed by you" if file.by in ("both", "user") else "it could not be changed"
