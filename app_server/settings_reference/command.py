"""Writes the page, or checks that it is current."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from app_server.settings_reference.page import page

PAGE = Path("docs/configuration-reference.md")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m app_server.settings_reference")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page is not current"
    )
    parser.add_argument("--root", type=Path, default=Path(), help="the checkout, default: here")
    options = parser.parse_args(argv)
    path: Path = options.root / PAGE
    if options.check:
        current = path.exists() and path.read_text(encoding="utf-8") == page()
        sys.stdout.write("" if current else f"not current: {path}\n")
        return 0 if current else 1
    path.write_text(page(), encoding="utf-8")
    return 0
