"""Command lines, parsed by the table of subcommands: help, and what is wrong with one.

A wrong command line ends the process with the exit status 2 and one form of error: where, what, and what to do.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from app_server import PROTOCOL_VERSION, __version__
from app_server.commands.options import CommandCode, add_server_options, any_of
from app_server.commands.rows import GROUPS, Example, Subcommand
from app_server.commands.table import COMMANDS, FAMILIES
from app_server.standard_streams import complain

PROGRAM = "app-server"
VERSION = f"{PROGRAM} {__version__} (protocol: codex-cli {PROTOCOL_VERSION})"
ABOUT = "A JSON-RPC app server over stdio with a whole coding agent inside."
MORE = f"`{PROGRAM} help COMMAND` shows the options of a command, and examples."
WRONG_COMMAND_LINE = 2
BY_NAME = {command.name: command for command in COMMANDS}


NO_OPTION = "\0"
"""Marks words behind `--` while the others are parsed: argparse keeps no place of them where options stand between."""


class Parsed(NamedTuple):
    code: CommandCode | None
    """None where there was no command: serve."""
    args: argparse.Namespace


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps words with a hyphen whole: they are to be typed."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors have the form of all others, and which takes no abbreviations."""

    def __init__(self, name: str, usage: str, description: str, epilog: str = "") -> None:
        super().__init__(
            prog=name,
            usage=" ".join(filter(None, (name, "[OPTIONS]", usage))),
            description=description,
            epilog=epilog,
            formatter_class=partial(_HelpFormatter, max_help_position=34),
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        self.fail(message.removeprefix("argument "))

    def fail(self, what: str, advice: str = "") -> NoReturn:
        """End the process because of a wrong command line."""
        complain(self.prog, what, advice or f"`{self.prog} --help` shows what can be given")
        raise SystemExit(WRONG_COMMAND_LINE)

    def parse_rest(self, words: Sequence[str], given: argparse.Namespace) -> argparse.Namespace:
        """Parse all words, on top of what was `given` before them. Options may stand between other arguments; what
        follows `--` is none.
        """
        own = words.index("--") if "--" in words else len(words)
        plain = [f"{NO_OPTION}{word}" for word in words[own + 1 :]]
        args, unknown = self.parse_known_intermixed_args([*words[:own], *plain], given)
        if unknown:
            meant = similar(unknown[0].partition("=")[0], self.option_names())
            self.fail(f"unexpected argument {_word(unknown[0])!r}", f"did you mean {meant}?" if meant else "")
        for name, value in vars(args).items():
            if isinstance(value, list):
                setattr(args, name, [_word(each) for each in value])
            else:
                setattr(args, name, _word(value))
        return args

    def option_names(self) -> Iterable[str]:
        """List the long options."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]


def _word(value: Any) -> Any:
    """Return a word without its mark, and other values as they are."""
    return value.removeprefix(NO_OPTION) if isinstance(value, str) else value


def parse(words: Sequence[str]) -> Parsed:
    """Parse a command line. Ends the process after `--help` and `--version`, and where it is wrong."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    given = argparse.Namespace()
    outer = _outer_parser()
    outer.parse_args(words, given)
    while given.words[:1] == [PROGRAM]:  # clients say it once or twice, with options around it
        outer.parse_args(given.words[1:], given)
    rest = given.words
    del given.words
    if not rest:
        return Parsed(None, given)
    command = _command(outer, rest)
    given.command, given.whole_parser = command.name, whole_parser
    code = code_of(command)
    return Parsed(code, parser_of(command, code).parse_rest(rest[command.name.count(" ") + 1 :], given))


def code_of(command: Subcommand) -> CommandCode:
    """Load the code of a command."""
    module = import_module(f"app_server.commands.{command.module}")
    code: CommandCode = module.CODE[command.name]
    return code


def parser_of(command: Subcommand, code: CommandCode) -> CommandParser:
    parser = CommandParser(
        f"{PROGRAM} {command.name}",
        command.usage,
        _sentence(command.summary),
        _examples(command.examples),
    )
    code.add_arguments(parser)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Make one parser with every command, for completion. It loads what all of them take."""
    whole = argparse.ArgumentParser(PROGRAM, description=ABOUT)
    whole.add_argument("--version", action="version", version=VERSION)
    add_server_options(whole)
    places = {"": whole.add_subparsers()}
    parsers: dict[str, argparse.ArgumentParser] = {}
    for command in sorted(COMMANDS, key=lambda command: command.name.count(" ")):
        first, _, second = command.name.partition(" ")
        if second and first not in places:
            if first not in parsers:
                parsers[first] = places[""].add_parser(first, help=FAMILIES[first])
            places[first] = parsers[first].add_subparsers()
        own = places[first if second else ""].add_parser(second or first, help=command.summary)
        code_of(command).add_arguments(own)
        parsers[command.name] = own
    places[""].add_parser("help", help="show the options of a command, and examples").add_argument(
        "about", choices=[*parsers]
    )
    return whole


def _outer_parser() -> CommandParser:
    """Make the parser of what stands before the name of a command."""
    parser = CommandParser(PROGRAM, "[COMMAND]", f"{ABOUT}\n\n{overview()}", MORE)
    parser.add_argument("--version", action="version", version=VERSION)
    add_server_options(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _command(outer: CommandParser, words: Sequence[str]) -> Subcommand:
    """Find the command that the words begin with."""
    if (command := BY_NAME.get(" ".join(words[:2]))) is not None:
        return command
    command, family = BY_NAME.get(words[0]), _family(words[0])
    takes_words = command is not None and (command.usage or len(words) == 1 or words[1].startswith("-"))
    if command is not None and (takes_words or not family):
        return command
    if family:
        _fail_in_family(words, family)
    meant = similar(words[0], {name.partition(" ")[0] for name in BY_NAME})
    advice = f"did you mean `{PROGRAM} {meant}`?" if meant else ""
    return outer.fail(f"there is no command {words[0]!r}", advice)


def _fail_in_family(words: Sequence[str], family: Mapping[str, str]) -> NoReturn:
    """End the process for words that name a family and no command of it: with help where that was asked for."""
    first = words[0]
    about = FAMILIES[first] if first in FAMILIES else BY_NAME[first].summary
    listed = "\n".join([_sentence(about), "", *_columns(family)])
    parser = CommandParser(f"{PROGRAM} {first}", "COMMAND", listed, MORE)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.parse_args(words[1:2])
    expected = f"expected {any_of(family)}"
    if len(words) == 1:
        parser.fail(expected)
    meant = similar(words[1], family)
    advice = f"did you mean `{PROGRAM} {first} {meant}`?" if meant else expected
    parser.fail(f"there is no command {words[1]!r}", advice)


def _family(first: str) -> Mapping[str, str]:
    """Return the second words of commands with two, and what they do."""
    split = ((*command.name.partition(" "), command.summary) for command in COMMANDS)
    return {second: summary for word, _, second, summary in split if word == first and second}


def overview() -> str:
    """List the commands by their groups, with an example of each group."""
    blocks = []
    for group, what in GROUPS.items():
        rows: dict[str, str] = {}
        example: Example | None = None
        for command in COMMANDS:
            if command.group == group:
                name = command.name.partition(" ")[0]
                rows.setdefault(name, FAMILIES.get(name, command.summary))
                example = example or command.examples[-1]
        assert example is not None
        blocks.append("\n".join([f"{group}: {what}", *_columns(rows), *_shown([example])]))
    return "\n\n".join(blocks)


def _columns(rows: Mapping[str, str]) -> list[str]:
    return [f"  {name:<22}{what}" for name, what in rows.items()]


def _examples(examples: Sequence[Example]) -> str:
    return "\n".join(["examples:", *_shown(examples)])


def _shown(examples: Sequence[Example]) -> list[str]:
    return [f"  $ {each.line}" + (f"   # {each.what}" if each.what else "") for each in examples]


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def similar(word: str, known: Iterable[str]) -> str | None:
    """Return what somebody may have meant who wrote `word`."""
    from difflib import get_close_matches  # noqa: PLC0415  only for mistakes

    return next(iter(get_close_matches(word, known, 1)), None)
