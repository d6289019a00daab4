"""Shows the events of a thread on a console: streamed Markdown, commands with folded output, patches in colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.segment import Segment, SegmentLines
from rich.syntax import Syntax
from rich.text import Text

from app_server.chat.markdown_blocks import CODE_THEME, MarkdownBlocks, ShownMarkdown, blocks_of
from app_server.chat.open_questions import PendingQuestion
from app_server.chat.question_rows import BAR, guttered, last_rows, question_rows
from app_server.client.command_line import STEP_MARKS, printable
from app_server.client.events import DeltasDropped, ServerEvent, warning_text
from app_server_protocol.v2 import items as wire
from app_server_protocol.v2 import turn as wire_turn
from app_server_protocol.v2.item_parts import FileUpdateChange, PatchApplyStatus
from app_server_protocol.v2.items import CommandExecutionThreadItem
from app_server_protocol.v2.server import ErrorNotification

MOST_KEPT: Final = 1 << 20
"""Characters of each command."""

SHOWN_ROWS: Final = 5
"""Of each command that runs."""


class CommandOutputs:
    """Output of commands while they run, and all of the last one. In bounds: the beginning of much is gone."""

    def __init__(self) -> None:
        self._running: dict[str, str] = {}
        """What each command has printed so far, by its item."""
        self._lines: dict[str, str] = {}
        """The command line of each."""
        self._last = ""
        """The last command that ended, with its output."""

    def started(self, item: CommandExecutionThreadItem) -> None:
        self._running[item.id], self._lines[item.id] = "", f"$ {item.command}\n"

    def printed(self, item_id: str, text: str) -> None:
        """Take a piece of output; what is no longer waited for is dropped."""
        if item_id in self._running:
            so_far = self._running[item_id] + text
            self._running[item_id] = so_far if len(so_far) <= 2 * MOST_KEPT else so_far[-MOST_KEPT:]

    def ended(self, item: CommandExecutionThreadItem) -> None:
        printed = item.aggregated_output or self._running.get(item.id, "")
        self._last = f"$ {item.command}\n{printed[-MOST_KEPT:]}"
        self._running.pop(item.id, None)

    def turn_ended(self) -> None:
        """Forget commands whose end was not told."""
        self._running.clear()
        self._lines.clear()

    def rows(self, columns: int) -> list[str]:
        """Return the last rows of each command that runs."""
        ends = [text[-2 * columns * SHOWN_ROWS :] for text in self._running.values()]
        return [row for end in ends for row in guttered(end, columns)[-SHOWN_ROWS:]]

    def whole(self) -> str:
        """Return all that the commands that run have printed, or else the last one."""
        return "\n".join(self._lines[id] + text for id, text in self._running.items()) or self._last


SHOWN_LINES: Final = 12
"""Of a command's output, from its end."""

LONGEST_LINE: Final = 400
"""Characters of each of them."""

NOTICE: Final = "magenta"
"""The colour of what the user has to see: it can be read on dark terminals and on light ones."""

RECORD_ROWS: Final = 8
"""Of a question that was answered."""

WHOLE_FILES: Final = {"add": "+", "delete": "-"}
"""Kinds of changes that come with the content of the file, and how its lines are shown."""


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
        self.outputs = CommandOutputs()
        self.last_message = ""
        """What the model said last, as it wrote it."""
        self._error = ""
        """The last one that was shown; the end of its turn says it again."""

    def unfinished(self, columns: int, rows: int) -> str:
        """Return the last rows of what streams and is no whole block yet, without markup, and of commands that run."""
        text = "\n".join(blocks.unfinished for blocks in self._messages.values())
        message = last_rows(text, columns, rows, self._console)
        shown = [*(message.split("\n") if message else ()), *self.outputs.rows(columns)]
        return "\n".join(shown[-rows:])

    def line(self, text: str, style: str = "") -> None:
        """Print a line; what follows a line end in it is set apart."""
        first, *others = printable(text).split("\n")
        self._print("\n".join([first, *guttered("\n".join(others))]), style)

    def warning(self, text: str) -> None:
        self.line(f"warning: {text}", NOTICE)

    def question(self, question: PendingQuestion, rows: int | None = None) -> None:
        """Print what is asked: whole, and again in so many rows where it has more."""
        wide = None if self.plain and not self._console.file.isatty() else self._console.width
        whole = question_rows(question.parts(), wide)
        short = question_rows(question.parts(), wide, rows)
        for row in [*whole, *short] if len(short) < len(whole) else whole:
            self._print(row, f"bold {NOTICE}")

    def answer(self, question: PendingQuestion) -> None:
        """Print what was asked, and what the user said to it."""
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
    """Remove the empty lines with which Rich begins a list and frames code."""
    filled = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
    return lines[filled[0] : filled[-1] + 1] if filled else []
