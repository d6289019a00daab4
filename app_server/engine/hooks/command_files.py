"""Finds the files that the command of a hook names: scripts, arguments, folders that it enters. Reads the disk.

It reads the words of a shell line, not their effect: a word counts as a path in the folder that the command has entered
before it. Left out is what a command writes, and what only a run could tell (`$(…)`, output of other programs).
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from app_server.engine.support.real_path import within

MOST_WORDS: Final = 200
"""Maximum number of words of a command that are looked for on the disk, and of files that one pattern stands for."""
_DEPTH: Final = 3
"""Maximum depth of command lines inside words, such as those of `sh -c`, and of defaults of variables."""

_TOP_LEVEL: Final = r"\$\(git rev-parse --show-toplevel(?: 2> ?/dev/null)?(?: \|\| (?:pwd|echo \.))?\)"
_HERE: Final = r"\$\(pwd\)|`pwd`"
_VARIABLE: Final = r"\$(?:\{([A-Za-z_]\w*)(?::?[-=]((?:[^{}]|\{[^{}]*\})*))?\}|([A-Za-z_]\w*))"
_ASSIGNMENT: Final = r"([A-Za-z_]\w*)=(.*)"
_PATTERN: Final = re.compile(r"[*?[]")
_ENTER: Final = frozenset({"cd", "pushd"})
"""Words before a folder in which all that follows is run."""
_ENTER_FOR_ONE: Final = frozenset({"-C", "--directory", "--chdir"})
"""Options before a folder in which one program goes on."""
_REDIRECTION: Final = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})
_SEPARATORS: Final = frozenset({";", "|", "||", "&&", "&", "(", ")", "\n", ";;", "|&"})
_RECORDS: Final = (".jsonl", ".log")
"""Ends of the names of files that a command is taken to write. A change of them is no change of what was agreed to."""


class HookPlace(Struct, frozen=True):
    """The surroundings of a hook on which the meaning of the words of its command depends."""

    cwd: str
    variables: Mapping[str, str]
    """Environment of the hooks, with `CLAUDE_PROJECT_DIR`, the root of the project."""

    @property
    def root(self) -> str:
        return self.variables.get("CLAUDE_PROJECT_DIR", self.cwd)

    def value(self, name: str) -> str:
        return self.variables.get(name, "") if name != "PWD" else self.cwd


def named_files(command: str, place: HookPlace) -> tuple[str, ...]:
    """Return the absolute paths of the files that the command names, in its order, each once. Files that the command
    writes are left out.
    """
    return existing_files(candidates(command, place))


def existing_files(paths: Mapping[str, bool]) -> tuple[str, ...]:
    return tuple(path for path in paths if is_named_file(path))


def is_named_file(path: str) -> bool:
    """Return whether a path is a file that counts: records, which hooks write themselves, do not."""
    return os.path.isfile(path) and not path.endswith(_RECORDS)


def candidates(command: str, place: HookPlace) -> Mapping[str, bool]:
    """Return the absolute paths that words of the command mean if they are names of files, and whether such a word is
    plainly a path. What the command writes is left out, also where another word means the same file.
    """
    text = re.sub(_HERE, "${PWD}", re.sub(_TOP_LEVEL, "${CLAUDE_PROJECT_DIR}", command))
    try:
        found = list(_named(text, _DEPTH))
    except ValueError:
        # A quotation that does not end. The shell will refuse the command; words are looked for all the same.
        found = [_Word(word) for word in re.split(r"[\s'\"]+", text)]
    place = HookPlace(place.cwd, _assigned(found, place))
    written = {path for word in found if word.is_written for path in _places_of(word, place)}
    paths: dict[str, bool] = {}
    for word in found[:MOST_WORDS]:
        for path in _paths(word, place) if word.text else ():
            if path not in written:
                paths[path] = paths.get(path, False) or "/" in word.text
    return paths


def _assigned(words: list[_Word], place: HookPlace) -> Mapping[str, str]:
    """Return the variables with those that the command sets itself."""
    variables = dict(place.variables)
    for word in words:
        if (match := re.fullmatch(_ASSIGNMENT, word.text, re.DOTALL)) is not None:
            variables[match[1]] = _expanded(match[2], HookPlace(place.cwd, variables))
    return variables


class _Word(Struct, frozen=True):
    """A word of a command."""

    text: str
    entered: tuple[str, ...] = ()
    """Folders that the command entered before, one after the other."""
    is_written: bool = False
    """Whether the command writes a file of this name."""


def _named(text: str, depth: int, entered: tuple[str, ...] = ()) -> Iterator[_Word]:
    previous, writes, here = "", False, entered
    outside: list[tuple[str, ...]] = []
    """Folders entered before each group that is open."""
    enters = ""
    for word in _words(text):
        is_target, previous = previous in _REDIRECTION, word
        if word in _SEPARATORS:
            writes, here, enters = False, entered, ""
            if word == "(":
                outside.append(entered)
            elif word == ")" and outside:
                here = entered = outside.pop()
        elif word == "tee":
            writes = True
        elif word in _ENTER or word in _ENTER_FOR_ONE:
            enters = word
        elif word in _REDIRECTION:
            continue
        elif is_target or writes:
            yield _Word(word, here, is_written=True)
        elif enters and not word.startswith("-"):
            here = (*here, word)
            entered = here if enters in _ENTER else entered
            enters = ""
        elif depth and any(character in " \t;|&" for character in word):
            yield _Word(word, here)
            yield from _named(word, depth - 1, here)
        else:
            yield from (_Word(value, here) for value in (word, *word.split("=", 1)[1:]))


def _words(text: str) -> Iterator[str]:
    """Yield the words and operators of a command line. Raises ValueError for a quotation that does not end."""
    reader = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars="();<>|&")
    reader.whitespace_split, reader.commenters = True, ""
    yield from reader


def _paths(word: _Word, place: HookPlace) -> Iterator[str]:
    """Yield the absolute paths that a word means if it names a file. A pattern for names in a folder outside of the
    project, where scripts of hooks may be, is the files there; within it, it stands for files that the agent works on.
    """
    project = (place.cwd, place.root)
    for path in _places_of(word, place):
        folder, name = os.path.split(path)
        is_pattern = _PATTERN.search(name) and not _PATTERN.search(folder)
        if is_pattern and not any(within(folder, each) for each in project):
            yield from sorted(islice(glob.iglob(path), MOST_WORDS))
        else:
            yield path


def _places_of(word: _Word, place: HookPlace) -> Iterator[str]:
    """Yield the absolute path of a word, below the working directory and below the project's root, to which many
    commands go first. Links are not resolved.
    """
    for folder in dict.fromkeys((place.cwd, place.root)):
        for each in (*word.entered, word.text):
            text = _expanded(each, HookPlace(folder, place.variables)).replace("\0", "")
            folder = os.path.normpath(os.path.join(folder, text))
        yield folder


def _expanded(word: str, place: HookPlace, depth: int = _DEPTH) -> str:
    """Return a word with the values of its variables, or their defaults."""
    if word == "~" or word.startswith("~/"):
        word = f"{place.variables.get('HOME', '')}{word[1:]}"

    def value(match: re.Match[str]) -> str:
        known = place.value(match[1] or match[3])
        if known or not match[2] or not depth:
            return known
        return _expanded(match[2], place, depth - 1)

    return re.sub(_VARIABLE, value, word)
