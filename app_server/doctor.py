"""`app-server doctor`: runs the checks of the machine and the configuration, and prints their results, as text while
they run or as JSON at the end. Owns the exit status.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence

import anyio
from msgspec.structs import asdict

from app_server import __version__
from app_server.diagnosis import diagnose
from app_server.server import ServerSettings
from protocol.checks import Check, CheckStatus


def as_text(check: Check) -> str:
    """Write a line with the result, and one below it with what to do."""
    line = f"{check.status.value:<8} {check.name}: {_one_line(check.found)}"
    return f"{line}\n{'':<8} → {_one_line(check.advice)}" if check.advice else line


def summary(checks: Sequence[Check]) -> str:
    counts = Counter(check.status for check in checks)
    listed = ", ".join(f"{counts[status]} {status.value}" for status in CheckStatus)
    return f"\n{len(checks)} checks: {listed}"


def as_json(checks: Sequence[Check]) -> str:
    return json.dumps(
        {
            "version": __version__,
            "ok": exit_status(checks) == 0,
            "checks": [asdict(check) | {"advice": check.advice or None} for check in checks],
        },
        indent=2,
        ensure_ascii=False,
    )


def exit_status(checks: Sequence[Check]) -> int:
    """Return 0 where nothing is broken."""
    return 1 if any(check.status is CheckStatus.BROKEN for check in checks) else 0


def _one_line(text: str) -> str:
    """Remove line ends and control characters, which a program may have printed."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def run_doctor(settings: ServerSettings, *, online: bool, json: bool) -> int:
    checks: list[Check] = []

    def receive(check: Check) -> None:
        checks.append(check)
        if not json:
            print(as_text(check), flush=True)  # noqa: T201  a command for people, without a wire

    async def run() -> None:
        await diagnose(settings, receive, online=online)

    anyio.run(run)
    print(as_json(checks) if json else summary(checks))  # noqa: T201
    sys.stdout.flush()
    return exit_status(checks)
