"""The keys of the prompt that mean something else than in other prompts."""

from __future__ import annotations

from typing import Protocol

from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from app_server.chat.terminal_keys import FOCUS_IN, FOCUS_OUT, NEW_LINE, DesktopNotices


class PromptActions(Protocol):
    """Actions of keys."""

    notices: DesktopNotices

    def answer(self) -> None: ...
    def interrupt(self) -> None: ...
    def edit(self) -> None: ...
    def show_all(self) -> None: ...


def chat_bindings(actions: PromptActions, is_asked: Condition) -> KeyBindings:
    bindings = KeyBindings()
    typing = ~is_asked & ~is_searching
    continues = Condition(lambda: get_app().current_buffer.document.current_line_before_cursor.endswith("\\"))

    @bindings.add("enter", filter=is_asked)
    def _(event: KeyPressEvent) -> None:
        actions.answer()

    @bindings.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @bindings.add("enter", filter=typing & continues)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.delete_before_cursor()
        event.current_buffer.insert_text("\n")

    @bindings.add(NEW_LINE, filter=typing)
    @bindings.add("escape", "enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-g", filter=typing)
    def _(event: KeyPressEvent) -> None:
        actions.edit()

    @bindings.add("c-o")
    def _(event: KeyPressEvent) -> None:
        actions.show_all()

    @bindings.add("c-c")
    @bindings.add("<sigint>")
    def _(event: KeyPressEvent) -> None:
        actions.interrupt()

    for key, in_front in ((FOCUS_IN, True), (FOCUS_OUT, False)):

        @bindings.add(key)
        def _(event: KeyPressEvent, in_front: bool = in_front) -> None:
            actions.notices.in_front = in_front

    return bindings
