"""The table of subcommands, and the parser of command lines: help, and errors of a command line.

A module of this package has the commands of a first word, with their arguments. It is loaded when one of them is
parsed, or when all of them are listed. Modules that are slow to import are loaded when a command is run.

A wrong command line ends the process with the exit status 2 and one form of error: where, what, and what to do.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn

from app_server import PROTOCOL_VERSION, __version__
from app_server.cli.parser.arguments import SERVER_OPTIONS, Subcommand, any_of
from app_server.server.bootstrap.standard_streams import complain

PROGRAM = "app-server"
VERSION = f"codex-cli {PROTOCOL_VERSION} ({PROGRAM} {__version__})"
"""Text of `--version`. The protocol's version comes first: clients take the first version in it for that of codex."""
ABOUT = "A JSON-RPC app server over stdio with a whole coding agent inside."
MORE = f"`{PROGRAM} help COMMAND` shows the options of a command, and examples."
WRONG_COMMAND_LINE = 2

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "serve: for editors and other programs, over stdin and stdout": {
        "app-server": "server_args",
        "acp": "server_args",
        "proxy": "proxy_args",
    },
    "use: at a terminal and in scripts": {
        "chat": "chat_args",
        "exec": "exec_args",
        "sandbox": "sandbox_args",
        "batch": "batch_args",
        "threads": "threads_args",
        "demo": "demo_args",
    },
    "build: for authors of front ends": {
        "inspect": "inspect_args",
        "generate-json-schema": "generate_args",
        "generate-ts": "generate_args",
    },
    "look after: this machine, logins and settings": {
        "daemon": "daemon_args",
        "doctor": "doctor_args",
        "login": "login_args",
        "logout": "login_args",
        "mcp": "mcp_args",
        "config": "config_args",
        "features": "features_args",
        "debug": "features_args",
        "completion": "completion_args",
    },
}
"""Groups of `app-server --help` in their order: in each the first words of its commands, with their modules."""

MODULES: Final = {word: module for words in GROUPS.values() for word, module in words.items()}

FAMILIES: Final[Mapping[str, str]] = {
    "threads": "list, show, rename, archive, delete and export stored threads",
    "mcp": "list, add and remove MCP servers, and log in at them",
    "config": "show and change settings",
    "daemon": "start, show and end the server that all clients share",
    "features": "list the features, and which are on",
    "debug": "facts for other programs",
}
"""First words that are no commands by themselves, with the purpose of the commands that begin with them."""

GUARDS: Final = ("--sandbox", "--ask-for-approval", "--add-dir", "--strict-config")
"""Options without which a server is less protected than its caller believes. The options that begin with `--ws-` belong
to them, too.
"""

NO_OPTION = "\0"
"""Marker of words after `--` while the others are parsed: argparse loses their position if options are between them."""


class Parsed(NamedTuple):
    command: Subcommand | None
    """The subcommand. None if there was none: then the process serves."""
    args: argparse.Namespace


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter that does not break words with a hyphen, because users type them."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class CommandParser(argparse.ArgumentParser):
    """Parser whose errors have the common form, and which accepts no abbreviations."""

    def __init__(self, name: str, usage: str, describe: Callable[[], str], epilog: str) -> None:
        """`describe` is called when help is requested."""
        super().__init__(
            prog=name,
            usage=" ".join(filter(None, (name, "[OPTIONS]", usage))),
            epilog=epilog,
            formatter_class=partial(_HelpFormatter, max_help_position=34),
            allow_abbrev=False,
        )
        self._describe = describe

    def format_help(self) -> str:
        self.description = self._describe()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        self.fail(message.removeprefix("argument "))

    def fail(self, what: str, advice: str = "") -> NoReturn:
        """End the process because of a wrong command line."""
        complain(self.prog, what, advice or self.see_help)
        raise SystemExit(WRONG_COMMAND_LINE)

    def parse_rest(
        self, words: Sequence[str], given: argparse.Namespace, *, passes_over: bool = False
    ) -> argparse.Namespace:
        """Parse all words, in addition to the arguments that were `given` before them. Options may stand between other
        arguments; words after `--` are no options. With `passes_over`, an unknown option causes a warning only.
        """
        own = words.index("--") if "--" in words else len(words)
        plain = [f"{NO_OPTION}{word}" for word in words[own + 1 :]]
        args, unknown = self.parse_known_intermixed_args([*words[:own], *plain], given)
        if unknown and passes_over:
            self.pass_over(unknown)
        elif unknown:
            self.fail_on(unknown[0])
        for name, value in vars(args).items():
            if isinstance(value, list):
                setattr(args, name, [_word(each) for each in value])
            else:
                setattr(args, name, _word(value))
        return args

    def first_plain(self, words: Sequence[str]) -> int | None:
        """Return the index of the first word that is neither an option nor the value of one; None if there is none."""
        is_value = False
        for index, word in enumerate(words):
            if is_value:
                is_value = False
            elif word == "--":
                return None
            elif word == "-" or not word.startswith("-"):
                return index
            else:
                action = self._option_string_actions.get(word)
                is_value = action is not None and action.nargs != 0
        return None

    def fail_on(self, word: str) -> NoReturn:
        """End the process because of an unknown word."""
        meant = similar(word.partition("=")[0], self.option_names())
        self.fail(f"unexpected argument {_word(word)!r}", f"did you mean {meant}?" if meant else "")

    def pass_over(self, words: Sequence[str]) -> None:
        """Warn of unknown options and their values: a client may be newer than this server. End the process if an
        unknown word may be meant for a guarding option, or is no option.
        """
        previous = ""
        for word in words:
            name = word.partition("=")[0]
            if word.startswith("-"):
                if name.startswith("--ws-") or similar(name, GUARDS):
                    self.fail_on(word)
                complain(self.prog, f"the option {name!r} is not known here and has no effect", self.see_help)
            elif not previous.startswith("-"):
                self.fail_on(word)
            previous = word

    @property
    def see_help(self) -> str:
        return f"`{self.prog} --help` shows what can be given"

    def option_names(self) -> Iterable[str]:
        """Return the names of the long options."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]


def _word(value: Any) -> Any:
    """Return a word without its marker. Other values are returned unchanged."""
    return value.removeprefix(NO_OPTION) if isinstance(value, str) else value


def parse(words: Sequence[str]) -> Parsed:
    """Parse a command line. It ends the process after `--help` and `--version`, and if the command line is wrong."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    given = argparse.Namespace()
    outer = _outer_parser()
    rest, unknown = _parse_outer(outer, words, given)
    if not rest:
        outer.pass_over(unknown)
        return Parsed(None, given)
    command, rest = _command(outer, rest)
    if unknown and command.run is not None:
        outer.fail_on(unknown[0])
    outer.pass_over(unknown)
    given.command, given.whole_parser = command.name, whole_parser
    examples = "\n".join(["examples:", *map(_shown, command.examples)])
    name = f"{PROGRAM} {command.name}"
    parser = CommandParser(name, command.usage, lambda: _sentence(command.summary), examples)
    for add in command.arguments:
        add(parser)
    return Parsed(command, parser.parse_rest(rest, given, passes_over=command.run is None))


def _parse_outer(
    outer: CommandParser, words: Sequence[str], given: argparse.Namespace
) -> tuple[Sequence[str], Sequence[str]]:
    """Parse the words before the name of a command. Return the words from the name on, and the unknown options. After
    an unknown option, a word that names no command may be its value, and is returned with it.
    """
    unknown: list[str] = []
    while True:
        found = outer.parse_known_args(words, given)[1]
        rest: list[str] = given.words
        del given.words
        unknown += found
        if rest[:1] == [PROGRAM]:  # clients give the name once or twice, with options around it
            words = rest[1:]
        elif found and rest and rest[0] not in MODULES and words[len(words) - len(rest) - 1] == found[-1]:
            unknown.append(rest[0])
            words = rest[1:]
        else:
            return rest, unknown


def commands_of(word: str) -> list[Subcommand]:
    """Return the commands that begin with a word: the command itself, and those with two words."""
    if word not in MODULES:
        return []
    known: Sequence[Subcommand] = import_module(f"app_server.cli.parser.{MODULES[word]}").COMMANDS
    return [each for each in known if each.name.partition(" ")[0] == word]


def all_commands() -> list[Subcommand]:
    return [each for word in MODULES for each in commands_of(word)]


def whole_parser() -> argparse.ArgumentParser:
    """Return one parser with every command, for completion. It loads the arguments of all commands."""
    whole = argparse.ArgumentParser(PROGRAM, description=ABOUT)
    whole.add_argument("--version", action="version", version=VERSION)
    for add in SERVER_OPTIONS:
        add(whole)
    places = {"": whole.add_subparsers()}
    parsers: dict[str, argparse.ArgumentParser] = {}
    for command in sorted(all_commands(), key=lambda command: command.name.count(" ")):
        first, _, second = command.name.partition(" ")
        if second and first not in places:
            if first not in parsers:
                parsers[first] = places[""].add_parser(first, help=FAMILIES[first])
            places[first] = parsers[first].add_subparsers()
        own = places[first if second else ""].add_parser(second or first, help=command.summary)
        for add in command.arguments:
            add(own)
        parsers[command.name] = own
    places[""].add_parser("help", help="show the options of a command, and examples").add_argument(
        "about", choices=[*parsers]
    )
    return whole


def _outer_parser() -> CommandParser:
    """Return the parser of the words before the name of a command."""
    parser = CommandParser(PROGRAM, "[COMMAND]", overview, MORE)
    parser.add_argument("--version", action="version", version=VERSION)
    for add in SERVER_OPTIONS:
        add(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def _command(outer: CommandParser, words: Sequence[str]) -> tuple[Subcommand, Sequence[str]]:
    """Return the command with which the words begin, and the words without its name."""
    first = words[0]
    known = {command.name: command for command in commands_of(first)}
    if not known:
        meant = similar(first, MODULES)
        advice = f"did you mean `{PROGRAM} {meant}`?" if meant else ""
        return outer.fail(f"there is no command {first!r}", advice)
    own = known.get(first)
    others = {name.partition(" ")[2]: each.summary for name, each in known.items() if name != first}
    second = _second_word(own, words[1:]) if own is not None and others else 0
    if second is not None and (longer := known.get(f"{first} {''.join(words[1 + second : 2 + second])}")):
        return longer, [*words[1 : 1 + second], *words[2 + second :]]
    is_whole = len(words) == 1 or words[1].startswith("-")
    if own is None or (others and not (own.usage or is_whole)):
        _fail_in_family(words, FAMILIES.get(first) or known[first].summary, others)
    return own, words[1:]


def _second_word(command: Subcommand, words: Sequence[str]) -> int | None:
    """Return the index of the word that may complete the name of a command, whose options may stand before it. None if
    there is no such word.
    """
    parser = CommandParser(command.name, command.usage, lambda: "", "")
    for add in command.arguments:
        add(parser)
    return parser.first_plain(words)


def _fail_in_family(words: Sequence[str], about: str, family: Mapping[str, str]) -> NoReturn:
    """End the process for words that name a family and none of its commands; with help if it was requested."""
    name = f"{PROGRAM} {words[0]}"
    parser = CommandParser(
        name, "COMMAND", lambda: "\n".join([_sentence(about), "", *_columns(family)]), MORE
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.parse_args(words[1:2])
    expected = f"expected {any_of(family)}"
    if len(words) == 1:
        parser.fail(expected)
    meant = similar(words[1], family)
    parser.fail(f"there is no command {words[1]!r}", f"did you mean `{name} {meant}`?" if meant else expected)


def overview() -> str:
    """Return the commands by their groups, with an example of each group."""
    blocks = [ABOUT]
    for group, words in GROUPS.items():
        first = {word: commands_of(word)[0] for word in words}
        rows = {word: FAMILIES.get(word, command.summary) for word, command in first.items()}
        example = next(iter(first.values())).examples[-1]
        blocks.append("\n".join([group, *_columns(rows), _shown(example)]))
    return "\n\n".join(blocks)


def _columns(rows: Mapping[str, str]) -> list[str]:
    return [f"  {name:<22}{what}" for name, what in rows.items()]


def _shown(example: str) -> str:
    return f"  $ {example}"


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def similar(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is similar to a mistyped one; None if there is none."""
    from difflib import get_close_matches  # noqa: PLC0415  only for mistakes

    return next(iter(get_close_matches(word, known, 1)), None)
