"""Shows the events of a thread on a console: streamed Markdown, commands with folded output, patches in colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.segment import Segment, SegmentLines
from rich.syntax import Syntax
from rich.text import Text

from app_server.cli.chat.markdown_blocks import CODE_THEME, MarkdownBlocks, ShownMarkdown, blocks_of
from app_server.cli.chat.open_questions import PendingQuestion
from app_server.cli.chat.question_rows import BAR, guttered, last_rows, question_rows
from app_server.client.command_line import STEP_MARKS, printable
from app_server.client.events import DeltasDropped, ServerEvent, warning_text
from app_server_protocol.v2 import items as wire
from app_server_protocol.v2 import turn as wire_turn
from app_server_protocol.v2.item_parts import FileUpdateChange, PatchApplyStatus
from app_server_protocol.v2.items import CommandExecutionThreadItem
from app_server_protocol.v2.server import ErrorNotification

MOST_KEPT: Final = 1 << 20
"""Maximum length of the kept output of each command, in characters."""

SHOWN_ROWS: Final = 5
"""Number of rows that are shown of each running command."""


class CommandOutputs:
    """Output of running commands, and all output of the last one, within limits: the beginning of long output is
    dropped.
    """

    def __init__(self) -> None:
        self._running: dict[str, str] = {}
        """Output of each running command so far, by item id."""
        self._lines: dict[str, str] = {}
        """Command line of each command, by item id."""
        self._last = ""
        """Command line and output of the last command that ended."""

    def started(self, item: CommandExecutionThreadItem) -> None:
        self._running[item.id], self._lines[item.id] = "", f"$ {item.command}\n"

    def printed(self, item_id: str, text: str) -> None:
        """Add a piece of output. Output of a command that is not running any more is dropped."""
        if item_id in self._running:
            so_far = self._running[item_id] + text
            self._running[item_id] = so_far if len(so_far) <= 2 * MOST_KEPT else so_far[-MOST_KEPT:]

    def ended(self, item: CommandExecutionThreadItem) -> None:
        printed = item.aggregated_output or self._running.get(item.id, "")
        self._last = f"$ {item.command}\n{printed[-MOST_KEPT:]}"
        self._running.pop(item.id, None)

    def turn_ended(self) -> None:
        """Forget commands whose end was not reported."""
        self._running.clear()
        self._lines.clear()

    def rows(self, columns: int) -> list[str]:
        """Return the last rows of each running command."""
        ends = [text[-2 * columns * SHOWN_ROWS :] for text in self._running.values()]
        return [row for end in ends for row in guttered(end, columns)[-SHOWN_ROWS:]]

    def whole(self) -> str:
        """Return all output of the running commands, or else of the last one."""
        return "\n".join(self._lines[id] + text for id, text in self._running.items()) or self._last


SHOWN_LINES: Final = 12
"""Number of lines that are shown of a command's output, from its end."""

LONGEST_LINE: Final = 400
"""Maximum length of each shown line, in characters."""

NOTICE: Final = "magenta"
"""Colour of text that the user has to see: it is readable on dark and on light terminals."""

RECORD_ROWS: Final = 8
"""Number of rows that are shown of an answered question."""

WHOLE_FILES: Final = {"add": "+", "delete": "-"}
"""Sign before the lines of files, by the kinds of changes that contain the whole file."""


class EventView:
    """Prints events on a console. If it is not a terminal, lines are not wrapped, and Markdown stays as it is.

    Text of others is printed without control characters, and only its first row can look like one of the chat's own.
    """

    def __init__(self, console: Console) -> None:
        self._console, self.plain = console, not console.is_terminal
        self.printed = 0
        """Number of prints so far."""
        self._messages: dict[str, MarkdownBlocks] = {}
        """Blocks of the messages that stream, by item id."""
        self._proposed: set[str] = set()
        """Item ids of patches that were shown and have not ended."""
        self.outputs = CommandOutputs()
        self.last_message = ""
        """Last message of the model, as the model wrote it."""
        self._error = ""
        """Last error that was shown, because the end of its turn repeats it."""

    def unfinished(self, columns: int, rows: int) -> str:
        """Return the last rows of running commands, and of streaming messages that are no whole block yet, without
        markup.
        """
        text = "\n".join(blocks.unfinished for blocks in self._messages.values())
        message = last_rows(text, columns, rows, self._console)
        shown = [*(message.split("\n") if message else ()), *self.outputs.rows(columns)]
        return "\n".join(shown[-rows:])

    def line(self, text: str, style: str = "") -> None:
        """Print a line. Text after a line end in it is marked with a bar."""
        first, *others = printable(text).split("\n")
        self._print("\n".join([first, *guttered("\n".join(others))]), style)

    def warning(self, text: str) -> None:
        self.line(f"warning: {text}", NOTICE)

    def question(self, question: PendingQuestion, rows: int | None = None) -> None:
        """Print a question: as a whole, and again within `rows` if it has more."""
        wide = None if self.plain and not self._console.file.isatty() else self._console.width
        whole = question_rows(question.parts(), wide)
        short = question_rows(question.parts(), wide, rows)
        for row in [*whole, *short] if len(short) < len(whole) else whole:
            self._print(row, f"bold {NOTICE}")

    def answer(self, question: PendingQuestion) -> None:
        """Print a question and the user's answer to it."""
        for row in question_rows(question.parts(), self._console.width, RECORD_ROWS):
            self._print(row, NOTICE)
        self.line(f"→ {question.said}", f"bold {NOTICE}")

    def _print(self, text: str, style: str = "") -> None:
        self.printed += 1
        self._console.print(Text(text, style=style), soft_wrap=self.plain)

    def show(self, event: ServerEvent) -> None:
        match event:
            case wire.AgentMessageDeltaNotification(item_id=id, delta=text):
                self._markdown(self._messages.setdefault(id, MarkdownBlocks()).feed(text))
            case wire.ItemStartedNotification(item=wire.CommandExecutionThreadItem() as item):
                self.outputs.started(item)
                self._command(item.command)
            case wire.CommandExecutionOutputDeltaNotification(item_id=id, delta=text):
                self.outputs.printed(id, text)
            case wire.ItemCompletedNotification(item=item):
                self._item(item)
            case wire_turn.TurnPlanUpdatedNotification(plan=plan, explanation=why):
                self._plan(plan, why)
            case ErrorNotification(error=error, will_retry=retries):
                self.line(f"{'retrying: ' if retries else ''}{error.message}", NOTICE if retries else "red")
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
                    self.line(f"> {user_text(item)}", "bold")
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
        """Show a patch for which an approval is requested. It is not shown again at its end."""
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
        else:
            self._console.print(_coloured(text))

    def diff_to_page(self, text: str) -> str:
        """Return a diff with the colours of this terminal, for a pager."""
        with self._console.capture() as captured:
            self._console.print(_coloured(text))
        return captured.get()

    def _item(self, item: wire.ThreadItem) -> None:
        match item:
            case wire.AgentMessageThreadItem():
                self.last_message = item.text
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
                    self.line(f"the patch was {_ended_as(item.status)}", NOTICE)
            case wire.PlanThreadItem(text=text):
                self._markdown(blocks_of(text))
            case wire.McpToolCallThreadItem():
                why = f": {item.error.message}" if item.error is not None else ""
                self.line(f"{item.server}.{item.tool}: {item.status}{why}", "dim")
            case wire.WebSearchThreadItem(query=query):
                self.line(f"searched the web: {query}", "dim")
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
        self.outputs.ended(item)
        lines = (item.aggregated_output or "").splitlines()
        if len(lines) > SHOWN_LINES:
            all_of_it = "" if self.plain else " (Ctrl-O shows all)"
            self.line(f"  … {len(lines) - SHOWN_LINES} lines more{all_of_it}", "dim")
        for line in lines[-SHOWN_LINES:]:
            self.line(f"  {line if len(line) <= LONGEST_LINE else f'{line[:LONGEST_LINE]}…'}", "dim")
        if item.exit_code is None:
            self.line(f"  {_ended_as(item.status)}", NOTICE)
        elif item.exit_code:
            self.line(f"  exit status {item.exit_code}", "red")

    def _plan(self, steps: Sequence[wire_turn.TurnPlanStep], why: str | None) -> None:
        self.line(f"the plan: {why}" if why else "the plan", "dim")
        for step in steps:
            running = step.status is wire_turn.TurnPlanStepStatus.IN_PROGRESS
            self.line(f"{STEP_MARKS[step.status]} {step.step}", "bold" if running else "")

    def _ended(self, turn: wire_turn.Turn) -> None:
        self.outputs.turn_ended()
        if turn.status is wire_turn.TurnStatus.INTERRUPTED:
            self.line("interrupted", NOTICE)
        elif turn.error is not None and turn.error.message != self._error:
            self.line(turn.error.message, "red")
        self._error = ""


def _coloured(diff: str) -> Syntax:
    return Syntax(printable(diff).rstrip("\n"), "diff", theme=CODE_THEME, word_wrap=True)


def user_text(item: wire.UserMessageThreadItem) -> str:
    return " ".join(part.text if part.type == "text" else f"[{part.type}]" for part in item.content)


def _ended_as(status: object) -> str:
    words = {"inProgress": "not finished", "failed": "not successful"}
    return words.get(str(status), str(status))


def _without_blank_ends(lines: list[list[Segment]]) -> list[list[Segment]]:
    """Remove the empty lines that Rich puts before a list and around code."""
    filled = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
    return lines[filled[0] : filled[-1] + 1] if filled else []
