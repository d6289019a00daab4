"""`app-server threads rewind`: goes back to a message of a stored thread, with the files. Without `--yes` it only shows
what would be done.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from app_server.cli.admin.one_shot import CommandFailed, eprint, show, show_json
from app_server.client.request_client import RequestClient
from app_server.client.restore_view import needs_consent, restore_lines, restore_summary
from app_server_protocol.v2 import checkpoints as wire
from app_server_protocol.v2.thread_open import THREAD_RESUME, ThreadResumeParams


async def rewind(server: RequestClient, args: argparse.Namespace, thread: str) -> None:
    """List the messages, show what going back to one would do, or do it. Raises AppServerError."""
    opened = await server.request(THREAD_RESUME, ThreadResumeParams(thread_id=thread, exclude_turns=True))
    listed = await server.request(
        wire.THREAD_CHECKPOINT_LIST, wire.ThreadCheckpointListParams(thread_id=thread)
    )
    if args.to is None:
        _list(listed, as_json=args.json)
        return
    wanted = wire.ThreadCheckpointPreviewParams(
        thread_id=thread,
        before_turn_id=_turn(args.to, listed.data),
        restore=args.restore or "both",
        uncertain=args.uncertain,
    )
    preview = await server.request(wire.THREAD_CHECKPOINT_PREVIEW, wanted)
    if not args.yes:
        _show(preview, opened.cwd, as_json=args.json)
        return
    params = wire.ThreadCheckpointRestoreParams(
        **wanted.model_dump(), token=preview.token, conflicts="merge" if args.merge else "keep"
    )
    done = await server.request(wire.THREAD_CHECKPOINT_RESTORE, params)
    if args.json:
        show_json(done.to_value())
        return
    show(restore_summary(done.files))
    for line in restore_lines(done.files, opened.cwd):
        show(f"  {line}")
    if done.turns:
        show(f"{len(done.turns)} turns left the conversation")
    if done.undo_turn_id is not None:
        eprint(f"app-server threads rewind {thread} --to {done.undo_turn_id} --restore files --yes undoes it")


def _list(listed: wire.ThreadCheckpointListResponse, *, as_json: bool) -> None:
    if as_json:
        show_json(listed.to_value())
        return
    for number, each in enumerate(listed.data, 1):
        show(f"{number:>3}  {each.turn_id}  {each.files_changed:>4} files  {each.words}")
    for restore in listed.restores:
        show(f"     {restore.undo_turn_id}  {restore.files_changed:>4} files  (restored; go back to undo it)")
    if not listed.data:
        eprint("the thread has no message to go back to")


def _show(preview: wire.ThreadCheckpointPreviewResponse, cwd: str, *, as_json: bool) -> None:
    if as_json:
        show_json(preview.to_value())
        return
    show(f"{restore_summary(preview.files)}; {len(preview.turns)} turns leave the conversation")
    for line in restore_lines(preview.files, cwd):
        show(f"  {line}")
    if needs_consent(preview.files):
        eprint("`--uncertain` takes back what changed while a command ran, too")
    eprint("nothing was done; `--yes` does it")


def _turn(named: str, listed: Sequence[wire.ThreadCheckpoint]) -> str:
    """Return the id that a number of the list, or an id, names. Raises CommandFailed."""
    if not named.isdecimal():
        return named
    if not 1 <= int(named) <= len(listed):
        raise CommandFailed(
            f"there is no message {named}", f"`app-server threads rewind` lists {len(listed)} of them"
        )
    return listed[int(named) - 1].turn_id
