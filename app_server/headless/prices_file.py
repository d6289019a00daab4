"""Reads the prices that the user names on a command line, or has in the home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from app_server.client.command_line import InvalidCommandLine
from app_server.client.prices import PRICES_FILE, ModelPrice, parse_prices


def read_prices(named: str | None, home: Path) -> Mapping[str, ModelPrice]:
    """Read the prices from the file that is named, or else from that of the home, which need not be there. Raises
    InvalidCommandLine.
    """
    path = Path(named) if named is not None else home / PRICES_FILE
    try:
        return parse_prices(path.read_bytes())
    except FileNotFoundError as error:
        if named is None:
            return {}
        raise InvalidCommandLine(f"--prices: {path}: {error.strerror}") from None
    except OSError as error:
        raise InvalidCommandLine(f"prices: {path}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidCommandLine(f"prices: {path}: {error}") from None
