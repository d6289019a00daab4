"""What open terminals use: their process, its share of a processor, its memory."""

from __future__ import annotations

from collections.abc import Sequence

from app_server.core.exec.process_usage import ProcessUsage, usage_of
from app_server.core.launcher import descendants
from app_server.core.tools.terminals import Terminal
from protocol.records import dataclass

SHORTEST_SECONDS = 0.5
"""A share of less time than this says nothing; the time before is counted too."""


@dataclass(frozen=True, slots=True)
class TerminalUsage:
    pid: int
    cpu_percent: float
    """Of one processor, by all its processes: since the look before, or since it began."""
    rss_kb: int


def look_at_terminals(terminals: Sequence[Terminal]) -> list[TerminalUsage | None]:
    """None where nothing is known. Blocks."""
    if not terminals:
        return []
    table = descendants.listed()
    found: list[TerminalUsage | None] = []
    for terminal in terminals:
        root = terminal.pty.reader.root
        usage = None if root is None else usage_of(root, table)
        found.append(None if usage is None else _shown(terminal, usage))
    return found


def _shown(terminal: Terminal, now: ProcessUsage) -> TerminalUsage:
    before = terminal.last_usage
    seconds, used = now.age_seconds, now.cpu_seconds
    if (
        before is not None
        and before.pid == now.pid
        and now.age_seconds - before.age_seconds >= SHORTEST_SECONDS
    ):
        seconds, used = seconds - before.age_seconds, max(used - before.cpu_seconds, 0.0)
    if before is None or seconds != now.age_seconds:
        terminal.last_usage = now
    share = 100.0 * used / seconds if seconds > 0 else 0.0
    return TerminalUsage(now.pid, round(share, 1), now.rss_kb)
