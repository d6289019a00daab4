"""Commands that need an approval in every sandbox and without one: those that destroy what cannot be restored.

The check catches mistakes; it is not a security boundary. It finds every command that a command line shows, including
commands behind control flow, wrappers, nested shells and quoting. It ignores text that only mentions such a command.
The sandbox protects against intent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from app_server.engine.approvals.shell import reachable_commands
from app_server.engine.approvals.shell.git_commands import git_destroys
from app_server.engine.approvals.shell.nested_commands import INTERPRETERS, FoundCommand
from app_server.engine.approvals.shell.quote import word_set

Words = Sequence[str]

_ALWAYS = word_set(
    "sudo doas su pkexec run0 shred wipefs fdisk sfdisk cfdisk gdisk sgdisk parted blkdiscard mkswap mke2fs newfs "
    "cryptsetup lvremove vgremove pvremove shutdown reboot halt poweroff"
)
_DELETERS = frozenset({"rm", "unlink", "shred"})
_FETCHERS = word_set("curl wget fetch base64 base32 xxd openssl nc ncat rev")

_DEVICE = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|dm-|loop|mem)")
_ROOT_LIKE = re.compile(
    r"(/|~|\$HOME|\$\{HOME\}|/(bin|boot|etc|home|lib|opt|root|sbin|usr|var|Users|System))?/?\*?"
)
_ENCODED = re.compile(r"(?:^|\s)-e(c|nc?o?d?e?d?c?o?m?m?a?n?d?)?\s", re.IGNORECASE)
_POWERSHELL_REMOVAL = re.compile(
    r"\b(remove-item|ri|rm|del|erase|rd|rmdir)\b[^;|\n]*\s-(r|fo)", re.IGNORECASE
)
_LARGER = re.compile(r"(-\w*s|--s\w*=)?[+>]")
"""Prefix of a size that `truncate` only adds to a file, or that is a minimum."""
MAX_PATTERN = 32


def is_dangerous(argv: Words) -> bool:
    """Return whether a command line is destructive. One that is too large to be inspected counts as destructive."""
    return any(found is None or _destroys(found) for found in reachable_commands.commands_of(argv))


def _destroys(command: FoundCommand) -> bool:
    """Return whether this one command is destructive, without regard to the commands that it runs."""
    if any(_DEVICE.match(target) for target in command.written):
        return True
    if not command.words:
        return False
    name, rest = reachable_commands.program_name(command.words[0]), command.words[1:]
    if name in INTERPRETERS:  # the script comes from a download or a decoder, so this module cannot see it
        return any(
            words and reachable_commands.program_name(words[0]) in _FETCHERS for words in command.fed_by
        )
    if reachable_commands.is_open_name(command.words[0]):
        # The program is not known, but such options show a removal.
        return _forces(rest) == {"force", "recursive"}
    names = reachable_commands.programs_named(name, _KNOWN) if len(name) <= MAX_PATTERN else [name]
    return any(_program_destroys(each, rest) for each in names)


def _program_destroys(name: str, words: Words) -> bool:
    if name in _ALWAYS or name.startswith("mkfs"):
        return True
    judge = _PROGRAMS.get(name)
    return judge is not None and judge(words)


def _find(words: Words) -> bool:
    return "-delete" in words or any(map(_deletes, reachable_commands.runs_of_find(words)))


def _deletes(run: Words) -> bool:
    """Return whether a command, perhaps in wrappers, deletes the files in its arguments."""
    for word in run:
        name = reachable_commands.program_name(word)
        if name in _DELETERS:
            return True
        if not (name in reachable_commands.WRAPPERS or word.startswith("-") or "=" in word):
            return False
    return False


def _forces(words: Words) -> set[str]:
    """Return the kinds of options that are present: options that make a removal recursive, or suppress its prompt."""
    found = set()
    for word in map(reachable_commands.without_expansions, words):
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


def _powershell(words: Words) -> bool:
    """Return whether a call of PowerShell is destructive. Names and options of PowerShell have no case, and options may
    be shortened.
    """
    text = " ".join(words)
    return _ENCODED.search(text) is not None or _POWERSHELL_REMOVAL.search(text) is not None


_PROGRAMS: Mapping[str, Callable[[Words], bool]] = {
    "rm": lambda words: bool(_forces(words)),
    "git": git_destroys,
    "dd": _dd,
    "chmod": _change_mode,
    "chown": _change_mode,
    "chgrp": _change_mode,
    "rsync": lambda words: any(word.startswith(("--del", "--remove-source")) for word in words),
    "crontab": lambda words: "-r" in words,
    "mv": lambda words: "/dev/null" in words[-1:],
    "truncate": lambda words: bool(words) and not any(_LARGER.match(word) for word in words),
    "tee": lambda words: any(_DEVICE.match(word) for word in words),
    "cp": lambda words: any(_DEVICE.match(word) for word in words[-1:]),
    "kill": lambda words: len(words) > 1 and words[-1] == "-1",
    "systemctl": lambda words: any(word in ("poweroff", "reboot", "halt", "kexec") for word in words),
    "init": lambda words: any(word in ("0", "6") for word in words),
    **dict.fromkeys(("find", "fd", "fdfind"), _find),
    **dict.fromkeys(
        reachable_commands.BULK,
        lambda words: any(reachable_commands.program_name(word) in _DELETERS for word in words),
    ),
    **dict.fromkeys(("pwsh", "powershell", "pwsh.exe", "powershell.exe"), _powershell),
}
_KNOWN = frozenset(_PROGRAMS) | _ALWAYS
