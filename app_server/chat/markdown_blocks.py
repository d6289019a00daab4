"""Cuts streamed Markdown into blocks that can be shown: a paragraph, a list, a fenced piece of code at a time. Pure."""

from __future__ import annotations

from protocol.records import dataclass

FENCES = ("```", "~~~")


@dataclass(slots=True)
class MarkdownBlocks:
    """The blocks of one message."""

    _line: str = ""
    _block: str = ""
    _fence: str | None = None
    """The mark that closes the open piece of code."""

    @property
    def unfinished(self) -> str:
        """What came since the last block that is whole."""
        return self._block + self._line

    def feed(self, text: str) -> list[str]:
        """The blocks that `text` completes."""
        done: list[str] = []
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            done += self._take(line)
        return done

    def flush(self) -> list[str]:
        """What is left at the end of the message."""
        done = self._take(self._line) if self._line else []
        self._line = ""
        rest, self._block, self._fence = self._block, "", None
        return [*done, rest] if rest.strip() else done

    def _take(self, line: str) -> list[str]:
        stripped = line.strip()
        mark = next((each for each in FENCES if stripped.startswith(each)), None)
        if self._fence is not None:
            self._block += line + "\n"
            if mark == self._fence and stripped == mark:
                return self._end()
            return []
        if mark is not None:
            self._fence = mark
            self._block += line + "\n"
            return []
        if not stripped:
            return self._end()
        self._block += line + "\n"
        return []

    def _end(self) -> list[str]:
        block, self._block, self._fence = self._block, "", None
        return [block] if block.strip() else []


def blocks_of(text: str) -> list[str]:
    """Those of a whole message."""
    blocks = MarkdownBlocks()
    return [*blocks.feed(text), *blocks.flush()]
