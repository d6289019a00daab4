"""Files that the command line of `app-server exec` names: the file for the final message (`-o`), and prices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from app_server.cli.named_files import NamedOutput, read_input
from app_server.client.command_line import InvalidCommandLine
from app_server.client.prices import PRICES_FILE, ModelPrice, parse_prices


def message_file(named: str) -> NamedOutput:
    """Open the file that `-o` names. Raises InvalidCommandLine if it cannot be written."""
    try:
        return NamedOutput(Path(named))
    except OSError as error:
        raise InvalidCommandLine(f"--output-last-message: {named}: {error.strerror or error}") from None


def read_prices(named: str | None, home: Path) -> Mapping[str, ModelPrice]:
    """Read the prices from the named file, or else from the file in the home, which may be missing. Raises
    InvalidCommandLine.
    """
    path = Path(named) if named is not None else home / PRICES_FILE
    try:
        return parse_prices(read_input(path, home))
    except FileNotFoundError as error:
        if named is None:
            return {}
        raise InvalidCommandLine(f"--prices: {path}: {error.strerror}") from None
    except OSError as error:
        raise InvalidCommandLine(f"prices: {path}: {error.strerror or error}") from None
    except ValueError as error:
        raise InvalidCommandLine(f"prices: {path}: {error}") from None
