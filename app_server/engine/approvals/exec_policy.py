"""The rules of one conversation, and the files of the home from which they come: `rules/*.rules`.

The files are read when a conversation is opened. `default.rules` is extended by the user's answers to approvals. No
link is followed, and no file is used that another user could have written: anyone who can write these files decides
what runs without approval. Servers of one home may read and extend the files at the same time.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.engine.approvals import prefix_rules, rules_text
from app_server.engine.support.text_of_bytes import text_of_bytes
from app_server.engine.support.worker_threads import run_in_thread

if TYPE_CHECKING:
    from app_server.engine.approvals.prefix_rules import PrefixRules

FOLDER = "rules"
DEFAULT = "default.rules"
SUFFIX = ".rules"
MAX_BYTES = 256 * 1024
MOST_FILES = 64
LOCK_SECONDS = 1.0
RETRY_SECONDS = 0.01
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class RulesUnusable(Exception):
    """A file of rules that cannot be used. The text is a clause: `it is a link`."""


class FoundRules(Struct, frozen=True):
    rules: tuple[rules_text.PrefixRule, ...] = ()
    problems: tuple[str, ...] = ()
    """Sentences for the user about rules that are not in effect, and why."""


def read_rules(home: Path) -> FoundRules:
    """Return the rules of all files, in the order of their names."""
    rules: list[rules_text.PrefixRule] = []
    problems: list[str] = []
    try:
        with _folder(home) as folder:
            for name in _names(folder):
                text = _one(folder, name, problems, str(home / FOLDER / name))
                rules += text.rules
    except FileNotFoundError:
        pass
    except (OSError, RulesUnusable) as error:
        problems.append(f"{home / FOLDER} is not read, so no rule in it holds: {_reason(error)}")
    return FoundRules(tuple(rules), tuple(problems))


def append_rule(home: Path, words: Sequence[str]) -> None:
    """Append a rule that allows commands that begin with `words`. Raises OSError or RulesUnusable; then the file is
    unchanged.
    """
    with _folder(home, create=True) as folder:
        fd = os.open(DEFAULT, os.O_RDWR | os.O_CREAT | os.O_APPEND | _FILE_FLAGS, 0o600, dir_fd=folder)
        try:
            _lock(fd)
            _append(fd, rules_text.rule_line(words))
        finally:
            os.close(fd)
        os.fsync(folder)


def _append(fd: int, line: str) -> None:
    content = _content(fd)
    known = rules_text.parse_rules(_text(content))
    if known.damage is not None:
        raise RulesUnusable(f"it is damaged ({known.damage})")
    if set(rules_text.parse_rules(line).rules) <= set(known.rules):
        return
    added = ("\n" if content and not content.endswith(b"\n") else "") + line
    if len(content) + len(data := added.encode()) > MAX_BYTES:
        raise RulesUnusable(f"it would be larger than {MAX_BYTES:,} bytes")
    if os.write(fd, data) != len(data):
        os.ftruncate(fd, len(content))
        raise RulesUnusable("there is no room for it on the disk")
    os.fsync(fd)


def _one(folder: int, name: str, problems: list[str], path: str) -> rules_text.RulesText:
    try:
        fd = os.open(name, os.O_RDONLY | _FILE_FLAGS, dir_fd=folder)
        try:
            text = rules_text.parse_rules(_text(_content(fd)))
        finally:
            os.close(fd)
    except (OSError, RulesUnusable) as error:
        problems.append(f"{path} is not read, so no rule in it holds: {_reason(error)}")
        return rules_text.RulesText(())
    if text.damage is not None:
        problems.append(f"{path} is damaged, so nothing is allowed by it: {text.damage}")
    return text


@contextmanager
def _folder(home: Path, *, create: bool = False) -> Iterator[int]:
    top = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if create:
            try:
                os.mkdir(FOLDER, 0o700, dir_fd=top)
            except FileExistsError:
                pass
        folder = os.open(FOLDER, _FOLDER_FLAGS, dir_fd=top)
    finally:
        os.close(top)
    try:
        _check_owner(os.fstat(folder))
        yield folder
    finally:
        os.close(folder)


def _names(folder: int) -> list[str]:
    names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    if len(names) > MOST_FILES:
        raise RulesUnusable(f"it holds more than {MOST_FILES} files")
    return names


def _content(fd: int) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise RulesUnusable("it is not a regular file")
    if status.st_nlink != 1:
        raise RulesUnusable("it has more than one name, so it may be changed under another")
    _check_owner(status)
    if status.st_size > MAX_BYTES:
        raise RulesUnusable(f"it is larger than {MAX_BYTES:,} bytes")
    return os.pread(fd, MAX_BYTES + 1, 0)


def _check_owner(status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise RulesUnusable("it belongs to another user")
    if status.st_mode & stat.S_IWOTH:
        raise RulesUnusable("everybody may write it")


def _text(content: bytes) -> str:
    try:
        return text_of_bytes(content)
    except UnicodeDecodeError:
        return "\0"  # a text that no parser accepts


def _lock(fd: int) -> None:
    """Lock the file against other servers. A lock that is never released delays the rule and does not prevent it."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                return
            time.sleep(RETRY_SECONDS)
        else:
            return


def _reason(error: OSError | RulesUnusable) -> str:
    if isinstance(error, RulesUnusable):
        return str(error)
    is_link = error.errno in (errno.ELOOP, errno.EMLINK)
    return "it is a link" if is_link else (error.strerror or "it cannot be opened").lower()


log = logging.getLogger(__name__)


class ExecPolicy:
    """The rules, and the storage of new ones. Without a home, new rules last as long as the conversation."""

    def __init__(self, home: Path | None = None) -> None:
        self._home = home
        found = FoundRules() if home is None else read_rules(home)
        self._found = list(found.rules)
        self._rules: PrefixRules | None = None
        self.problems = found.problems
        """Sentences for the user about problems of the files."""

    def restriction(self, argv: Sequence[str]) -> rules_text.PrefixRule | None:
        """Return the strictest rule that asks about, or forbids, any command in this command line."""
        restricts = any(rule.decision is not rules_text.RuleDecision.ALLOW for rule in self._found)
        return self._applied().restriction(argv) if restricts else None

    def allows(self, words: Sequence[str]) -> bool:
        """Return whether this one command, without a shell around it, needs no approval."""
        return bool(self._found) and self._applied().allows(words)

    def proposal(self, argv: Sequence[str], trusts: Callable[[str], bool]) -> tuple[str, ...] | None:
        """Return the words of the rule that an approval of this command may propose. None if there is none."""
        return self._applied().proposal(argv, trusts)

    def _applied(self) -> PrefixRules:
        if self._rules is None:
            self._rules = prefix_rules.PrefixRules(self._found)
        return self._rules

    async def keep(self, words: Sequence[str]) -> str | None:
        """Allow commands that begin with `words`, in this conversation and in those that are opened later. Return the
        reason if the rule cannot be stored for the latter; otherwise None.
        """
        rule = rules_text.rule_for(words)
        self._applied().add(rule)
        self._found.append(rule)
        home = self._home
        if home is None:
            return None
        try:
            await run_in_thread(append_rule, home, words)
        except (OSError, RulesUnusable) as error:
            log.warning("a rule was not stored: %s", error)
            return f"The rule holds for this thread only, because it could not be stored: {error}"
        return None
