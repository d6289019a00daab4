"""Summarises, for display by clients, what a command line seems to do: read a file, list files, search, or unknown.

The summary is a guess from the arguments alone. People read it beside the command itself. No decision depends on it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

from msgspec.structs import replace

from app_server.engine.approvals.shell.quote import join, split
from app_server.engine.approvals.shell.shell_script import OPERATORS, split_for_display
from app_server_protocol.engine.item_values import (
    ListFilesCommand,
    ParsedCommand,
    ReadCommand,
    SearchCommand,
    UnknownCommand,
)

Words = Sequence[str]
Summary = Callable[[str, Words], ParsedCommand | None]

_LS_VALUED = ("-I", "-w", "--block-size", "--format", "--time-style", "--color", "--quoting-style")
_FD_VALUED = ("-t", "--type", "-e", "--extension", "-E", "--exclude", "--search-path")
_NL_VALUED = ("-s", "-w", "-v", "-i", "-b")
_UNTELLING_FOLDERS = ("build", "dist", "node_modules", "src")


def summarize(words: Words) -> ParsedCommand:
    shown = join(words)
    summary = _SUMMARIES.get(words[0]) if words else None
    return (summary(shown, words[1:]) if summary else None) or UnknownCommand(cmd=shown)


def only_formats(words: Words) -> bool:
    """Return whether a command only shapes the output of the one before it in a pipeline."""
    match words:
        case [
            "wc" | "tr" | "cut" | "sort" | "uniq" | "xargs" | "tee" | "column" | "awk" | "yes" | "printf",
            *_,
        ]:
            return True
        case ["head" | "tail", *rest]:
            return len(rest) < 2
        case ["sed", *rest]:
            return len(rest) < 3 or not (rest[0] == "-n" and _is_line_range(rest[1]))
        case _:
            return False


def shortens_output(command: str) -> bool:
    """Return whether a command shows the first or last lines of another command's output."""
    match split(command):
        case ["head" | "tail", "-n" | "-c", count]:
            return _is_number(count.removeprefix("+"))
        case _:
            return False


def short_path(path: str) -> str:
    """Return the part of a path by which people recognise it."""
    trimmed = path.replace("\\", "/").rstrip("/")
    for part in reversed(trimmed.split("/")):
        if part and part not in _UNTELLING_FOLDERS:
            return part
    return trimmed


def _read(shown: str, path: str) -> ParsedCommand:
    return ReadCommand(cmd=shown, name=short_path(path), path=path)


def _ls(shown: str, tail: Words) -> ParsedCommand:
    path = _operand(_without_values(tail, _LS_VALUED))
    return ListFilesCommand(cmd=shown, path=None if path is None else short_path(path))


def _rg(shown: str, tail: Words) -> ParsedCommand:
    tail = _until_operator(tail)
    operands = _operands(tail)
    if "--files" in tail:
        return _search(shown, None, _nth(operands, 0))
    return _search(shown, _nth(operands, 0), _nth(operands, 1))


def _grep(shown: str, tail: Words) -> ParsedCommand:
    operands = _operands(_until_operator(tail))
    return _search(shown, _nth(operands, 0), _nth(operands, 1))


def _fd(shown: str, tail: Words) -> ParsedCommand:
    operands = _operands(_without_values(_until_operator(tail), _FD_VALUED))
    if len(operands) == 1 and _looks_like_path(operands[0]):
        return _search(shown, None, operands[0])
    return _search(shown, _nth(operands, 0), _nth(operands, 1))


def _find(shown: str, tail: Words) -> ParsedCommand:
    tail = _until_operator(tail)
    path = next((word for word in tail if not word.startswith("-") and word not in ("!", "(", ")")), None)
    tests = pairwise(tail)
    query = next((value for test, value in tests if test in ("-name", "-iname", "-path", "-regex")), None)
    return _search(shown, query, path)


def _cat(shown: str, tail: Words) -> ParsedCommand | None:
    match tail:
        case ["--", path]:
            return _read(shown, path)
        case [path] if path != "--":
            return _read(shown, path)
        case _:
            return None


def _is_number(text: str) -> bool:
    return all(c in "0123456789" for c in text)


def _is_offset(text: str) -> bool:
    return text not in ("", "+") and _is_number(text.removeprefix("+"))


def _head_or_tail(shown: str, tail: Words, is_count: Callable[[str], bool]) -> ParsedCommand | None:
    match tail:
        case ["-n", count, *rest] if is_count(count):
            path = _operand(rest)
        case [first, *rest] if first.startswith("-n") and first != "-n" and is_count(first[2:]):
            path = _operand(rest)
        case _:
            return None
    return None if path is None else _read(shown, path)


def _nl(shown: str, tail: Words) -> ParsedCommand | None:
    path = _operand(_without_values(tail, _NL_VALUED))
    return None if path is None else _read(shown, path)


def _sed(shown: str, tail: Words) -> ParsedCommand | None:
    if len(tail) >= 3 and tail[0] == "-n" and _is_line_range(tail[1]):
        return _read(shown, tail[2])
    return None


_SUMMARIES: dict[str, Summary] = {
    "ls": _ls,
    "rg": _rg,
    "grep": _grep,
    "fd": _fd,
    "find": _find,
    "cat": _cat,
    "head": partial(_head_or_tail, is_count=_is_number),
    "tail": partial(_head_or_tail, is_count=_is_offset),
    "nl": _nl,
    "sed": _sed,
}


def _search(shown: str, query: str | None, path: str | None) -> ParsedCommand:
    return SearchCommand(cmd=shown, query=query, path=None if path is None else short_path(path))


def _until_operator(words: Words) -> Words:
    return words[: next((n for n, word in enumerate(words) if word in OPERATORS), len(words))]


def _without_values(words: Words, valued: Sequence[str]) -> list[str]:
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*kept, *rest]
        if word in valued:
            next(rest, None)
        elif not (word.startswith("--") and "=" in word):
            kept.append(word)
    return kept


def _operands(words: Iterable[str]) -> list[str]:
    return [word for word in words if not word.startswith("-")]


def _operand(words: Iterable[str]) -> str | None:
    return _nth(_operands(words), 0)


def _nth(words: Words, number: int) -> str | None:
    return words[number] if number < len(words) else None


def _looks_like_path(word: str) -> bool:
    return word in (".", "..") or "/" in word or "\\" in word


def _is_line_range(script: str) -> bool:
    """Return whether it is a line range: `5p` or `5,9p`."""
    ends = script.removesuffix("p").split(",")
    return script.endswith("p") and len(ends) <= 2 and all(end and _is_number(end) for end in ends)


def parse_command(argv: Sequence[str]) -> tuple[ParsedCommand, ...]:
    script = _script_of(argv)
    summaries = _of_words(argv) if script is None else _of_script(script)
    return tuple(one for n, one in enumerate(summaries) if n == 0 or one != summaries[n - 1])


def _script_of(argv: Sequence[str]) -> str | None:
    if len(argv) == 3 and posixpath.basename(argv[0]) in ("bash", "zsh") and argv[1] in ("-c", "-lc"):
        return argv[2]
    return None


def _of_words(argv: Sequence[str]) -> list[ParsedCommand]:
    """Summarise an argument vector, which may contain operators: models sometimes forget the shell."""
    if len(argv) > 1 and argv[0] in ("yes", "y", "no", "n") and argv[1] == "|":
        argv = argv[2:]
    commands: list[list[str]] = [[]]
    for word in argv:
        if word in OPERATORS:
            commands.append([])
        else:
            commands[-1].append(word)
    if len(commands) > 1:
        commands = [words for words in commands if words]
    return _without_noise(_summaries(commands))


def _of_script(script: str) -> list[ParsedCommand]:
    commands = split_for_display(script)
    meaningful = [words for words in commands or () if not only_formats(words)]
    if not commands or not meaningful:
        return [UnknownCommand(cmd=script)]
    summaries = _summaries(meaningful)
    if len(summaries) > 1:
        summaries = _without_noise([one for one in summaries if one.cmd != "true"])
    if len(summaries) == 1:
        return [_shown_whole(summaries[0], script, is_single=len(commands) == 1)]
    return summaries


def _shown_whole(summary: ParsedCommand, script: str, *, is_single: bool) -> ParsedCommand:
    """Return the summary with the script as it is written, if the script does one thing and that is more
    informative.
    """
    if isinstance(summary, UnknownCommand):
        return summary
    words = split(script)
    if words is None:
        words = [script]
    if is_single and not OPERATORS.intersection(words):
        return replace(summary, cmd=join(words))
    numbered = any(pair == ("sed", "-n") for pair in pairwise(words))
    if isinstance(summary, ReadCommand) and "|" in words and numbered:
        return replace(summary, cmd=script)
    return summary


def _summaries(commands: Sequence[Words]) -> list[ParsedCommand]:
    """Summarise each command except `cd`, which changes the paths of the files that are read after it."""
    summaries: list[ParsedCommand] = []
    folder = ""
    for words in commands:
        if words and words[0] == "cd":
            folder = posixpath.join(folder, words[1]) if len(words) > 1 else folder
            continue
        summary = summarize(words)
        if folder and isinstance(summary, ReadCommand):
            summary = replace(summary, path=posixpath.join(folder, summary.path))
        summaries.append(summary)
    return summaries


def _without_noise(summaries: list[ParsedCommand]) -> list[ParsedCommand]:
    """Drop `echo` at the start, `true`, and line numbering, as long as something remains."""
    while len(summaries) > 1:
        noise = next((n for n, one in enumerate(summaries) if _is_noise(one, first=n == 0)), None)
        if noise is None:
            break
        summaries = summaries[:noise] + summaries[noise + 1 :]
    return summaries


def _is_noise(summary: ParsedCommand, *, first: bool) -> bool:
    if not isinstance(summary, UnknownCommand):
        return False
    words = split(summary.cmd) or [""]
    if words[0] == "nl":
        return all(word.startswith("-") for word in words[1:])
    return summary.cmd == "true" or (first and words[0] == "echo")
