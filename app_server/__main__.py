"""`python -m app_server` and the console script."""

from __future__ import annotations

import sys

from app_server.cli import main as run


def main() -> None:
    sys.exit(run())


if __name__ == "__main__":
    main()
