"""Lines that were typed in a terminal before the prompt of the chat took over the keys."""

import os

import pytest

from app_server.cli.chat.terminal_keys import typed_ahead

pytestmark = pytest.mark.scenario


def test_whole_lines_are_taken_and_what_is_not_entered_stays() -> None:
    outer, inner = os.openpty()
    try:
        os.write(outer, b"first\nsecond one\n\nnot entered")
        assert typed_ahead(inner) == ["first", "second one"]
        assert typed_ahead(inner) == []
        os.write(outer, b" yet\n")
        assert typed_ahead(inner) == ["not entered yet"]
    finally:
        os.close(outer)
        os.close(inner)
