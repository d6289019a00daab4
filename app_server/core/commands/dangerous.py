"""Which commands ask even where everything is allowed: those that destroy what nothing brings back.

This is a net for mistakes, not a boundary: it finds what a command line shows, also behind control flow, wrappers,
nested shells and quoting, and leaves alone what merely mentions it. The sandbox is what holds against intent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from app_server.core.commands.destructive_git import git_destroys
from app_server.core.commands.found import INTERPRETERS, FoundCommand, commands_in
from app_server.core.commands.quote import word_set
from app_server.core.commands.shell_script import MAX_DISPLAY_CHARACTERS

MAX_DEPTH = 6

Words = Sequence[str]

_SHELLS = INTERPRETERS - {"eval", "source", "."}
_ALWAYS = word_set(
    "sudo doas su pkexec run0 shred wipefs fdisk sfdisk cfdisk gdisk sgdisk parted blkdiscard mkswap mke2fs newfs "
    "cryptsetup lvremove vgremove pvremove shutdown reboot halt poweroff"
)
_WRAPPERS = word_set(
    "env command builtin exec nohup time nice ionice timeout gtimeout stdbuf setsid chroot unshare nsenter flock chrt "
    "taskset strace ltrace busybox toybox xargs parallel coproc caffeinate unbuffer noglob nocorrect watch ssh script "
    "then do else"
)
_BULK = frozenset({"xargs", "parallel"})
_DELETERS = frozenset({"rm", "unlink", "shred"})
_FETCHERS = frozenset({"curl", "wget", "fetch", "base64", "xxd", "openssl", "nc", "ncat"})
_PRINTERS = frozenset({"echo", "printf"})

_DEVICE = re.compile(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|disk|rdisk|mapper/|md|dm-|loop|mem)")
_ROOT_LIKE = re.compile(
    r"(/|~|\$HOME|\$\{HOME\}|/(bin|boot|etc|home|lib|opt|root|sbin|usr|var|Users|System))?/?\*?"
)
_SEPARATORS = re.compile(r"[;&|()\n`]+")


def is_dangerous(argv: Words) -> bool:
    return _destroys(FoundCommand(tuple(argv)), 0)


def _script_destroys(script: str, depth: int) -> bool:
    # What is nested or long beyond reading is asked about.
    if depth > MAX_DEPTH or len(script) > MAX_DISPLAY_CHARACTERS:
        return True
    found = commands_in(script)
    if found is None or any(_destroys(command, depth) for command in found.commands):
        return True
    if any(_DEVICE.match(target) for target in found.written):
        return True
    return not found.is_clean and _fragments_destroy(script, depth)


def _fragments_destroy(script: str, depth: int) -> bool:
    """For a text that the parser gave up on: whether any part of it reads like a destructive command."""
    for part in _SEPARATORS.split(script):
        words = part.replace("{", " ").replace("}", " ").replace(",", " ").replace("\\", "").split()
        if _any_tail_destroys(FoundCommand(tuple(words)), depth):
            return True
    return False


def _destroys(command: FoundCommand, depth: int) -> bool:
    words = _after_assignments(command.words)
    if not words:
        return False
    program = words[0].rpartition("/")[2].lstrip("\\")
    rest = words[1:]
    if program in _ALWAYS or program.startswith("mkfs"):
        return True
    if program in _SHELLS:
        return _shell_destroys(command, rest, depth)
    if program in ("eval", "source", "."):
        return _is_fetched(command) or (program == "eval" and _script_destroys(" ".join(rest), depth + 1))
    if program in _WRAPPERS:
        return _wrapped_destroys(program, replace(command, words=rest), depth)
    if program in ("find", "fd", "fdfind"):
        return _find_destroys(rest, depth)
    if program == "trap":
        return bool(rest) and _script_destroys(rest[0], depth + 1)
    if (judge := _PROGRAMS.get(program)) is not None:
        return judge(rest)
    # The name comes from an expansion; options like these give it away.
    return program.startswith(("$", "`")) and _forces(rest, both=True)


def _after_assignments(words: tuple[str, ...]) -> tuple[str, ...]:
    at = 0
    while at < len(words) and re.match(r"\w+=", words[at]):
        at += 1
    return words[at:]


def _shell_destroys(command: FoundCommand, words: Words, depth: int) -> bool:
    scripts = _scripts_of(words)
    if any(_script_destroys(script, depth + 1) for script in scripts):
        return True
    if _is_fetched(command):
        return True
    reads_input = not scripts and all(word.startswith("-") for word in words)
    return reads_input and any(_script_destroys(text, depth + 1) for text in _texts_fed(command))


def _scripts_of(words: Words) -> Words:
    """What may be the script, once an option such as `-c` or `-lc` says that there is one."""
    for at, word in enumerate(words):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command", word):
            return [later for later in words[at + 1 :] if not later.startswith("-")]
    return ()


def _texts_fed(command: FoundCommand) -> list[str]:
    printed = [" ".join(words[1:]) for words in command.fed_by if words and words[0] in _PRINTERS]
    return [text.replace("\\n", "\n") for text in (*printed, command.fed_text) if text]


def _is_fetched(command: FoundCommand) -> bool:
    """Whether what would be executed comes from elsewhere, unseen."""
    return any(words and words[0].rpartition("/")[2] in _FETCHERS for words in command.fed_by)


def _wrapped_destroys(program: str, command: FoundCommand, depth: int) -> bool:
    """Wrappers have options of many kinds, so whatever follows may be the command."""
    words = command.words
    if program in _BULK and any(word.rpartition("/")[2] in _DELETERS for word in words):
        return True
    if program in ("env", "watch", "ssh", "script", "parallel") and any(
        " " in word and _script_destroys(word, depth + 1) for word in words
    ):
        return True
    return _any_tail_destroys(command, depth)


def _any_tail_destroys(command: FoundCommand, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return True
    for at, word in enumerate(command.words):
        tail = replace(command, words=command.words[at:])
        # A wrapper tries its own tails.
        if word.rpartition("/")[2] in _WRAPPERS:
            return _destroys(tail, depth + 1)
        if _destroys(tail, depth + 1):
            return True
    return False


def _find_destroys(words: Words, depth: int) -> bool:
    if "-delete" in words:
        return True
    for at, word in enumerate(words[:-1]):
        if word in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            program = words[at + 1].rpartition("/")[2]
            if program in _DELETERS or _destroys(FoundCommand(tuple(words[at + 1 :])), depth + 1):
                return True
    return False


def _rm(words: Words) -> bool:
    return _forces(words)


def _forces(words: Words, *, both: bool = False) -> bool:
    """Whether options make a removal recursive or keep it from asking."""
    forced = recursive = False
    for word in words:
        if word == "--":
            break
        if word.startswith("--"):
            forced |= "--force".startswith(word) or word == "--no-preserve-root"
            recursive |= "--recursive".startswith(word)
        elif word.startswith("-"):
            forced |= "f" in word
            recursive |= "r" in word or "R" in word
    return (forced and recursive) if both else (forced or recursive)


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
