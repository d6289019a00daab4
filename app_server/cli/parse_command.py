"""The parsing of a command line.

1. It is split at the name of a command. Options of a server may stand before it.
2. The module of the command (`cli.commands`) adds its arguments to a parser, and parsers of its subcommands to that.
3. The parser of the command that was named last parses the rest. Options that were given before stay.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from app_server import PROTOCOL_VERSION, __version__
from app_server.cli.arguments import add_server_options
from app_server.cli.command_parser import PROGRAM, CommandParser
from app_server.cli.command_table import COMMANDS
from app_server.server.proxy.server_options import ALIAS

VERSION = f"codex-cli {PROTOCOL_VERSION} ({PROGRAM} {__version__})"
"""Text of `--version`. The protocol's version comes first: clients take the first version in it for that of codex."""


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. `command` is the name of the command, `run` the function that runs it, `commands` has the
    parsers of all commands. The process ends after `--help` and `--version`, and if the command line is wrong.
    """
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    program = program_parser()
    before, rest = _split_at_command(program, words)
    args, unknown = program.parse_known_args(before)
    if rest and rest[0] not in COMMANDS:
        program.fail_without_command(rest, COMMANDS)
    command, rest = command_parser(rest[0]).find(rest[1:]) if rest else (command_parser(ALIAS), rest)
    if unknown and not command.serves:
        program.fail_on(unknown[0])
    program.pass_over(unknown)
    args.command, args.run, args.commands = command.name, command.run, CommandParsers()
    return command.parse_rest(rest, args)


def _split_at_command(program: CommandParser, words: Sequence[str]) -> tuple[list[str], Sequence[str]]:
    """Return the words before the name of a command, and those from it on. Clients give the name of the program once or
    twice, with options around it. After an unknown option, a word that names no command may be its value.
    """
    before = list[str]()
    at = 0
    while (index := program.split(words, at)) is not None:
        previous = words[index - 1] if index > at else ""
        is_value = previous.startswith("-") and previous not in program._option_string_actions
        if words[index] == ALIAS:
            before += words[at:index]
        elif is_value and words[index] not in COMMANDS:
            before += words[at : index + 1]
        else:
            return [*before, *words[at:index]], words[index:]
        at = index + 1
    end = words.index("--", at) if "--" in words[at:] else len(words)
    return [*before, *words[at:end]], words[end:]


def program_parser() -> CommandParser:
    """Return the parser of the words before the name of a command."""
    parser = CommandParser("", "")
    parser.arguments = "[COMMAND]"
    parser.add_argument("--version", action="version", version=VERSION)
    add_server_options(parser)
    return parser


def command_parser(name: str) -> CommandParser:
    """Return the parser of a command, by its first word, with the parsers of its subcommands."""
    command = COMMANDS[name]
    module = import_module(f"app_server.cli.commands.{command.module}")
    parser = CommandParser(name, command.summary, module.run)
    module.add_arguments(parser)
    return parser


class CommandParsers(Mapping[str, CommandParser]):
    """The parsers of all commands, by their first words. Each is made when it is asked for."""

    def __getitem__(self, name: str) -> CommandParser:
        return command_parser(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def all_parsers() -> list[CommandParser]:
    """Return the parsers of all commands that can be run."""
    firsts = CommandParsers().values()
    return [
        each
        for first in firsts
        for each in (*([] if first.is_family else [first]), *first.subcommands.values())
    ]
