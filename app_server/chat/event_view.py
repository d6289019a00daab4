"""Shows the events of a thread on a console: streamed Markdown, commands with folded output, patches in colour; in
columns of a terminal, where some characters are two wide and some text is not ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from rich.cells import chop_cells
from rich.console import Console
from rich.segment import Segment, SegmentLines
from rich.syntax import Syntax
from rich.text import Text

from app_server.chat.markdown_blocks import MarkdownBlocks, ShownMarkdown, blocks_of
from app_server.chat.open_questions import PendingQuestion
from app_server.client.command_line import printable
from app_server.client.events import DeltasDropped, ServerEvent, warning_text
from protocol.v2 import item_events
from protocol.v2 import items as wire
from protocol.v2 import turn as wire_turn
from protocol.v2.item_parts import FileUpdateChange, PatchApplyStatus
from protocol.v2.server import ErrorNotification

BAR: Final = "│ "
"""Begins every row of what others say; no row of ours begins so."""

OTHER_ROWS: Final = 3
"""Of each part of a question but the first, where there is not room for all."""

FEWEST_ROWS: Final = 3
"""Of the first part, however low the terminal is."""


def cut_to(text: str, columns: int) -> str:
    """Cut a line to what fits; an ellipsis stands for the rest."""
    line = Text(text)
    line.truncate(columns, overflow="ellipsis")
    return line.plain


def last_rows(text: str, columns: int, rows: int, console: Console) -> str:
    """Return the end of the text, wrapped between words."""
    end = printable(text[-2 * columns * rows :]).strip("\n")
    return "\n".join(line.plain for line in Text(end).wrap(console, columns)[-rows:])


@lru_cache(maxsize=32)
def guttered(text: str, columns: int | None = None, most: int | None = None) -> tuple[str, ...]:
    """Set what others say in rows that begin with a bar, so that none of them can pass for a row of ours.

    A run of empty rows is one. Of more than `most` rows the first and the last ones are left, and what is between is
    counted. Without columns lines are not wrapped.
    """
    rows: list[str] = []
    for line in printable(text).strip("\n").replace("\t", "    ").split("\n"):
        for row in chop_cells(line, max(2, columns - len(BAR))) if columns is not None else [line]:
            if row.strip() or (rows and rows[-1]):
                rows.append(row.rstrip())
    if most is None or len(rows) <= most:
        return tuple(f"{BAR}{row}" for row in rows)
    last = most // 3
    head, tail = rows[: most - last - 1], rows[len(rows) - last :]
    left_out = f"┆ {len(rows) - len(head) - len(tail)} rows are left out here"
    return (*(f"{BAR}{row}" for row in head), left_out, *(f"{BAR}{row}" for row in tail))


def question_rows(
    parts: Sequence[tuple[str, str]], columns: int | None = None, rows: int | None = None
) -> list[str]:
    """Set a question in so many rows, or a few more: in each part our words, and below them what others say."""
    others = [guttered(theirs, columns, rows and OTHER_ROWS) for _, theirs in parts[1:]]
    left = rows and max(FEWEST_ROWS, rows - len(parts) - sum(map(len, others)))
    blocks = [*(guttered(theirs, columns, left) for _, theirs in parts[:1]), *others]
    return [row for (ours, _), block in zip(parts, blocks, strict=True) for row in (ours, *block)]


SHOWN_LINES: Final = 12
"""Of a command's output, from its end."""

RECORD_ROWS: Final = 8
"""Of a question that was answered."""

WHOLE_FILES: Final = {"add": "+", "delete": "-"}
"""Kinds of changes that come with the content of the file, and how its lines are shown."""

STEPS: Final = {
    wire_turn.TurnPlanStepStatus.PENDING: "[ ]",
    wire_turn.TurnPlanStepStatus.IN_PROGRESS: "[>]",
    wire_turn.TurnPlanStepStatus.COMPLETED: "[x]",
}


class EventView:
    """On a console that is no terminal lines are not wrapped, and Markdown stays as it is.

    What others say comes without control characters, and only the first row of it may pass for one of ours.
    """

    def __init__(self, console: Console) -> None:
        self._console, self.plain = console, not console.is_terminal
        self.printed = 0
        """How often something was."""
        self._messages: dict[str, MarkdownBlocks] = {}
        """Of the messages that stream, by their items."""
        self._proposed: set[str] = set()
        """Patches that were shown and have not ended."""
        self._error = ""
        """The last one that was shown; the end of its turn says it again."""

    def unfinished(self, columns: int, rows: int) -> str:
        """Return the last rows of what streams and is no whole block yet, without markup."""
        text = "\n".join(blocks.unfinished for blocks in self._messages.values())
        return last_rows(text, columns, rows, self._console)

    def line(self, text: str, style: str = "") -> None:
        """Print a line; what follows a line end in it is set apart."""
        first, *others = printable(text).split("\n")
        self._print("\n".join([first, *guttered("\n".join(others))]), style)

    def warning(self, text: str) -> None:
        self.line(f"warning: {text}", "yellow")

    def question(self, question: PendingQuestion, rows: int | None = None) -> None:
        """Print what is asked: whole, and again in so many rows where it has more."""
        wide = None if self.plain and not self._console.file.isatty() else self._console.width
        whole = question_rows(question.parts(), wide)
        short = question_rows(question.parts(), wide, rows)
        for row in [*whole, *short] if len(short) < len(whole) else whole:
            self._print(row, "bold yellow")

    def answer(self, question: PendingQuestion) -> None:
        """Print what was asked, and what the user said to it."""
        for row in question_rows(question.parts(), self._console.width, RECORD_ROWS):
            self._print(row, "yellow")
        self.line(f"→ {question.said}", "bold yellow")

    def _print(self, text: str, style: str = "") -> None:
        self.printed += 1
        self._console.print(Text(text, style=style), soft_wrap=self.plain)

    def show(self, event: ServerEvent) -> None:
        match event:
            case item_events.AgentMessageDeltaNotification(item_id=id, delta=text):
                self._markdown(self._messages.setdefault(id, MarkdownBlocks()).feed(text))
            case item_events.ItemStartedNotification(item=wire.CommandExecutionThreadItem(command=command)):
                self._command(command)
            case item_events.ItemCompletedNotification(item=item):
                self._item(item)
            case wire_turn.TurnPlanUpdatedNotification(plan=plan):
                self._plan(plan)
            case ErrorNotification(error=error, will_retry=retries):
                self.line(f"{'retrying: ' if retries else ''}{error.message}", "yellow" if retries else "red")
                self._error = error.message
            case wire_turn.TurnCompletedNotification(turn=turn):
                self._ended(turn)
            case DeltasDropped(count=count):
                self.line(f"({count} pieces of text were skipped; the whole text follows)", "dim")
            case _ if (warning := warning_text(event)) is not None:
                self.warning(warning)
            case _:
                pass

    def history(self, turns: Sequence[wire_turn.Turn]) -> None:
        for turn in turns:
            for item in turn.items:
                if isinstance(item, wire.UserMessageThreadItem):
                    self.line(f"> {user_text(item)}", "cyan")
                elif isinstance(item, wire.CommandExecutionThreadItem):
                    self._command(item.command)
                    self._item(item)
                else:
                    self._item(item)

    def _command(self, command: str) -> None:
        wide = None if self.plain else self._console.width
        for number, row in enumerate(guttered(command, wide)):
            self._print(row if number else f"$ {row.removeprefix(BAR)}", "bold")

    def proposed(self, item_id: str, changes: Sequence[FileUpdateChange]) -> None:
        """Show a patch that the user is asked about; its end then needs no second look."""
        self._proposed.add(item_id)
        self.changes(changes)

    def changes(self, changes: Sequence[FileUpdateChange]) -> None:
        for change in changes:
            self.line(f"{change.kind.type} {change.path}", "bold")
            sign = WHOLE_FILES.get(change.kind.type)
            self.diff(
                change.diff
                if sign is None
                else "".join(f"{sign}{line}\n" for line in change.diff.splitlines())
            )

    def diff(self, text: str) -> None:
        if self.plain:
            self._print(printable(text).rstrip("\n"))
            return
        self._console.print(Syntax(printable(text).rstrip("\n"), "diff", theme="ansi_dark", word_wrap=True))

    def _item(self, item: wire.ThreadItem) -> None:
        match item:
            case wire.AgentMessageThreadItem():
                blocks = self._messages.pop(item.id, None)
                self._markdown(blocks_of(item.text) if blocks is None else blocks.flush())
            case wire.ReasoningThreadItem(summary=summary):
                for part in summary:
                    self.line(part, "dim italic")
            case wire.CommandExecutionThreadItem():
                self._output(item)
            case wire.FileChangeThreadItem():
                if item.id not in self._proposed:
                    self.changes(item.changes)
                self._proposed.discard(item.id)
                if item.status is not PatchApplyStatus.COMPLETED:
                    self.line(f"the patch was {_ended_as(item.status)}", "yellow")
            case wire.PlanThreadItem(text=text):
                self._markdown(blocks_of(text))
            case wire.McpToolCallThreadItem():
                why = f": {item.error.message}" if item.error is not None else ""
                self.line(f"{item.server}.{item.tool}: {item.status}{why}", "magenta")
            case wire.WebSearchThreadItem(query=query):
                self.line(f"searched the web: {query}", "magenta")
            case _:
                pass

    def _markdown(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            if self.plain:
                self._print(printable(block).rstrip("\n") + "\n")
                continue
            rendered = ShownMarkdown(block, self._console.width)
            lines = _without_blank_ends(self._console.render_lines(rendered, pad=False))
            self._console.print(SegmentLines(lines, new_lines=True))
            self._console.print()

    def _output(self, item: wire.CommandExecutionThreadItem) -> None:
        lines = (item.aggregated_output or "").splitlines()
        if len(lines) > SHOWN_LINES:
            self.line(f"  … {len(lines) - SHOWN_LINES} lines more", "dim")
        for line in lines[-SHOWN_LINES:]:
            self.line(f"  {line}", "dim")
        if item.exit_code is None:
            self.line(f"  {_ended_as(item.status)}", "yellow")
        elif item.exit_code:
            self.line(f"  exit status {item.exit_code}", "red")

    def _plan(self, steps: Sequence[wire_turn.TurnPlanStep]) -> None:
        for step in steps:
            self.line(f"{STEPS[step.status]} {step.step}", "blue")

    def _ended(self, turn: wire_turn.Turn) -> None:
        if turn.status is wire_turn.TurnStatus.INTERRUPTED:
            self.line("interrupted", "yellow")
        elif turn.error is not None and turn.error.message != self._error:
            self.line(turn.error.message, "red")
        self._error = ""


def user_text(item: wire.UserMessageThreadItem) -> str:
    return " ".join(part.text if part.type == "text" else f"[{part.type}]" for part in item.content)


def _ended_as(status: object) -> str:
    words = {"inProgress": "not finished", "failed": "not successful"}
    return words.get(str(status), str(status))


def _without_blank_ends(lines: list[list[Segment]]) -> list[list[Segment]]:
    """Remove the empty lines with which Rich begins a list and frames code."""
    filled = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
    return lines[filled[0] : filled[-1] + 1] if filled else []
