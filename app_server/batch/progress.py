"""Shows on stderr how a batch goes: a line that changes where there is a terminal, else a line a minute; and with
`--json` what happens, as lines of JSON on stdout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TextIO

import msgspec

from app_server.batch.budget import Ledger
from app_server.batch.results import Result, Results
from app_server.client.command_line import printable
from app_server.core.lazy import Lazy
from protocol.structs import Json

if TYPE_CHECKING:
    from rich.live import Live

LINE_EVERY: Final = 60.0


class Progress:
    """View of `total` tasks, some of which have results from earlier runs."""

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
        self._told_at = began
        self._live = _LIVE.get()(stderr) if stderr.isatty() else None

    def ended(self, result: Result) -> None:
        """Tell of a result."""
        self._tell("taskEnded", result)

    def note(self, text: str) -> None:
        """Say something that is not asked for at any other time."""
        self._tell("notice", {"message": text})
        line = f"app-server batch: {printable(text)}"
        if self._live is not None and self._live.is_started:
            self._live.console.print(
                line, markup=False, highlight=False, soft_wrap=True
            )  # above what changes
        else:
            print(line, file=self._stderr)

    def show(self, running: int, now: float) -> None:
        """Show how it stands, if it is time for that."""
        if self._live is not None:
            self._live.start()
            self._live.update(self._line(running, now)[: self._live.console.width], refresh=True)
        elif now - self._told_at >= LINE_EVERY:
            self._told_at = now
            print(self._line(running, now), file=self._stderr)

    def close(self, sentence: str) -> None:
        """Say how it ended."""
        if self._live is not None:
            self._live.stop()
        self.note(sentence)

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

    def _tell(self, method: str, params: Json) -> None:
        if self._events is not None:
            self._events.write(msgspec.json.encode({"method": method, "params": params}).decode() + "\n")
            self._events.flush()


def _load_live() -> Callable[[TextIO], Live | None]:
    try:
        from rich.console import Console  # noqa: PLC0415  an extra
        from rich.live import Live  # noqa: PLC0415  the same
    except ImportError:
        return lambda file: None  # lines, then

    def live(file: TextIO) -> Live | None:
        console = Console(file=file, highlight=False, markup=False)
        if console.is_dumb_terminal:
            return None
        return Live(
            console=console,
            auto_refresh=False,
            transient=True,  # at the end there is a sentence in its place
            redirect_stdout=False,
            redirect_stderr=False,
        )

    return live


_LIVE = Lazy(_load_live)
