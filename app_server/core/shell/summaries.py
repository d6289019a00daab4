"""Summarises one plain command: it reads a file, lists files, searches, or is unknown.

A guess for display, from the arguments alone. No decision depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

from app_server.core.shell.program_words import (
    Words,
    nth,
    operand,
    operands_in,
    until_operator,
    without_values,
)
from app_server.core.shell.quote import join, split, word_set
from protocol.events.commands import (
    ListFilesCommand,
    ParsedCommand,
    ReadCommand,
    SearchCommand,
    UnknownCommand,
)

Summary = Callable[[str, Words], ParsedCommand | None]

_LISTERS = {
    "ls": word_set("-I -w --block-size --format --time-style --color --quoting-style"),
    "tree": word_set("-L -P -I -o --filelimit --charset --timefmt --sort"),
    "du": word_set("-d -B -t -X --max-depth --block-size --threshold --exclude --exclude-from"),
    "exa": word_set("-L -s -t -I --level --sort --time --ignore-glob --time-style --color"),
    "eza": word_set("-L -s -t -I -w --level --sort --time --ignore-glob --time-style --color --width"),
}
"""Programs that list files, with their options that take a value."""

_READERS = {
    "cat": frozenset[str](),
    "bat": word_set(
        "-l -H -r -m --language --highlight-line --line-range --map-syntax --style --theme --tabs --wrap"
    ),
    "less": word_set("-b -h -j -k -o -O -p -P -t -T -x -y -z"),
    "more": word_set("-n --lines"),
    "nl": word_set("-s -w -v -i -b"),
}
_READERS["batcat"] = _READERS["bat"]

_GREP_VALUED = word_set(
    "-A -B -C -d -D -m --after-context --before-context --context --max-count --include --exclude --exclude-dir"
)
_RG_VALUED = _GREP_VALUED | word_set(
    "-E -g -j -M -r -t -T --encoding --glob --iglob --threads --max-columns --max-depth --max-filesize --replace "
    "--sort --sortr --type --type-not"
)
_AG_VALUED = _GREP_VALUED | word_set("-G --file-search-regex --ignore --depth")
_FD_VALUED = word_set("-t --type -e --extension -E --exclude --search-path")
_AWK_VALUED = word_set("-F -v --field-separator --assign")
_UNTELLING_FOLDERS = ("build", "dist", "node_modules", "src")


def summarize(words: Words) -> ParsedCommand:
    shown = join(words)
    summary = _SUMMARIES.get(words[0]) if words else None
    return (summary(shown, words[1:]) if summary else None) or UnknownCommand(cmd=shown)


def only_formats(words: Words) -> bool:
    """Whether a command only shapes the output of the one before it in a pipeline."""
    match words:
        case [
            "wc" | "tr" | "cut" | "sort" | "uniq" | "xargs" | "tee" | "column" | "yes" | "printf",
            *_,
        ]:
            return True
        case ["awk", *rest]:
            return _awk("", rest) is None
        case ["head" | "tail", *rest]:
            return not rest or (len(rest) == 1 and rest[0].startswith("-"))
        case ["sed", *rest]:
            return _sed("", rest) is None
        case _:
            return False


def shortens_output(command: str) -> bool:
    """Whether a command shows the first or last lines of what another one prints."""
    match split(command):
        case ["head" | "tail", "-n" | "-c", count]:
            return _is_number(count.removeprefix("+"))
        case _:
            return False


def short_path(path: str) -> str:
    """The part of a path by which people recognise it."""
    trimmed = path.replace("\\", "/").rstrip("/")
    for part in reversed(trimmed.split("/")):
        if part and part not in _UNTELLING_FOLDERS:
            return part
    return trimmed


def _read(shown: str, path: str) -> ParsedCommand:
    return ReadCommand(cmd=shown, name=short_path(path), path=path)


def _list(valued: frozenset[str], shown: str, tail: Words) -> ParsedCommand:
    path = operand(without_values(tail, valued))
    return ListFilesCommand(cmd=shown, path=None if path is None else short_path(path))


def _search_in(valued: frozenset[str], shown: str, tail: Words) -> ParsedCommand | None:
    operands = operands_in(without_values(until_operator(tail), valued))
    return _search(shown, operands[0], nth(operands, 1)) if operands else None


def _rg(shown: str, tail: Words) -> ParsedCommand | None:
    if "--files" in until_operator(tail):
        return _search(shown, None, operand(without_values(until_operator(tail), _RG_VALUED)))
    return _search_in(_RG_VALUED, shown, tail)


def _git(shown: str, tail: Words) -> ParsedCommand | None:
    match tail:
        case ["grep", *rest]:
            return _search_in(_GREP_VALUED, shown, rest)
        case ["ls-files", *rest]:
            return _list(word_set("-x -X --exclude --exclude-from"), shown, rest)
        case _:
            return None


def _fd(shown: str, tail: Words) -> ParsedCommand:
    operands = operands_in(without_values(until_operator(tail), _FD_VALUED))
    if len(operands) == 1 and _looks_like_path(operands[0]):
        return _search(shown, None, operands[0])
    return _search(shown, nth(operands, 0), nth(operands, 1))


def _find(shown: str, tail: Words) -> ParsedCommand:
    tail = until_operator(tail)
    path = next((word for word in tail if not word.startswith("-") and word not in ("!", "(", ")")), None)
    tests = pairwise(tail)
    query = next((value for test, value in tests if test in ("-name", "-iname", "-path", "-regex")), None)
    return _search(shown, query, path)


def _read_one(valued: frozenset[str], shown: str, tail: Words) -> ParsedCommand | None:
    """Of several files, none is the one that is read."""
    operands = without_values(tail, valued)
    if "--" not in tail:
        operands = [word for word in operands if word == "-" or not word.startswith("-")]
    return _read(shown, operands[0]) if len(operands) == 1 else None


def _head(shown: str, tail: Words) -> ParsedCommand | None:
    return _head_or_tail(shown, tail, _is_number)


def _tail(shown: str, tail: Words) -> ParsedCommand | None:
    return _head_or_tail(
        shown, tail, lambda count: bool(count.removeprefix("+")) and _is_number(count.removeprefix("+"))
    )


def _head_or_tail(shown: str, tail: Words, is_count: Callable[[str], bool]) -> ParsedCommand | None:
    match tail:
        case ["-n", count, *rest] if is_count(count):
            path = operand(rest)
        case [first, *rest] if first.startswith("-n") and first != "-n" and is_count(first[2:]):
            path = operand(rest)
        case [path] if not path.startswith("-"):
            pass
        case _:
            return None
    return None if path is None else _read(shown, path)


def _nl(shown: str, tail: Words) -> ParsedCommand | None:
    path = operand(without_values(tail, _READERS["nl"]))
    return None if path is None else _read(shown, path)


def _sed(shown: str, tail: Words) -> ParsedCommand | None:
    match tail:
        case ["-n", "-e", script, path, *_] | ["-n", script, path, *_] if _is_line_range(script):
            return _read(shown, path)
        case _:
            return None


def _awk(shown: str, tail: Words) -> ParsedCommand | None:
    """The first file behind the program, which `-f` takes from a file."""
    operands = operands_in(without_values(tail, _AWK_VALUED))
    path = nth(operands, 1)
    return None if path is None else _read(shown, path)


_SUMMARIES: dict[str, Summary] = {
    **{name: partial(_list, valued) for name, valued in _LISTERS.items()},
    **{name: partial(_read_one, valued) for name, valued in _READERS.items()},
    **{name: partial(_search_in, _GREP_VALUED) for name in ("grep", "egrep", "fgrep")},
    **{name: partial(_search_in, _AG_VALUED) for name in ("ag", "ack", "pt")},
    "rg": _rg,
    "rga": _rg,
    "git": _git,
    "fd": _fd,
    "find": _find,
    "head": _head,
    "tail": _tail,
    "nl": _nl,
    "sed": _sed,
    "awk": _awk,
}


def _search(shown: str, query: str | None, path: str | None) -> ParsedCommand:
    return SearchCommand(cmd=shown, query=query, path=None if path is None else short_path(path))


def _looks_like_path(word: str) -> bool:
    return word in (".", "..") or "/" in word or "\\" in word


def _is_number(text: str) -> bool:
    return all(c in "0123456789" for c in text)


def _is_line_range(script: str) -> bool:
    """`5p` or `5,9p`."""
    ends = script.removesuffix("p").split(",")
    return script.endswith("p") and len(ends) <= 2 and all(end and _is_number(end) for end in ends)
