"""Slash commands that take files back: `/rewind` to a message, with or without the conversation, `/undo` for the files
of the last turn, `/redo` for the last of both.
"""

from __future__ import annotations

from typing import Final

from app_server.cli.chat.event_view import user_text
from app_server.cli.chat.slash_context import PickerRow, SlashContext
from app_server.client.restore_view import is_changed, needs_consent, restore_lines, restore_summary
from app_server_protocol.v2.checkpoints import RestoreScope, ThreadCheckpoint, ThreadCheckpointPreviewResponse
from app_server_protocol.v2.items import UserMessageThreadItem

MOST_LINES: Final = 40
"""Maximum number of files that are listed."""
SCOPES: Final[dict[str, RestoreScope]] = {
    "both": "both",
    "files": "files",
    "conversation": "conversation",
}
UNCERTAIN: Final = "uncertain"
"""Word of `/rewind` that agrees to restore what may be the user's."""
UNDO_USAGE: Final = "/undo uncertain takes back what changed while a command ran, too"
USAGE: Final = (
    "/rewind NUMBER both (or: files, conversation) goes back; `uncertain` behind it takes uncertain changes"
)


async def rewind(at: SlashContext, argument: str) -> None:
    """List the messages, show what going back to one would do, and do it once that is chosen."""
    words = argument.split()
    listed = (await at.chat.thread.list_checkpoints()).data
    if not listed:
        at.print("there is no message to go back to")
        return
    chosen = await _message(at, listed, words[0] if words else "")
    if chosen is None:
        return
    scope = next((SCOPES[word] for word in words if word in SCOPES), None)
    uncertain = UNCERTAIN in words
    preview = await at.chat.thread.preview_restore(chosen.turn_id, scope or "both", uncertain=uncertain)
    _show(at, preview)
    if scope is None:
        choice = await at.choose("what goes back", _choices(preview))
        if choice is None:
            at.print(USAGE, "dim")
            return
        scope, uncertain = choice
    await _restore(at, chosen.turn_id, preview.token, scope, uncertain=uncertain)


async def undo(at: SlashContext, argument: str) -> None:
    """Put the files back to the time before the last turn that changed some; the conversation stays. The user is asked
    about uncertain changes, or agrees to them by a word.
    """
    for turn in (await at.chat.thread.list_checkpoints()).data:
        if turn.files_changed:
            preview = await at.chat.thread.preview_restore(turn.turn_id, "files", uncertain=True)
            if preview.files:
                uncertain = UNCERTAIN in argument.split() or await _agrees(at, preview)
                if uncertain is not None:
                    await _restore(at, turn.turn_id, preview.token, "files", uncertain=uncertain)
                return
    at.print("nothing to undo: no change of files by the agent is recorded")


async def _agrees(at: SlashContext, preview: ThreadCheckpointPreviewResponse) -> bool | None:
    """Return whether uncertain changes go back, too, which the user is asked if there are some; None without an
    answer.
    """
    unsure = [each for each in preview.files if is_changed(each) and each.by == "uncertain"]
    if not unsure:
        return False
    for line in list(restore_lines(preview.files, str(at.chat.cwd)))[:MOST_LINES]:
        at.print(f"  {line}")
    count = _files(len(unsure))
    rows = [
        PickerRow("all of these", f"{count} changed while a command ran, by it or by you", True),
        PickerRow("only what the agent's patches changed", f"{count} kept", False),
    ]
    choice = await at.choose("what goes back", rows)
    if choice is None:
        at.print(UNDO_USAGE, "dim")
    return choice


async def redo(at: SlashContext, argument: str) -> None:
    """Take back the last restore of files."""
    restores = (await at.chat.thread.list_checkpoints()).restores
    if not restores:
        at.print("nothing to take back: no files were restored")
        return
    id = restores[0].undo_turn_id
    preview = await at.chat.thread.preview_restore(id, "files", uncertain=True)
    await _restore(at, id, preview.token, "files", uncertain=True)


async def _message(
    at: SlashContext, listed: tuple[ThreadCheckpoint, ...], number: str
) -> ThreadCheckpoint | None:
    if number.isdecimal() and 1 <= int(number) <= len(listed):
        return listed[int(number) - 1]
    rows = [PickerRow(each.words or "(no words)", _files(each.files_changed), each) for each in listed]
    chosen = await at.choose("message", rows)
    if at.screen is None:
        at.print(USAGE, "dim")
    return chosen


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files" if count else ""


def _show(at: SlashContext, preview: ThreadCheckpointPreviewResponse) -> None:
    at.print(f"{restore_summary(preview.files)}; {len(preview.turns)} turns leave the conversation")
    for line in list(restore_lines(preview.files, str(at.chat.cwd)))[:MOST_LINES]:
        at.print(f"  {line}")
    if len(preview.files) > MOST_LINES:
        at.print(f"  and {len(preview.files) - MOST_LINES} more")


def _choices(preview: ThreadCheckpointPreviewResponse) -> list[PickerRow[tuple[RestoreScope, bool]]]:
    rows: list[PickerRow[tuple[RestoreScope, bool]]] = [
        PickerRow("files and conversation", "", ("both", False)),
        PickerRow("files", "the conversation stays", ("files", False)),
        PickerRow("conversation", "the files stay", ("conversation", False)),
    ]
    if needs_consent(preview.files):
        note = "what changed while a command ran may be yours"
        rows.append(PickerRow("files and conversation, uncertain changes too", note, ("both", True)))
    return rows


async def _restore(
    at: SlashContext, turn_id: str, token: str, scope: RestoreScope, *, uncertain: bool
) -> None:
    said: list[str] = []
    if scope != "files":
        turn = next((each for each in (await at.chat.thread.read()).turns if each.id == turn_id), None)
        items = () if turn is None else turn.items
        said = [user_text(item) for item in items if isinstance(item, UserMessageThreadItem)]
    done = await at.chat.thread.restore(turn_id, token, scope, uncertain=uncertain)
    if scope != "conversation":
        at.print(restore_summary(done.files), "bold")
        for line in list(
            restore_lines((each for each in done.files if not is_changed(each)), str(at.chat.cwd))
        )[:MOST_LINES]:
            at.print(f"  {line}")
        if done.undo_turn_id is not None:
            at.print("/redo puts back what was taken back", "dim")
    if said:
        at.print(f"{len(done.turns)} turns left the conversation")
        if at.screen is not None:
            at.screen.put_back("\n".join(said))
