"""The parser of one command, on argparse: its help, its subcommands, and one form of error.

A wrong command line ends the process with the exit status 2 and an error that says where, what, and what to do.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from app_server.cli.command_table import columns, overview, shown_example
from app_server.engine.support import similar_words
from app_server.server.bootstrap.standard_streams import complain
from app_server.server.proxy.server_options import ALIAS, any_of

PROGRAM = "app-server"
MORE = f"`{PROGRAM} help COMMAND` shows the options of a command, and examples."
WRONG_COMMAND_LINE = 2

GUARDS: Final = ("--sandbox", "--ask-for-approval", "--add-dir", "--strict-config")
"""Options without which a server is less protected than its caller believes. The options that begin with `--ws-` belong
to them, too.
"""

NO_OPTION = "\0"
"""Marker of words after `--` while the others are parsed: argparse loses their position if options are between them."""

Run = Callable[[argparse.Namespace], int]
"""Function that runs a command, and returns the exit status."""


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter that does not break words with a hyphen, because users type them."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)


class CommandParser(argparse.ArgumentParser):
    """Parser of a command, whose errors have the common form, and which accepts no abbreviations."""

    def __init__(self, name: str, summary: str, run: Run | None = None) -> None:
        """`name` is "" for the program itself. `run` is None if nothing runs without the name of a subcommand."""
        super().__init__(
            prog=f"{PROGRAM} {name}".rstrip(),
            usage=PROGRAM,  # argparse would make one at each parsing
            formatter_class=partial(_HelpFormatter, width=80),
            allow_abbrev=False,
        )
        self.name, self.summary, self.run = name, summary, run
        self.arguments = ""
        """Arguments after the options, for help."""
        self.examples: Sequence[str] = ()
        """Whole lines for a shell, some with a comment."""
        self.serves = False
        """Whether it is the command of a server, which passes over options that it does not know."""
        self.repeats_name = False
        """Whether the name of the program may stand among its arguments, where clients add it to a command."""
        self.subcommands: dict[str, CommandParser] = {}

    def add_command(self, name: str, summary: str, run: Run | None = None) -> CommandParser:
        """Add a subcommand, and return its parser. It is run by `run`, or like this command."""
        made = self.subcommands[name] = CommandParser(f"{self.name} {name}", summary, run or self.run)
        return made

    @property
    def is_family(self) -> bool:
        """Whether it only has subcommands."""
        return bool(self.subcommands) and not self.examples

    # --- help
    def format_help(self) -> str:
        width = shutil.get_terminal_size().columns - 2
        self.formatter_class = partial(_HelpFormatter, max_help_position=34, width=width)
        arguments = "COMMAND" if self.is_family else self.arguments
        self.usage = " ".join(filter(None, (self.prog, "[OPTIONS]", arguments)))
        if not self.name:
            self.description, self.epilog = overview(), MORE
        elif self.is_family:
            rows = {name: each.summary for name, each in self.subcommands.items()}
            self.description = "\n".join([_sentence(self.summary), "", *columns(rows)])
            self.epilog = MORE
        else:
            self.description = _sentence(self.summary)
            self.epilog = "\n".join(["examples:", *map(shown_example, self.examples)])
        return super().format_help()

    @property
    def see_help(self) -> str:
        return f"`{self.prog} --help` shows what can be given"

    # --- errors
    def error(self, message: str) -> NoReturn:
        self.fail(message.removeprefix("argument "))

    def fail(self, what: str, advice: str = "") -> NoReturn:
        """End the process because of a wrong command line."""
        complain(self.prog, what, advice or self.see_help)
        raise SystemExit(WRONG_COMMAND_LINE)

    def fail_on(self, word: str) -> NoReturn:
        """End the process because of an unknown word."""
        meant = similar_words.similar(word.partition("=")[0], self.option_names())
        self.fail(f"unexpected argument {_word(word)!r}", f"did you mean {meant}?" if meant else "")

    def fail_without_command(
        self, words: Sequence[str], known: Iterable[str], expected: str = ""
    ) -> NoReturn:
        """End the process because the first of the words names no command."""
        meant = similar_words.similar(words[0], known)
        advice = f"did you mean `{self.prog} {meant}`?" if meant else expected
        self.fail(f"there is no command {words[0]!r}", advice)

    def pass_over(self, words: Sequence[str]) -> None:
        """Warn of unknown options and their values: a client may be newer than this server. End the process if an
        unknown word may be meant for a guarding option, or is no option.
        """
        previous = ""
        for word in words:
            name = word.partition("=")[0]
            if word.startswith("-"):
                if name.startswith("--ws-") or similar_words.similar(name, GUARDS):
                    self.fail_on(word)
                complain(self.prog, f"the option {name!r} is not known here and has no effect", self.see_help)
            elif not previous.startswith("-"):
                self.fail_on(word)
            previous = word

    def option_names(self) -> Iterable[str]:
        """Return the names of the long options."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    # --- parsing
    def split(self, words: Sequence[str], begin: int = 0) -> int | None:
        """Return the index, from `begin` on, of the first word that is neither an option nor the value of one; None if
        there is none before `--`.
        """
        is_value = False
        for index, word in enumerate(words[begin:], begin):
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

    def find(self, words: Sequence[str]) -> tuple[CommandParser, Sequence[str]]:
        """Return the parser of the subcommand that the words name, or this one, and the words without the name."""
        if not self.subcommands:
            return self, words
        index = self.split(words)
        if index is not None and words[index] in self.subcommands:
            return self.subcommands[words[index]], [*words[:index], *words[index + 1 :]]
        if self.is_family:
            self.parse_known_args([word for word in words[:1] if word in ("-h", "--help")])
            expected = f"expected {any_of(self.subcommands)}"
            if not words:
                self.fail(expected)
            self.fail_without_command(words, self.subcommands, expected)
        if index == 0 and not self.arguments:
            self.fail_without_command(words, self.subcommands, f"expected {any_of(self.subcommands)}")
        return self, words

    def parse_rest(self, words: Sequence[str], given: argparse.Namespace) -> argparse.Namespace:
        """Parse all words, in addition to the arguments that were `given` before them. Options may stand between other
        arguments; words after `--` are no options.
        """
        if self.repeats_name:
            words = self._without_name(words)
        own = words.index("--") if "--" in words else len(words)
        plain = [f"{NO_OPTION}{word}" for word in words[own + 1 :]]
        args, unknown = self.parse_known_intermixed_args([*words[:own], *plain], given)
        if unknown and self.serves:
            self.pass_over(unknown)
        elif unknown:
            self.fail_on(unknown[0])
        for name, value in vars(args).items():
            if isinstance(value, list):
                setattr(args, name, [_word(each) for each in value])
            else:
                setattr(args, name, _word(value))
        return args

    def _without_name(self, words: Sequence[str]) -> Sequence[str]:
        at = 0
        while (index := self.split(words, at)) is not None:
            is_name = words[index] == ALIAS
            words = [*words[:index], *words[index + 1 :]] if is_name else words
            at = index if is_name else index + 1
        return words


def _word(value: Any) -> Any:
    """Return a word without its marker. Other values are returned unchanged."""
    return value.removeprefix(NO_OPTION) if isinstance(value, str) else value


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
