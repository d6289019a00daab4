"""Every command that a command line may run, including commands in arguments of interpreters, wrappers and others.

The module also reads the commands and scripts in the arguments of shells, wrappers and `find`. If a script runs text
that its words do not show (`$x`, `eval "$line"`, `… | { bash; }`), the texts of the script are searched as if they were
run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import chain, islice
from posixpath import normpath

from app_server.engine.approvals.shell.git_commands import git_scripts
from app_server.engine.approvals.shell.nested_commands import (
    INTERPRETERS,
    FoundCommand,
    FoundScript,
    commands_in,
)
from app_server.engine.approvals.shell.quote import word_set
from app_server.engine.approvals.shell.word_expansion import TooManyWords, expand_braces, printed
from app_server_protocol.values import replace

MAX_NAME = 500
"""Maximum length of a program's name that is examined, in characters."""
MAX_SCRIPT_WORDS = 4
"""Maximum number of words after `-c` that may be the script: others may be values of options."""
MAX_PARAMETERS = 32

Words = Sequence[str]

WRAPPERS = word_set(
    "env command builtin exec nohup time nice ionice timeout gtimeout stdbuf setsid chroot unshare nsenter flock chrt "
    "taskset strace ltrace busybox toybox xargs parallel coproc caffeinate unbuffer noglob nocorrect watch ssh script "
    "function setpriv runuser systemd-run fakeroot firejail bwrap proot hyperfine tmux screen entr perf valgrind "
    "setarch linux32 linux64 cgexec eatmydata sudo doas"
)
BULK = frozenset({"xargs", "parallel"})
"""Programs that run a command with words from their input."""
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
    """Return the name itself, or the known programs that match it if it is a glob pattern."""
    return [each for each in known if fnmatchcase(each, name)] if _GLOB.search(name) else [name]


def is_open_name(word: str) -> bool:
    """Return whether the name of a program is known only when the script runs."""
    if len(word) > MAX_NAME:
        return "$" in word
    name = _EXPANSIONS.sub("$", word)
    # A blank or a parenthesis is left if one substitution is inside another.
    is_nested = "$" in name and any(character in name for character in " \n()")
    return is_nested or "$" in program_name(name) or word == "{}"


def without_expansions(word: str) -> str:
    return _EXPANSIONS.sub("", word) if "$" in word and len(word) <= MAX_NAME else word


def runs_of_find(words: Words) -> Iterator[Words]:
    """Yield the commands that `find` and `fd` run by these arguments."""
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
    """Return the words without leading assignments and words of the shell's grammar: after `!` the parser reads those
    as commands.
    """
    at = 0
    while at < len(words) and (words[at] in _GRAMMAR or ASSIGNMENT.match(words[at])):
        at += 1
    return words[at:]


def scripts_of(words: Words) -> Iterator[tuple[str, Words]]:
    """Yield the words that may be the script, each with its parameters, if there is an option such as `-c` or `-lc`."""
    for at, word in enumerate(words):
        if _SCRIPT_OPTION.fullmatch(word):
            operands = [place for place in range(at + 1, len(words)) if not words[place].startswith("-")]
            for place in operands[:MAX_SCRIPT_WORDS]:
                yield words[place], words[place + 1 : place + 1 + MAX_PARAMETERS]
            return


def reads_input(words: Words, *, sources: bool) -> bool:
    """Return whether a shell with these arguments runs its standard input, or a file that a substitution provides."""
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
    """Return whether `xargs` with this last word runs a command that does not come from its input."""
    name = program_name(last)
    return name not in WRAPPERS and name not in INTERPRETERS and name not in ("-c", "{}")


def fragment_words(part: str) -> Iterator[str]:
    """Yield the words of a part of a script, as far as they are known without its syntax. Raises TooManyWords."""
    for word in _QUOTED_WORD.sub(r"\2", part).split():
        expanded = expand_braces(re.sub(r"\\(.)", r"\1", word))
        yield from expanded if len(expanded) > 1 else re.sub(r"[{},]", " ", expanded[0]).split()


MAX_CHARACTERS = 10_000

PROGRAM_OPTIONS = frozenset({"tar", "rsync", "scp", "sftp", "sort", "split", "rg", "zip"})
"""Names of programs with options that name a command."""

_PROGRAM_OPTION = re.compile(r"(?:--?\w[\w-]*=|-o|-I)(?:\w+=)?(.+)", re.DOTALL)
_CALLS = re.compile(r"system|popen|subprocess|exec|spawn|\||qx|`")
_STRINGS = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`\n]*)`|qx[{(]([^})\n]*)[})]")
_SED_EXECUTION = re.compile(r"(?:^|[\s;{}/\d$])e\s+(.+)")
_SED_SUBSTITUTION = re.compile(r"s(.)(?:(?!\1).)*\1((?:(?!\1).)*)\1\w*e")


def embedded_scripts(program: str, words: Sequence[str]) -> Iterator[str]:
    """Yield the texts that a program with these arguments most likely passes to a shell."""
    for word in words:
        if len(word) > MAX_CHARACTERS:
            continue
        if program in PROGRAM_OPTIONS:
            yield from (match[1] for match in [_PROGRAM_OPTION.fullmatch(word)] if match)
        elif program == "sed":
            yield from (match[1] for match in _SED_EXECUTION.finditer(word))
            yield from (match[2] for match in _SED_SUBSTITUTION.finditer(word))
        elif _CALLS.search(word):
            yield from (next(filter(None, match.groups()), "") for match in _STRINGS.finditer(word))


MAX_DEPTH = 8
MAX_WORK = 200_000
"""Limit of the work of one inspection: characters of scripts plus words of commands, plus ten for each visit."""
PARSING = 200
"""Work of parsing a script, however short, in the unit of `MAX_WORK`."""
MAX_SUSPECT_CHARACTERS = 2_000
MAX_SUSPECTS = 200
MAX_SUSPECT_WORK = 50_000
"""Limit of the work for suspect texts. Texts beyond it are not searched: such texts are seldom run."""

Reached = Iterator[FoundCommand | None]
"""Commands that were found. None stands for unknown commands: the command line is too large to be inspected whole."""

_TAKING_SCRIPTS = frozenset(
    {"env", "watch", "ssh", "script", "parallel", "hyperfine", "tmux", "screen", "flock", "runuser", "perf"}
)
_FINDERS = frozenset({"find", "fd", "fdfind"})

_ATTACHED_SCRIPT = re.compile(r"--[\w-]+=|-[a-zA-Z0]*?[Sc]")
"""Prefix of the value of `-S` of env, and of `-c` of script and flock, if both are in one word."""
_SETTING = re.compile(r"-?\w+=\|?")
"""Prefix of a value: `-oProxyCommand=` of ssh, or an assignment."""
_OTHER_LANGUAGES = re.compile(r"([gmn]?awk|perl|python[\d.]*|ruby|node|php|lua|sed)$")
_SEPARATORS = re.compile(r"[;&|()\n`]+")
_REDIRECTION = re.compile(r"\d*(?:>>|<>|[<>])[&|]?(?:\d*-(?=\s))?|&>>?")


def commands_of(argv: Words) -> Reached:
    return _Search().commands(FoundCommand(tuple(argv)), 0)


class _Search:
    """Searches one command line and its nested commands, within a fixed amount of work."""

    def __init__(self) -> None:
        self._left = MAX_WORK
        self._left_for_suspects = MAX_SUSPECT_WORK
        self._runs_unseen = False

    def commands(self, command: FoundCommand, depth: int) -> Reached:
        if self._is_spent(len(command.words)) or depth >= MAX_DEPTH:
            yield None
            return
        words = after_prefixes(command.words)
        if not words:
            return
        command = replace(command, words=words)
        yield command
        if is_open_name(words[0]):
            self._runs_unseen = True
            # The expansion may be empty: then the next word is the program.
            plain = tuple(filter(None, map(without_expansions, words)))
            yield from self.commands(replace(command, words=plain), depth + 1)
        elif self._runs_unseen and " " in words[0]:
            yield from self._texts_as_scripts(words[:1], depth + 1)
        program, inner = program_name(words[0]), replace(command, words=words[1:])
        if program in INTERPRETERS:
            yield from self._interpreter(program, inner, depth + 1)
        elif program == "trap":
            operands = (word for word in words[1:] if word != "--")
            yield from chain.from_iterable(self._script(word, depth + 1) for word in islice(operands, 1))
        elif program in _FINDERS:
            for run in runs_of_find(words):
                yield from self.commands(FoundCommand(tuple(run)), depth)
        elif program == "git":
            yield from chain.from_iterable(self._script(text, depth + 1) for text in git_scripts(words[1:]))
        elif program in PROGRAM_OPTIONS or _OTHER_LANGUAGES.match(program):
            yield from self._texts_as_scripts(embedded_scripts(program, words[1:]), depth + 1)
        elif program in WRAPPERS:
            yield from self._wrapped(program, inner, depth + 1)

    def _is_spent(self, size: int) -> bool:
        self._left -= 10 + size
        return self._left < 0

    def _script(self, script: str, depth: int, parameters: Words = (), *, is_certain: bool = True) -> Reached:
        """Search a script that a shell runs, or with `is_certain` false, may run: then it is not searched for
        fragments.
        """
        if self._is_spent(PARSING + len(script)) or depth >= MAX_DEPTH:
            yield None
            return
        found = commands_in(script, tuple(parameters))
        if found is None:
            yield None
            return
        yield from chain.from_iterable(self.commands(command, depth) for command in found.commands)
        yield FoundCommand((), written=found.written)
        yield from chain.from_iterable(self._script(inner, depth + 1) for inner in found.scripts)
        if not found.is_clean and is_certain:
            yield from self._fragments(script, depth)
        self._runs_unseen |= found.evaluates or _runs_what_it_wrote(found)
        if self._runs_unseen:
            yield from self._texts_as_scripts((*_texts_of(found.commands), *found.texts), depth + 1)

    def _texts_as_scripts(self, texts: Iterable[str], depth: int) -> Reached:
        """Search texts as scripts. Long texts, and texts that are no scripts, are most likely no commands."""
        short = dict.fromkeys(text for text in texts if 0 < len(text) <= MAX_SUSPECT_CHARACTERS)
        left, self._left = self._left, min(self._left, self._left_for_suspects)
        for text in list(short)[:MAX_SUSPECTS]:
            yield from filter(None, self._script(text, depth, is_certain=False))
        self._left, self._left_for_suspects = left, min(self._left, self._left_for_suspects)

    def _fragments(self, script: str, depth: int) -> Reached:
        """Search the parts of a script with syntax errors, as far as they can be separated."""
        for part in _SEPARATORS.split(_REDIRECTION.sub(" ", script.replace("\\\n", ""))):
            try:
                words = tuple(fragment_words(part))
            except TooManyWords:
                yield None
                return
            yield from self._tails(FoundCommand(words), depth + 1)

    def _tails(self, command: FoundCommand, depth: int) -> Reached:
        for at, word in enumerate(command.words):
            yield from self.commands(replace(command, words=command.words[at:]), depth)
            if program_name(word) in WRAPPERS:
                return  # the tails of this command have been visited

    def _wrapped(self, program: str, command: FoundCommand, depth: int) -> Reached:
        """Yield the commands that a wrapper may run. Wrappers have options of many kinds, so any word after the name
        may start the command.
        """
        words = command.words
        if program in _TAKING_SCRIPTS:
            for at, word in enumerate(words):
                if match := _ATTACHED_SCRIPT.match(word):
                    yield from self._script(" ".join((_split(word[match.end() :]), *words[at + 1 :])), depth)
                elif " " in word or "\\_" in word:
                    yield from self._script(_SETTING.sub("", _split(word)), depth)
        if program in BULK and words and not names_command(words[-1]):
            self._runs_unseen = True
        yield from self._tails(command, depth)

    def _interpreter(self, program: str, command: FoundCommand, depth: int) -> Reached:
        words = command.words
        if program == "eval":
            yield from self._script(" ".join(words[1:] if words[:1] == ("--",) else words), depth)
            return
        scripts = [] if program in ("source", ".") else list(scripts_of(words))
        for script, parameters in scripts:
            yield from self._script(script, depth, parameters)
        if not scripts and reads_input(words, sources=program in ("source", ".")):
            self._runs_unseen = True
            for text in filter(None, (*map(printed, command.fed_by), command.fed_text)):
                yield from self._script(text, depth)


def _texts_of(commands: Sequence[FoundCommand]) -> Iterator[str]:
    """Yield the texts in commands: their arguments as a line, the text that they print, and each argument of several
    words.
    """
    for command in commands:
        at = 1
        while at < len(command.words) and command.words[at].startswith("-"):
            at += 1
        yield " ".join(command.words[at:])
        if text := printed(command.words):
            yield text
        yield from (ASSIGNMENT.sub("", word) for word in command.words[1:] if " " in word)


def _runs_what_it_wrote(found: FoundScript) -> bool:
    """Return whether a command of the script is, or reads as a script, a file that the script writes."""
    written = {normpath(name) for name in found.written}
    for command in found.commands:
        if command.words[:1] == ("tee",):
            written |= set(map(normpath, command.words[1:]))
    return bool(written) and any(
        normpath(word) in written
        for command in found.commands
        for word in command.words[: 2 if program_name(command.words[0]) in INTERPRETERS else 1]
        if "/" in word or word != command.words[0]
    )


def _split(text: str) -> str:
    """Return the text with `\\_` replaced by a blank, as `env -S` reads it."""
    return text.replace("\\_", " ")
