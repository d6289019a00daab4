"""Lists, searches, reads, names, archives and deletes the stored conversations of one home. All async methods do their
disk access in a thread. Modules that few clients need are loaded on first use.

Archived conversations are in a folder of their own and not in the list. A rollout is moved or deleted only while no
server writes it. No existing file is ever replaced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio

from app_server.engine.storage import (
    index_file,
    rollout_names,
    rollout_reader,
    saved_turns,
    thread_listing,
)
from app_server.engine.storage.disk import (
    lock_rollout,
    make_private_folders,
    open_for_reading,
    opened,
    unlock_rollout,
)
from app_server.engine.storage.line_reader import (
    last_goal,
    last_turn_context,
    provider_named,
    without_collector,
)
from app_server.engine.storage.rollout_files import find, find_all, find_elsewhere
from app_server.engine.storage.rollout_names import ARCHIVED, SESSIONS
from app_server.engine.storage.segments import going_on_from
from app_server.engine.storage.thread_summary import MetadataStore, read_stored_thread, summarise
from app_server.engine.storage.turn_index import TurnIndexes, find_cut
from app_server.engine.storage.turn_pages import TurnHistory, open_history
from app_server.engine.support import private_folders
from app_server.engine.support.engine_errors import (
    ArchiveRefused,
    ConversationError,
    RolloutNotFound,
    describe,
)
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.real_path import real_path
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.ids import ConversationId

if TYPE_CHECKING:
    from app_server.engine.storage.pagination import FoundThread, ListRequest, Page, ThreadSummary, TurnCut
    from app_server.engine.storage.rollout_reader import StoredConversation
    from app_server.engine.storage.thread_listing import ThreadLists
    from app_server_protocol.engine.events import Goal, TurnRecord
    from app_server_protocol.ids import ConversationId
    from app_server_protocol.rollout import GitInfo, TurnContextItem


Result = TypeVar("Result")


class StoredConversations:
    def __init__(self, home: Path, now: Callable[[], float]) -> None:
        """Open the conversations of a home. `now` returns seconds since 1970."""
        self._home = home
        self._notes = MetadataStore(home, now)
        index = Lazy(lambda: index_file.IndexFile(home))
        self._indexes = TurnIndexes(Lazy(lambda: saved_turns.SavedTurns(index)))
        self._lists: Lazy[ThreadLists] = Lazy(
            lambda: thread_listing.ThreadLists(home, self._notes, now, index)
        )

    # --- lists
    async def list(self, request: ListRequest) -> Page[ThreadSummary]:
        """Return a page of conversations. Files that cannot be read are left out. Raises InvalidCursor."""
        return await run_in_thread(lambda: self._lists.get().page(request), abandon_on_cancel=True)

    async def search(self, request: ListRequest, term: str, loaded: Sequence[str]) -> Page[FoundThread]:
        """Return a page of conversations that have `term` in their messages or names. `loaded`: ids of conversations
        that change in this process. Of the filter, only the sources are used. Raises InvalidCursor.
        """
        return await run_in_thread(
            lambda: self._lists.get().search(request, term, loaded), abandon_on_cancel=True
        )

    async def read_ahead(self, *, messages: bool = False) -> None:
        """Read what a search will need in advance, with pauses: a user who looks at a long list will probably search in
        it. Returns at once if another call is reading ahead already.
        """
        lists = self._lists.get()
        lists.reads_messages = lists.reads_messages or messages
        if lists.reads_ahead:
            return
        lists.reads_ahead = True
        try:
            while True:
                rest = await run_in_thread(lists.read_ahead, abandon_on_cancel=True)
                if rest is None:
                    return
                await anyio.sleep(rest)
        finally:
            lists.reads_ahead = False

    # --- one conversation
    async def find(self, id: ConversationId, *, archived: bool = True) -> Path:
        """Return the path of a stored conversation, also in another home to which this home has a link. The archive is
        searched only with `archived`. Raises RolloutNotFound.
        """
        path = await run_in_thread(find, self._home, id) or await run_in_thread(
            find_elsewhere, self._home, id
        )
        if path is None and archived:
            path = await self.find_archived(id)
        if path is None:
            raise RolloutNotFound(f"no rollout found for conversation id {id}")
        return path

    async def find_archived(self, id: ConversationId) -> Path | None:
        """Return the path of an archived conversation; None if it is not in the archive."""
        return await run_in_thread(lambda: find(self._home, id, archived=True))

    async def summary(self, path: Path, default_provider: str) -> ThreadSummary:
        """Return the summary of a stored conversation. Raises RolloutUnreadable; its message contains nothing from the
        file.
        """
        return await run_in_thread(
            lambda: summarise(read_stored_thread(path), default_provider, self._notes.read())
        )

    async def turns(
        self,
        path: Path | None,
        id: str,
        ask: Callable[[TurnHistory], Result],
        running: TurnRecord | None = None,
        *,
        is_open: bool = False,
    ) -> Result:
        """Return the result of `ask`, which is called in a thread with the stored and running turns of a conversation.
        `is_open`: the conversation goes on in this process. Raises RolloutUnreadable.
        """

        def read() -> Result:
            with (
                open_history(path, id, self._indexes, running, is_open=is_open) as history,
                without_collector(),
            ):
                return ask(history)

        return await run_in_thread(read)

    async def show(
        self, turns: Sequence[TurnRecord], show: Callable[[Sequence[TurnRecord]], Result]
    ) -> Result:
        """Return the result of `show`, which is called in a thread with turns that were read already."""

        def convert() -> Result:
            with without_collector():
                return show(turns)

        return await run_in_thread(convert)

    async def read_open(
        self, path: Path, *, messages: bool = False, turns: bool = False
    ) -> StoredConversation:
        """Read a conversation that is open in this process, for a client that joins it: messages as events, or turns.
        Raises RolloutUnreadable.
        """
        return await run_in_thread(
            lambda: rollout_reader.read_rollout(path, messages=messages, turns=turns, is_open=True)
        )

    async def goal(self, path: Path) -> Goal | None:
        """Return the goal of a conversation; None if it has none. Raises RolloutUnreadable."""
        return await run_in_thread(last_goal, path)

    async def name(self, id: str) -> str | None:
        """Return the name that the user gave the conversation; None if it has none."""
        return (await run_in_thread(self._notes.read)).name(id)

    async def find_cut(self, path: Path, id: str, turn_id: str, *, behind: bool) -> TurnCut:
        """Return the cut before a turn; with `behind`, the cut after it. Raises TurnNotFound and RolloutUnreadable."""
        return await run_in_thread(lambda: find_cut(path, id, self._indexes, turn_id, behind=behind))

    async def last_settings(self, path: Path) -> TurnContextItem | None:
        """Return the settings of the last turn; None if no turn was stored. Raises RolloutUnreadable."""
        return await run_in_thread(last_turn_context, path)

    async def provider(self, path: Path) -> str | None:
        """Return the id of the provider that a conversation began with; None if it is not stored. Raises
        RolloutUnreadable.
        """

        def look() -> str | None:
            with opened(path) as fd:
                return provider_named(fd) or None

        return await run_in_thread(look)

    async def has(self, path: Path) -> bool:
        """Return whether a file is one of the home's conversations, after resolving links."""

        def look() -> bool:
            real = Path(real_path(path))
            return any(real.is_relative_to(real_path(self._home / folder)) for folder in (SESSIONS, ARCHIVED))

        return await run_in_thread(look)

    async def is_file(self, path: Path) -> bool:
        """Return whether there is a regular file at any path, in the home or elsewhere."""
        return await run_in_thread(path.is_file)

    async def folders(self, paths: Sequence[str]) -> frozenset[str]:
        """Return directories as conversations may have stored them: both the normalised paths and the real paths."""
        named = [os.path.normpath(path) for path in paths]
        real = await run_in_thread(lambda: [real_path(path) for path in named], abandon_on_cancel=True)
        return frozenset((*named, *real))

    # --- changes
    async def set_name(self, id: ConversationId, name: str) -> None:
        """Name a conversation. Raises OSError."""
        await run_in_thread(self._notes.set_name, id, name)

    async def set_revision(self, id: ConversationId, revision: GitInfo) -> None:
        """Store another state of the repository for a conversation. Raises OSError."""
        await run_in_thread(self._notes.set_revision, id, revision)

    async def require_archivable(self, id: ConversationId, path: Path) -> None:
        """Raise ArchiveRefused or ConversationError if this file of the conversation cannot be archived."""
        await run_in_thread(archivable, self._home, id, path)

    async def require_unused(self, path: Path) -> None:
        """Raise RolloutBusy if a server is writing the file."""
        await run_in_thread(require_unused, path)

    async def archive(self, id: ConversationId, path: Path) -> None:
        """Move the file to the archive. Raises like `require_archivable`, and RolloutBusy if a server is writing the
        file.
        """
        await run_in_thread(archive_rollout, self._home, id, path)

    async def unarchive(self, path: Path) -> Path:
        """Move an archived file back; return the new path. Raises ConversationError, and RolloutBusy if a server is
        writing the file.
        """
        return await run_in_thread(unarchive_rollout, self._home, path)

    async def delete(self, id: ConversationId, path: Path) -> None:
        """Delete the file, and all else that is stored for it. Raises ConversationError, RolloutBusy and
        OSError.
        """

        def delete() -> None:
            delete_rollout(self._home, path)
            self._notes.forget(id)
            private_folders.remove_folders_of(self._home, str(id))

        await run_in_thread(delete)


def archivable(home: Path, conversation_id: ConversationId, rollout: Path) -> Path:
    """Return the resolved path of the rollout, if it belongs to this conversation.

    Raises `ArchiveRefused` if it does not, and `ConversationError` if archiving is impossible.
    """
    try:
        sessions = (home / rollout_names.SESSIONS).resolve(strict=True)
    except OSError as error:
        raise ConversationError(
            f"failed to archive conversation: no sessions directory: {describe(error)}"
        ) from None
    try:
        real = (home / rollout).resolve(strict=True)
        inside = real.is_relative_to(sessions) and real.is_file()
    except (OSError, ValueError, RuntimeError):
        inside = False
    if not inside:
        raise ArchiveRefused(f"rollout path `{rollout}` must be in sessions directory")
    name = rollout_names.parse_rollout_name(real.name)
    if name is None or name.conversation_id != conversation_id.lower():
        raise ArchiveRefused(f"rollout path `{rollout}` does not match conversation id {conversation_id}")
    return real


def archive_rollout(home: Path, conversation_id: ConversationId, rollout: Path) -> Path:
    """Move a rollout to the archive; return the new path. Raises like `archivable`, and `RolloutBusy` if a server is
    writing the file.
    """
    real = archivable(home, conversation_id, rollout)
    for each in _others(home, conversation_id, real, archived=False):
        _move(each, home / rollout_names.ARCHIVED / each.name, "archive")
    return _move(real, home / rollout_names.ARCHIVED / real.name, "archive")


def unarchive_rollout(home: Path, rollout: Path) -> Path:
    """Move an archived rollout back to the folder of its day, and make it the one that was changed last; return the new
    path.

    Raises `ConversationError`, and `RolloutBusy` if a server is writing the file.
    """
    name = rollout_names.parse_rollout_name(rollout.name)
    if name is None:
        raise ConversationError(
            f"failed to unarchive conversation: {rollout.name} is not the name of a rollout"
        )
    for each in _others(home, name.conversation_id, rollout, archived=True):
        if (other := rollout_names.parse_rollout_name(each.name)) is not None:
            _move(each, rollout_names.stored_path(home, other).with_name(each.name), "unarchive")
    target = rollout_names.stored_path(home, name).with_name(rollout.name)
    moved = _move(rollout, target, "unarchive")
    os.utime(moved)
    return moved


def delete_rollout(home: Path, rollout: Path) -> None:
    """Delete the files of a conversation with their journals. Raises `ConversationError`, also if another conversation
    continues one of the files, and `RolloutBusy` if a server is writing one.
    """
    of_this = rollout_names.parse_rollout_name(rollout.name)
    archived, files = rollout.parent == home / ARCHIVED, [rollout]
    if of_this is not None:
        files = [*_others(home, of_this.conversation_id, rollout, archived=archived), rollout]
    names = [name for each in files if (name := rollout_names.parse_rollout_name(each.name)) is not None]
    ids = {name.segment or name.conversation_id for name in names}
    dependent = going_on_from(home, ids, files)
    if dependent is not None:
        raise ConversationError(
            f"failed to delete conversation: {dependent.name} goes on from it; delete that one first"
        )
    for each in files:
        with _exclusively(each, "delete"):
            rollout_names.journal_path(each).unlink(missing_ok=True)
            each.unlink()


def _others(home: Path, conversation_id: str, rollout: Path, *, archived: bool) -> list[Path]:
    """Return the other files of a conversation: codex begins a new file with each revert."""
    return [each for each in find_all(home, conversation_id, archived=archived) if each.name != rollout.name]


def require_unused(rollout: Path) -> None:
    """Raise `RolloutBusy` if a server is writing the rollout."""
    with _exclusively(rollout, "change"):
        pass


def _move(source: Path, target: Path, verb: str) -> Path:
    with _exclusively(source, verb):
        make_private_folders(target.parent)
        if os.path.lexists(target):
            raise ConversationError(f"failed to {verb} conversation: {target} exists already")
        os.rename(source, target)
        journal = rollout_names.journal_path(source)
        if os.path.isfile(journal):
            journal.rename(rollout_names.journal_path(target))
    return target


@contextmanager
def _exclusively(rollout: Path, verb: str) -> Iterator[None]:
    """Hold the rollout's write lock. An `OSError` becomes a `ConversationError`."""
    try:
        with ExitStack() as held:
            fd = open_for_reading(rollout)
            held.callback(os.close, fd)
            held.callback(unlock_rollout, fd, lock_rollout(fd, rollout))
            yield
    except OSError as error:
        raise ConversationError(f"failed to {verb} conversation: {describe(error)}") from None
