"""`python -m app_server` and the console script."""

from __future__ import annotations

import sys

from app_server import standard_streams


def main() -> None:
    standard_streams.end_at_once_on_interrupt()
    standard_streams.replace_closed()
    from app_server.cli import main as run  # noqa: PLC0415  Ctrl-C is possible meanwhile

    sys.exit(run())


if __name__ == "__main__":
    main()
