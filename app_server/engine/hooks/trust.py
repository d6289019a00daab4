"""Decides which hooks the user has agreed to: by the digest of the definition, and by digests of the files that the
command names. Reads the disk.

In codex, consent is for the definition alone, so a script that was rewritten since runs without a question. Here the
consent has the digests of the files as well. Consent that another program wrote has none: then the files count as they
were when the thread first saw them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from app_server.engine.config.hook_settings import HookState
from app_server.engine.hooks.command_files import HookPlace, candidates, existing_files, is_named_file
from app_server.engine.hooks.hook_definitions import HookHandler, HookTrust
from app_server.engine.support.rooted_fs import TooLarge, read_named
from app_server_protocol.engine.hook_events import HookHandlerType, HookRole
from app_server_protocol.values import replace

MISSING: Final = "missing"
"""Digest of a file that does not exist."""
MOST_BYTES: Final = 16 << 20
"""Maximum size of a file whose content is read; a larger one is known by its size, inode and time of change."""
MOST_DIGESTS: Final = 200
"""Maximum number of files whose digests are remembered."""


class FileDigests:
    """Digests of files. A file that did not change since is not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def digest(self, path: str) -> str:
        """Return the digest of a file's content, `sha256:…`; `missing` if there is none that can be read. Blocks."""
        try:
            facts = os.stat(path)
        except (OSError, ValueError):
            return MISSING
        identity = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
        known = self._known.get(path)
        if known is None or known[0] != identity:
            while len(self._known) >= MOST_DIGESTS:
                del self._known[next(iter(self._known))]
            known = self._known[path] = identity, self._read(path, identity)
        return known[1]

    def _read(self, path: str, identity: tuple[int, ...]) -> str:
        try:
            return f"sha256:{sha256(read_named(path, MOST_BYTES)).hexdigest()}"
        except TooLarge:
            return f"file:{':'.join(map(str, identity[1:]))}"
        except OSError:
            return MISSING


class HookConsent:
    """The user's consent to the hooks of one thread. Remembers which hooks ran, and the files that were there then."""

    def __init__(self, digests: FileDigests | None = None) -> None:
        self._digests = digests or FileDigests()
        self._first_seen: dict[tuple[str, str, str], Mapping[str, str]] = {}
        """Digests of files, by the key and the digest of the hook and the working directory."""
        self._trusted: set[str] = set()
        """Keys of the hooks that were trusted before in this thread."""

    def judged(self, handler: HookHandler, state: HookState | None, place: HookPlace) -> HookHandler:
        """Return the handler with its trust, and with the files that it names. Blocks."""
        if handler.definition.type is not HookHandlerType.COMMAND:
            return replace(handler, enabled=False)
        paths = candidates(handler.definition.command, place)
        files = existing_files(paths)
        found = replace(handler, named_files=files, enabled=state is None or state.enabled)
        if state is None or state.trusted_hash is None:
            return found
        changed: tuple[str, ...] = ()
        if state.trusted_hash == handler.digest:
            agreed = state.trusted_files
            if agreed is None:
                seen = (handler.key, handler.digest, place.cwd)
                agreed = self._first_seen.setdefault(seen, self._digests_of(files))
            changed = tuple(path for path in paths if self._has_changed(path, agreed, plain=paths[path]))
        if state.trusted_hash == handler.digest and not changed:
            self._trusted.add(handler.key)
            return replace(found, trust=HookTrust.TRUSTED)
        # A guard that was in force does not merely vanish: whoever can change its script could switch it off.
        lapsed = handler.key in self._trusted and handler.event.has(HookRole.GUARDS)
        return replace(found, trust=HookTrust.LAPSED if lapsed else HookTrust.MODIFIED, changed_files=changed)

    def _has_changed(self, path: str, agreed: Mapping[str, str], *, plain: bool) -> bool:
        """Return whether a file differs from what the user agreed to. A file that came later counts where a word is
        plainly its path, or named a file before; else any word of a command could be made one, which would switch the
        hook off.
        """
        if path in agreed:
            return self._digests.digest(path) != agreed[path]
        if not is_named_file(path):
            return False
        name = os.path.basename(path)
        return plain or any(os.path.basename(each) == name for each in agreed)

    def digests_of(self, handler: HookHandler) -> Mapping[str, str]:
        """Return the digests of the files that a handler names, to which the user agrees with it. Blocks."""
        return self._digests_of(handler.named_files)

    def _digests_of(self, paths: tuple[str, ...]) -> Mapping[str, str]:
        return {path: self._digests.digest(path) for path in paths}
