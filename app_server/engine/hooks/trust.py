"""Decides which hooks the user has agreed to: by the digest of the definition, and by digests of the files that the
command names. Reads the disk.

In codex, consent is for the definition alone, so a script that was rewritten since runs without a question. Here the
consent has the digests of the files as well. Consent that another program wrote has none: then the files count as they
were when the thread first saw them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final

from msgspec import Struct

from app_server.engine.config.hook_settings import HookState
from app_server.engine.hooks.hook_definitions import HookHandler, HookTrust
from app_server.engine.support.rooted_fs import TooLarge, read_named
from app_server_protocol.engine.hook_events import HookHandlerType, HookRole
from app_server_protocol.values import replace

MISSING: Final = "missing"
"""Digest of a file that does not exist."""
MOST_BYTES: Final = 16 << 20
"""Maximum size of a file whose content is read; a larger one is known by its size, inode and time of change."""
MOST_WORDS: Final = 200
"""Maximum number of words of a command that are looked for on the disk."""
_DEPTH: Final = 3
"""Maximum depth of command lines inside words, such as those of `sh -c`."""

_TOP_LEVEL: Final = r"\$\(git rev-parse --show-toplevel(?: 2> ?/dev/null)?\)"
_VARIABLE: Final = r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))"
_REDIRECTION: Final = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})
_SEPARATORS: Final = frozenset({";", "|", "||", "&&", "&", "(", ")", "\n", ";;", "|&"})
_RECORDS: Final = (".jsonl", ".log")
"""Ends of the names of files that a command is taken to write. A change of them is no change of what was agreed to."""


class HookPlace(Struct, frozen=True):
    """The surroundings of a hook on which the meaning of the words of its command depends."""

    cwd: str
    variables: Mapping[str, str]
    """Environment of the hooks, with `CLAUDE_PROJECT_DIR`, the root of the project."""


def named_files(command: str, place: HookPlace) -> tuple[str, ...]:
    """Return the absolute paths of the files that the command names, in its order, each once. Files that the command
    writes are left out.
    """
    return _files(candidates(command, place))


def _files(paths: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(path for path in paths if os.path.isfile(path) and not path.endswith(_RECORDS))


def candidates(command: str, place: HookPlace) -> Mapping[str, bool]:
    """Return the absolute paths that words of the command mean if they are names of files, and whether such a word is
    plainly a path. What the command writes is left out, also where another word means the same file.
    """
    try:
        text = re.sub(_TOP_LEVEL, "${CLAUDE_PROJECT_DIR}", command)
        found = list(_named(text, place, _DEPTH))
    except ValueError:
        # A quotation that does not end. The shell will refuse the command; words are looked for all the same.
        found = [_Word(word) for word in re.split(r"[\s'\"]+", command)]
    root = HookPlace(place.variables.get("CLAUDE_PROJECT_DIR", place.cwd), place.variables)
    written = {_path(word.text, at) for word in found if word.is_written for at in (place, root)}
    paths: dict[str, bool] = {}
    for word in found[:MOST_WORDS]:
        # Many commands go to the project's root first.
        for path in (_path(word.text, at) for at in (place, root) if word.text):
            if path not in written:
                paths[path] = paths.get(path, False) or "/" in word.text
    return paths


class _Word(Struct, frozen=True):
    """A word of a command."""

    text: str
    is_written: bool = False
    """Whether the command writes a file of this name."""


def _named(text: str, place: HookPlace, depth: int) -> Iterator[_Word]:
    previous, writes = "", False
    for word in _words(text):
        is_target, previous = previous in _REDIRECTION, word
        if word in _SEPARATORS:
            writes = False
        elif word == "tee":
            writes = True
        elif word in _REDIRECTION:
            continue
        elif is_target or writes:
            yield _Word(word, is_written=True)
        elif depth and any(character in " \t;|&" for character in word):
            yield _Word(word)
            yield from _named(word, place, depth - 1)
        else:
            yield from (_Word(value) for value in (word, *word.split("=", 1)[1:]))


def _words(text: str) -> Iterator[str]:
    """Yield the words and operators of a command line. Raises ValueError for a quotation that does not end."""
    reader = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars="();<>|&")
    reader.whitespace_split, reader.commenters = True, ""
    yield from reader


def _path(word: str, place: HookPlace) -> str:
    """Return the absolute path that a word means if it names a file. Links are not resolved."""
    if word.startswith("~/"):
        word = os.path.join(place.variables.get("HOME", "/"), word[2:])
    word = re.sub(_VARIABLE, lambda match: place.variables.get(match[1] or match[2], ""), word)
    return os.path.normpath(os.path.join(place.cwd, word.replace("\0", "")))


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
            while len(self._known) >= MOST_WORDS:
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
        files = _files(paths)
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
        if not os.path.isfile(path) or path.endswith(_RECORDS):
            return False
        name = os.path.basename(path)
        return plain or any(os.path.basename(each) == name for each in agreed)

    def digests_of(self, handler: HookHandler) -> Mapping[str, str]:
        """Return the digests of the files that a handler names, to which the user agrees with it. Blocks."""
        return self._digests_of(handler.named_files)

    def _digests_of(self, paths: tuple[str, ...]) -> Mapping[str, str]:
        return {path: self._digests.digest(path) for path in paths}
