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
from app_server_protocol.engine.hook_events import HookHandlerType
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
    paths = candidates(command, place)
    return tuple(path for path in paths if os.path.isfile(path) and not path.endswith(_RECORDS))


def candidates(command: str, place: HookPlace) -> tuple[str, ...]:
    """Return the absolute paths that words of the command mean if they are names of files."""
    try:
        text = re.sub(_TOP_LEVEL, "${CLAUDE_PROJECT_DIR}", command)
        found = dict.fromkeys(_paths(text, place, _DEPTH))
    except ValueError:
        # A quotation that does not end. The shell will refuse the command; words are looked for all the same.
        found = dict.fromkeys(_path(word, place) for word in re.split(r"[\s'\"]+", command) if word)
    return tuple(found)[:MOST_WORDS]


def _paths(text: str, place: HookPlace, depth: int) -> Iterator[str]:
    previous, writes = "", False
    for word in _words(text):
        is_target, previous = previous in _REDIRECTION, word
        if word in _SEPARATORS:
            writes = False
        elif is_target or writes or word in _REDIRECTION:
            continue
        elif word == "tee":
            writes = True
        elif depth and any(character in " \t;|&" for character in word):
            yield _path(word, place)
            yield from _paths(word, place, depth - 1)
        else:
            yield from (_path(value, place) for value in (word, *word.split("=", 1)[1:]) if value)


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
    """The user's consent to the hooks of one thread. Remembers which files were there when it first saw a hook."""

    def __init__(self, digests: FileDigests | None = None) -> None:
        self._digests = digests or FileDigests()
        self._first_seen: dict[tuple[str, str], Mapping[str, str]] = {}
        """Digests of files, by the key and the digest of the hook."""

    def judged(self, handler: HookHandler, state: HookState | None, place: HookPlace) -> HookHandler:
        """Return the handler with its trust, and with the files that it names. Blocks."""
        if handler.definition.type is not HookHandlerType.COMMAND:
            return replace(handler, enabled=False)
        command = handler.definition.command
        paths = named_files(command, place)
        found = replace(handler, named_files=paths, enabled=state is None or state.enabled)
        if state is None or state.trusted_hash is None:
            return found
        if state.trusted_hash != handler.digest:
            return replace(found, trust=HookTrust.MODIFIED)
        agreed = state.trusted_files
        if agreed is None:
            agreed = self._first_seen.setdefault((handler.key, handler.digest), self._digests_of(paths))
        gone = [path for path in candidates(command, place) if path in agreed and path not in paths]
        changed = tuple(
            path for path in (*paths, *gone) if self._digests.digest(path) != agreed.get(path, MISSING)
        )
        trust = HookTrust.MODIFIED if changed else HookTrust.TRUSTED
        return replace(found, trust=trust, changed_files=changed)

    def digests_of(self, handler: HookHandler) -> Mapping[str, str]:
        """Return the digests of the files that a handler names, to which the user agrees with it. Blocks."""
        return self._digests_of(handler.named_files)

    def _digests_of(self, paths: tuple[str, ...]) -> Mapping[str, str]:
        return {path: self._digests.digest(path) for path in paths}
