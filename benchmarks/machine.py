"""The machine of a run, in the words that belong beside its numbers."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL, run


def surroundings(reference: Sequence[str] | None) -> Mapping[str, str]:
    """Return facts about the machine. They contain no path, because results are published."""
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{_processor()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load before": " ".join(f"{each:.1f}" for each in os.getloadavg()),
    }
    return found | ({"reference": _version(reference)} if reference else {})


def said(found: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {value}" for name, value in found.items())


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def _version(command: Sequence[str]) -> str:
    """Return the version that the binary prints."""
    try:
        done = run((command[0], "--version"), stdin=DEVNULL, capture_output=True, text=True, timeout=20)
    except OSError as error:
        return f"unknown ({error.strerror})"
    return done.stdout.strip() or "unknown"
