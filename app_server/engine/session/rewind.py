"""Restores of an open conversation: refuses them while something works there, and shows what they do.

The text of a difference is from the present content of a file to the one that is restored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from app_server.engine.checkpoints import carry_out, restore
from app_server.engine.session.session_services import SessionServices
from app_server.engine.support.real_path import real_path
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.repository import find_repository
from app_server.engine.workspace.patch.diff import unified_hunks
from app_server_protocol.engine.events import TurnRecord
from app_server_protocol.engine.items import UserMessage
from app_server_protocol.event_items import TextInput

if TYPE_CHECKING:
    from app_server.engine.checkpoints.carry_out import Restored
    from app_server.engine.checkpoints.history import RecordedChanges
    from app_server.engine.checkpoints.preview import Preview

MAX_DIFFED: Final = 256 * 1024
"""Maximum size of a content of which a difference is shown, in bytes."""
MOST_DIFFED: Final = 200
"""Maximum number of files of which a difference is shown."""
CONTEXT_LINES: Final = 3
MOST_WORDS: Final = 200
"""Maximum length of the beginning of a message, in characters."""
TURN_RUNS: Final = "nothing was restored: a turn of this thread runs"


class Rewinds:
    """The checkpoints of one conversation."""

    def __init__(self, services: SessionServices) -> None:
        self._services = services
        self._checkpoints, self._thread = services.checkpoints.get(), services.conversation.id

    async def recorded(self) -> RecordedChanges:
        """Return what is recorded of the conversation."""
        return await self._checkpoints.recorded(self._thread)

    async def preview(self, before: Sequence[str], *, uncertain: bool) -> Preview | None:
        """Plan a restore to the time before the first of these turns of which changes are recorded; None if there is
        none. Raises RestoreRefused.
        """
        recorded = await self.recorded()
        id = next((id for id in before if recorded.index_of(id) is not None), None)
        if id is None:
            return None
        return await self._checkpoints.preview(self._thread, id, uncertain=uncertain)

    async def restore(
        self, before: str, *, token: str | None, conflicts: Literal["keep", "merge"], uncertain: bool
    ) -> Restored:
        """Put the files back to the time before a turn or restore. Raises RestoreRefused."""
        if (busy := await self.busy()) is not None:
            raise restore.RestoreRefused(busy)
        return await self._checkpoints.restore(
            self._thread, before, token=token, conflicts=conflicts, uncertain=uncertain
        )

    async def busy(self) -> str | None:
        """Return the reason why a restore is impossible now: a command runs there. None if it is possible."""
        for root in await self.roots():
            if self._services.commands.runner.runs_in(root):
                return f"nothing was restored: a command runs in {root}"
        return None

    async def roots(self) -> list[str]:
        """Return the roots of the repositories or folders in which turns have worked."""
        recorded = await self.recorded()
        cwd = self._services.commands.roots.real(self._services.state.settings.cwd)
        folders = {cwd, *(span.root for span in recorded.spans if span.root)}
        return sorted({await run_in_thread(root_of, folder) for folder in folders})

    async def shared_root(self, cwd: str) -> str | None:
        """Return the root that contains a working directory, if turns of this conversation have worked there, too."""
        root = await run_in_thread(root_of, cwd)
        return root if root in await self.roots() else None

    async def diffs(self, plan: Preview) -> Mapping[str, str]:
        """Return the differences of the files that are restored, as far as they are short texts."""
        files = [each for each in plan.plan.files if each.writes][:MOST_DIFFED]
        states = [state for each in files for state in (each.target, each.present) if state is not None]
        contents = await plan.contents.read(await plan.contents.find(each.digest for each in states))
        home = self._services.conversation.config.home
        found: dict[str, str] = {}
        for each in files:
            present = contents.get(each.present.digest) if each.present is not None else b""
            if present is None:
                present = await run_in_thread(carry_out.present_content, home, each.path, each.present)
            restored = contents.get(each.target.digest) if each.target is not None else b""
            text = await run_in_thread(_difference, each.path, present, restored)
            if text:
                found[each.path] = text
        return found


def root_of(folder: str) -> str:
    """Return the root of the repository that contains a folder, or the folder itself. Blocks."""
    repository = find_repository(Path(folder))
    return real_path(folder) if repository is None else str(repository.root)


def words_of(turn: TurnRecord) -> str:
    """Return the beginning of the message that began a turn."""
    texts = (
        part.text
        for ended in turn.items
        if isinstance(ended.item, UserMessage)
        for part in ended.item.content
        if isinstance(part, TextInput)
    )
    return " ".join(next(texts, "").split())[:MOST_WORDS]


def _difference(path: str, present: bytes | None, restored: bytes | None) -> str | None:
    if present is None or restored is None or b"\0" in present or b"\0" in restored:
        return None
    if max(len(present), len(restored)) > MAX_DIFFED:
        return None
    old, new = present.decode("utf-8", "replace"), restored.decode("utf-8", "replace")
    hunks = unified_hunks(old, new, CONTEXT_LINES)
    name = os.path.basename(path)
    return f"--- {name}\n+++ {name}\n{hunks}" if hunks else None
