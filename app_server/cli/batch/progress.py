"""Shows the progress of a batch on stderr: a line that changes on a terminal, otherwise a line per minute. With
`--json` it also writes events as lines of JSON on stdout.
"""

from __future__ import annotations

import os
import shutil
from typing import Final, TextIO

import msgspec

from app_server.cli.batch.budget import Ledger
from app_server.cli.batch.out_folder import Results
from app_server.client.command_line import printable
from app_server.server.bootstrap.standard_streams import StdoutFailed, throw_away_stdout
from app_server_protocol.encoding import Json

LINE_EVERY: Final = 60.0
TOLD_FROM: Final = 20.0
"""Shortest pause that is reported to the user, in seconds."""
CLEARED: Final = "\r\x1b[K"
"""Escape sequence that moves to the begin of a terminal's line, and clears it."""


class Progress:
    """The progress of `total` tasks, some of which have results from earlier runs."""

    def __init__(
        self,
        total: int,
        results: Results,
        ledger: Ledger,
        began: float,
        stderr: TextIO,
        events: TextIO | None,
    ) -> None:
        self._total, self._results, self._ledger, self._began = total, results, ledger, began
        self._stderr, self._events = stderr, events
        self._before, self._tokens_before = len(results.final), ledger.tokens
        self._told_at = self._pause_until = began
        self._changes = stderr.isatty() and os.environ.get("TERM") not in (None, "dumb")
        """Whether there is a line that changes; it is the last one of the terminal."""

    def note(self, text: str) -> None:
        """Print a notice at once."""
        self.tell("notice", {"message": text})
        cleared = CLEARED if self._changes else ""
        print(f"{cleared}app-server batch: {printable(text)}", file=self._stderr)

    def pause(self, seconds: float, now: float) -> None:
        """Report that no requests are sent to the provider for a while. Pauses that overlap are reported once."""
        if seconds >= TOLD_FROM and now >= self._pause_until:
            self._pause_until = now + seconds
            self.note(f"the provider asks for fewer requests: none is sent for {seconds:.0f} s")

    def show(self, running: int, now: float) -> None:
        """Show the progress, if it is time for that."""
        if self._changes:
            fitting = self._line(running, now)[: shutil.get_terminal_size().columns - 1]
            print(f"{CLEARED}{fitting}", end="", file=self._stderr, flush=True)
        elif now - self._told_at >= LINE_EVERY:
            self._told_at = now
            print(self._line(running, now), file=self._stderr)

    def _line(self, running: int, now: float) -> str:
        statuses = self._results.statuses
        done, ledger, minutes = statuses.total(), self._ledger, max(now - self._began, 1.0) / 60
        parts = [f"{done} of {self._total} tasks", f"{running} running"]
        parts += [f"{count} {status}" for status, count in sorted(statuses.items())]
        rate = (ledger.tokens - self._tokens_before) / minutes
        parts.append(f"{ledger.tokens:,} tokens ({rate:,.0f} a minute)")
        if ledger.limits.prices:
            parts.append(f"cost {ledger.cost:.2f}")
        if (new := done - self._before) and done < self._total:
            parts.append(f"about {max((self._total - done) * minutes / new, 1.0):.0f} min left")
        return ", ".join(parts)

    def tell(self, method: str, params: Json) -> None:
        """Write an event for scripts. The batch continues if nobody reads the events any more."""
        if self._events is None:
            return
        try:
            self._events.write(msgspec.json.encode({"method": method, "params": params}).decode() + "\n")
            self._events.flush()
        except StdoutFailed as error:
            self._events = None
            throw_away_stdout()
            self.note(f"what happens is told no more: {error.strerror}; the batch goes on")
