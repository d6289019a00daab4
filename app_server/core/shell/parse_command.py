"""Summarises what a command line seems to do, for clients to display: `parse_command`.

People read the result beside the command itself. No decision depends on it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from app_server.core.shell.quote import join, split
from app_server.core.shell.script import OPERATORS, split_for_display
from app_server.core.shell.summaries import only_formats, summarize
from protocol.events.commands import ParsedCommand, ReadCommand, UnknownCommand

Words = Sequence[str]


def parse_command(argv: Sequence[str]) -> tuple[ParsedCommand, ...]:
    script = _script_of(argv)
    summaries = _of_words(argv) if script is None else _of_script(script)
    return tuple(one for n, one in enumerate(summaries) if n == 0 or one != summaries[n - 1])


def _script_of(argv: Sequence[str]) -> str | None:
    if len(argv) == 3 and posixpath.basename(argv[0]) in ("bash", "zsh") and argv[1] in ("-c", "-lc"):
        return argv[2]
    return None


def _of_words(argv: Sequence[str]) -> list[ParsedCommand]:
    """Models sometimes forget the shell, so an argument vector may contain operators."""
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
    """A script that does one thing is displayed as written where that is more informative."""
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
    """One for each command except `cd`, which changes the paths of the files read after it."""
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
    """Drops `echo` at the start, `true`, and line numbering, as long as something remains."""
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
