"""Runs the checks and prints their results, as text while they run or as JSON at the end. Owns the exit status."""

from __future__ import annotations

import sys

import anyio

from app_server.diagnosis import diagnose
from app_server.doctor.report import as_json, as_text, exit_status, summary
from app_server.server import ServerSettings
from protocol.checks import Check


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
