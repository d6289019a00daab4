"""Which commands need an approval even where everything is allowed: those that destroy what cannot be restored.

This catches mistakes; it is not a security boundary. It finds what a command line shows, also behind control flow,
wrappers, nested shells and quoting, and ignores text that only mentions such a command. The sandbox holds against
intent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from app_server.core.shell.destructive_git import git_destroys
from app_server.core.shell.nested_commands import INTERPRETERS, FoundCommand, commands_in
from app_server.core.shell.quote import word_set

MAX_DEPTH = 8
MAX_WORK = 200_000
"""Characters of scripts plus words of commands that one inspection may visit, plus ten for each visit."""

Words = Sequence[str]

_ALWAYS = word_set(
    "sudo doas su pkexec run0 shred wipefs fdisk sfdisk cfdisk gdisk sgdisk parted blkdiscard mkswap mke2fs newfs "
    "cryptsetup lvremove vgremove pvremove shutdown reboot halt poweroff"
)
WRAPPERS = word_set(
    "env command builtin exec nohup time nice ionice timeout gtimeout stdbuf setsid chroot unshare nsenter flock chrt "
    "taskset strace ltrace busybox toybox xargs parallel coproc caffeinate unbuffer noglob nocorrect watch ssh script "
    "then do else"
)
_TAKING_SCRIPTS = frozenset({"env", "watch", "ssh", "script", "parallel"})
_BULK = frozenset({"xargs", "parallel"})
_DELETERS = frozenset({"rm", "unlink", "shred"})
_FETCHERS = frozenset({"curl", "wget", "fetch", "base64", "xxd", "openssl", "nc", "ncat"})
_PRINTERS = frozenset({"echo", "printf"})

_DEVICE = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|dm-|loop|mem)")
_ROOT_LIKE = re.compile(
    r"(/|~|\$HOME|\$\{HOME\}|/(bin|boot|etc|home|lib|opt|root|sbin|usr|var|Users|System))?/?\*?"
)
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})
_ASSIGNMENT = re.compile(r"\w+=")
_SCRIPT_OPTION = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*|--command")
_SEPARATORS = re.compile(r"[;&|()\n`]+")


def is_dangerous(argv: Words) -> bool:
    return _Inspection().destroys(FoundCommand(tuple(argv)))


class _Inspection:
    """Inspects one command line, and what is nested in it, within a fixed amount of work.

    A command line that exceeds the amount counts as dangerous.
    """

    def __init__(self) -> None:
        self._left = MAX_WORK
        self._depth = 0

    def destroys(self, command: FoundCommand) -> bool:
        if self._is_spent(len(command.words)):
            return True
        words = _after_assignments(command.words)
        if not words:
            return False
        program, rest = _base(words[0]), words[1:]
        if program in _ALWAYS or program.startswith("mkfs"):
            return True
        if (nested := self._nested.get(program)) is not None:
            return nested(self, replace(command, words=rest))
        if program in WRAPPERS:
            return self._wrapped(program, replace(command, words=rest))
        if (judge := _PROGRAMS.get(program)) is not None:
            return judge(rest)
        # The name comes from an expansion; options like these give it away.
        return program.startswith(("$", "`")) and _forces(rest) == {"force", "recursive"}

    def _script(self, script: str) -> bool:
        """Whether a script that some shell will run destroys anything."""
        if self._is_spent(len(script)) or self._depth == MAX_DEPTH:
            return True
        self._depth += 1
        try:
            return self._parsed_script(script)
        finally:
            self._depth -= 1

    def _is_spent(self, size: int) -> bool:
        self._left -= 10 + size
        return self._left < 0

    def _parsed_script(self, script: str) -> bool:
        found = commands_in(script)
        if found is None or any(map(self.destroys, found.commands)):
            return True
        if any(_DEVICE.match(target) for target in found.written):
            return True
        return not found.is_clean and self._fragments(script)

    def _fragments(self, script: str) -> bool:
        """For a script with syntax errors: whether any part of it looks like a destructive command."""
        parts = (re.sub(r"[{},\\]", " ", part).split() for part in _SEPARATORS.split(script))
        return any(self._any_tail(FoundCommand(tuple(words))) for words in parts)

    def _any_tail(self, command: FoundCommand) -> bool:
        if self._depth == MAX_DEPTH:
            return True
        self._depth += 1
        try:
            return self._tails(command)
        finally:
            self._depth -= 1

    def _tails(self, command: FoundCommand) -> bool:
        for at, word in enumerate(command.words):
            if self.destroys(replace(command, words=command.words[at:])):
                return True
            if _base(word) in WRAPPERS:
                return False  # `_wrapped` has tried the tails of this wrapper
        return False

    def _wrapped(self, program: str, command: FoundCommand) -> bool:
        """Wrappers have options of many kinds, so any word after the name may start the command."""
        if program in _BULK and any(_base(word) in _DELETERS for word in command.words):
            return True
        if program in _TAKING_SCRIPTS and any(" " in word and self._script(word) for word in command.words):
            return True
        return self._any_tail(command)

    def _shell(self, command: FoundCommand) -> bool:
        scripts = scripts_of(command.words)
        if any(map(self._script, scripts)) or _is_fetched(command):
            return True
        reads_input = not scripts and all(word.startswith("-") for word in command.words)
        return reads_input and any(map(self._script, _texts_fed(command)))

    def _eval(self, command: FoundCommand) -> bool:
        return _is_fetched(command) or self._script(" ".join(command.words))

    def _source(self, command: FoundCommand) -> bool:
        return _is_fetched(command)

    def _trap(self, command: FoundCommand) -> bool:
        return bool(command.words) and self._script(command.words[0])

    def _find(self, command: FoundCommand) -> bool:
        words = command.words
        if "-delete" in words:
            return True
        runs = [words[at + 1 :] for at, word in enumerate(words[:-1]) if word in _FIND_RUNS]
        return any(_base(run[0]) in _DELETERS or self.destroys(FoundCommand(run)) for run in runs)

    _nested: Mapping[str, Callable[[_Inspection, FoundCommand], bool]] = {
        **dict.fromkeys(INTERPRETERS, _shell),
        "eval": _eval,
        "source": _source,
        ".": _source,
        "trap": _trap,
        **dict.fromkeys(("find", "fd", "fdfind"), _find),
    }


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _after_assignments(words: tuple[str, ...]) -> tuple[str, ...]:
    at = 0
    while at < len(words) and _ASSIGNMENT.match(words[at]):
        at += 1
    return words[at:]


def scripts_of(words: Words) -> Words:
    """The words that may be the script, if an option such as `-c` or `-lc` announces one."""
    for at, word in enumerate(words):
        if _SCRIPT_OPTION.fullmatch(word):
            return [later for later in words[at + 1 :] if not later.startswith("-")]
    return ()


def _texts_fed(command: FoundCommand) -> list[str]:
    printed = [" ".join(words[1:]) for words in command.fed_by if words and words[0] in _PRINTERS]
    return [text.replace("\\n", "\n") for text in (*printed, command.fed_text) if text]


def _is_fetched(command: FoundCommand) -> bool:
    """Whether the executed script comes from a download or a decoder, where this module cannot see it."""
    return any(words and _base(words[0]) in _FETCHERS for words in command.fed_by)


def _rm(words: Words) -> bool:
    return bool(_forces(words))


def _forces(words: Words) -> set[str]:
    """Which options are present that make a removal recursive or suppress its prompt."""
    found = set()
    for word in words:
        if word == "--":
            break
        if word.startswith("--"):
            found |= {name for name in ("force", "recursive") if f"--{name}".startswith(word)}
            found |= {"force"} if word == "--no-preserve-root" else set()
        elif word.startswith("-"):
            found |= {
                name
                for letter, name in (("f", "force"), ("r", "recursive"), ("R", "recursive"))
                if letter in word
            }
    return found


def _dd(words: Words) -> bool:
    return any(word.startswith("of=") and word not in ("of=/dev/null", "of=/dev/stdout") for word in words)


def _change_mode(words: Words) -> bool:
    recursive = any(word == "--recursive" or re.fullmatch(r"-\w*R\w*", word) for word in words)
    return recursive and any(word and _ROOT_LIKE.fullmatch(word) for word in words)


_PROGRAMS: Mapping[str, Callable[[Words], bool]] = {
    "rm": _rm,
    "git": git_destroys,
    "dd": _dd,
    "chmod": _change_mode,
    "chown": _change_mode,
    "chgrp": _change_mode,
    "rsync": lambda words: any(word.startswith(("--del", "--remove-source")) for word in words),
    "crontab": lambda words: "-r" in words,
    "mv": lambda words: "/dev/null" in words[-1:],
    "tee": lambda words: any(_DEVICE.match(word) for word in words),
    "cp": lambda words: any(_DEVICE.match(word) for word in words[-1:]),
    "kill": lambda words: len(words) > 1 and words[-1] == "-1",
    "systemctl": lambda words: any(word in ("poweroff", "reboot", "halt", "kexec") for word in words),
    "init": lambda words: any(word in ("0", "6") for word in words),
}
