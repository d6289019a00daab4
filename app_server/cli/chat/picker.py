"""Lets the user choose in a terminal: a list with arrow keys, which typed text filters."""

from __future__ import annotations

from typing import Final, TypeVar

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VSplit,
    Window,
)
from rich.cells import cell_len

from app_server.cli.chat.question_rows import cut_to
from app_server.cli.chat.slash_context import Choices, PickerRow
from app_server.client.command_line import printable

T = TypeVar("T")

ROWS: Final = 10
"""Maximum number of rows that are shown at once, if the terminal has enough lines."""

OTHER_ROWS: Final = 2
"""Number of lines of the picker that are no rows: the typed text, and the help."""

NOTE_FROM: Final = 60
"""Minimum width of a terminal in which the note of each row is shown, in columns."""

HELP: Final = "↑ ↓ choose · type to filter · Enter takes · Esc leaves"
MOVES: Final = {"up": -1, "c-p": -1, "down": 1, "c-n": 1, "pageup": -ROWS, "pagedown": ROWS}


def picker(choices: Choices[T], keys: Input) -> Application[T | None]:
    """Return an application for the lines below the cursor, which it clears at its end. Its result is None if nothing
    was chosen.
    """
    typed = Buffer(on_text_changed=lambda buffer: choices.filter(buffer.text), multiline=False)
    search = VSplit(
        [
            Window(FormattedTextControl(f"{choices.what}: "), dont_extend_width=True),
            Window(BufferControl(typed)),
        ],
        height=1,
    )
    rows = Window(
        FormattedTextControl(lambda: _rows(choices)),
        height=lambda: Dimension.exact(max(1, min(_room(), len(choices.matching)))),
        wrap_lines=False,
    )
    help_line = Window(FormattedTextControl(_help), height=1, style="dim", wrap_lines=False)
    app: Application[T | None] = Application(
        Layout(HSplit([search, rows, help_line]), focused_element=typed),
        key_bindings=_bindings(choices),
        erase_when_done=True,
        input=keys,
    )
    app.ttimeoutlen = 0.05  # an Escape alone is a key, not the beginning of a sequence
    return app


def _rows(choices: Choices[T]) -> StyleAndTextTuples:
    first, shown = choices.shown(_room())
    if not shown:
        return [("italic", "nothing contains this")]
    lines: StyleAndTextTuples = []
    for number, row in enumerate(shown, first):
        chosen = number == choices.selected
        lines.append(("reverse" if chosen else "", _row(row, "→ " if chosen else "  ")))
        lines.append(("", "\n"))
    return lines[:-1]


def _row(row: PickerRow[T], mark: str) -> str:
    columns = get_app().output.get_size().columns - len(mark) - 1
    text, note = printable(row.text), printable(row.note)
    if columns < NOTE_FROM or not note:
        return mark + cut_to(text, columns)
    text = cut_to(text, columns * 2 // 3)
    left = columns - cell_len(text) - 4
    return f"{mark}{text}  ({cut_to(note, left)})"


def _help() -> str:
    return cut_to(HELP, get_app().output.get_size().columns)


def _room() -> int:
    return max(1, min(ROWS, get_app().output.get_size().rows - OTHER_ROWS))


def _bindings(choices: Choices[T]) -> KeyBindings:
    bindings = KeyBindings()
    for key, by in MOVES.items():

        @bindings.add(key)
        def _(event: KeyPressEvent, by: int = by) -> None:
            choices.move(by)

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        if choices.chosen is not None:
            event.app.exit(result=choices.chosen.value)

    for key in ("escape", "c-c", "c-d", "<sigint>"):

        @bindings.add(key, eager=key == "escape")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

    return bindings
