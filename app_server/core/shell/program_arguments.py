"""What the arguments of shells, wrappers and `find` say about the commands and scripts that they run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from app_server.core.shell.nested_commands import INTERPRETERS
from app_server.core.shell.quote import word_set
from app_server.core.shell.word_expansion import expand_braces

MAX_NAME = 500
"""Characters of a program's name that are looked at one by one."""
MAX_SCRIPT_WORDS = 4
"""Words behind `-c` of which one is the script: others may be values of options."""
MAX_PARAMETERS = 32

Words = Sequence[str]

WRAPPERS = word_set(
    "env command builtin exec nohup time nice ionice timeout gtimeout stdbuf setsid chroot unshare nsenter flock chrt "
    "taskset strace ltrace busybox toybox xargs parallel coproc caffeinate unbuffer noglob nocorrect watch ssh script "
    "function setpriv runuser systemd-run fakeroot firejail bwrap proot hyperfine tmux screen entr perf valgrind "
    "setarch linux32 linux64 cgexec eatmydata sudo doas"
)
BULK = frozenset({"xargs", "parallel"})
"""They run a command with words from their input."""
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"})

_GRAMMAR = word_set("! { if then elif else while until do")
ASSIGNMENT = re.compile(r"\w+(\[[^\]]*\])?\+?=")
_SCRIPT_OPTION = re.compile(r"-[a-zA-Z]*c[a-zA-Z]*|--command")
_SHELL_VALUED = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_QUOTED_WORD = re.compile(r"([\"'])([^\s\"']*)\1")
_GLOB = re.compile(r"[*?[]")
_EXPANSIONS = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|`[^`]*`|\$\w+")


def program_name(word: str) -> str:
    return word.rpartition("/")[2]


def programs_named(name: str, known: Iterable[str]) -> list[str]:
    """Return the name itself, or those of the known programs that a glob pattern stands for."""
    return [each for each in known if fnmatchcase(each, name)] if _GLOB.search(name) else [name]


def is_open_name(word: str) -> bool:
    """Tell whether the name of a program is known only when the script runs."""
    if len(word) > MAX_NAME:
        return "$" in word
    name = _EXPANSIONS.sub("$", word)
    # A blank or a parenthesis is left where one substitution holds another.
    is_nested = "$" in name and any(character in name for character in " \n()")
    return is_nested or "$" in program_name(name) or word == "{}"


def without_expansions(word: str) -> str:
    return _EXPANSIONS.sub("", word) if "$" in word and len(word) <= MAX_NAME else word


def runs_of_find(words: Words) -> Iterator[Words]:
    """Return the commands that `find` and `fd` are told to run."""
    run: list[str] = []
    in_run = False
    for word in words:
        option, _, value = word.partition("=")
        if word in _FIND_RUNS or option in _FIND_RUNS:
            if run:
                yield run
            run = [value] if value else []
            in_run = True
        elif in_run:
            run.append(word)
    if run:
        yield run


def after_prefixes(words: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out assignments, and words of the shell's grammar: behind `!` the parser takes those for commands."""
    at = 0
    while at < len(words) and (words[at] in _GRAMMAR or ASSIGNMENT.match(words[at])):
        at += 1
    return words[at:]


def operands_behind(words: Words) -> Words:
    return [word for word in words[1:] if word != "--"]


def scripts_of(words: Words) -> Iterator[tuple[str, Words]]:
    """Return the words that may be the script, if an option such as `-c` or `-lc` announces one, each with its
    parameters.
    """
    for at, word in enumerate(words):
        if _SCRIPT_OPTION.fullmatch(word):
            operands = [place for place in range(at + 1, len(words)) if not words[place].startswith("-")]
            for place in operands[:MAX_SCRIPT_WORDS]:
                yield words[place], words[place + 1 : place + 1 + MAX_PARAMETERS]
            return


def reads_input(words: Words, *, sources: bool) -> bool:
    """Tell whether a shell with these arguments runs its standard input, or what a substitution gives it as a file."""
    rest = iter(words)
    for word in rest:
        if word in _SHELL_VALUED and not sources:
            next(rest, None)
        elif (word == "-s" and not sources) or word in _STDIN or word.startswith(("<(", "/dev/fd/")):
            return True
        elif not word.startswith(("-", "+")):
            return False
    return not sources


def names_command(last: str) -> bool:
    """Tell whether `xargs` with this last word runs a command that does not come from its input."""
    name = program_name(last)
    return name not in WRAPPERS and name not in INTERPRETERS and name not in ("-c", "{}")


def fragment_words(part: str) -> Iterator[str]:
    """Return the words of a part of a script, as far as they are known without its syntax. Raises TooManyWords."""
    for word in _QUOTED_WORD.sub(r"\2", part).split():
        expanded = expand_braces(re.sub(r"\\(.)", r"\1", word))
        yield from expanded if len(expanded) > 1 else re.sub(r"[{},]", " ", expanded[0]).split()
