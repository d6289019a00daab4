"""Finds the block of lines that contains a given line, by indentation alone, so in any language. Pure.

A block is a line, its head, and the deeper lines below it. Comments and blank lines do not delimit blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

TAB = 4

COMMENTS = ("#", "//", "/*", "*", "--", ";", "@", "<!--")
"""Prefixes of comments and attributes in most languages."""
OPENERS = frozenset({"{", "(", "[", "do", "begin", "then"})
"""Alone on a line, these open the block of the line above."""
CLOSERS = ("}", ")", "]", "end")


class Lines:
    """Lines with their depths; a blank line has the depth of the one before it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.count = len(lines)
        self._texts = [line.strip() for line in lines]
        self._depths: list[int] = []
        for line in lines:
            expanded = line.expandtabs(TAB)
            blank = not expanded.strip()
            last = self._depths[-1] if self._depths else 0
            self._depths.append(last if blank else len(expanded) - len(expanded.lstrip()))

    def block(self, anchor: int, *, levels: int, siblings: bool, header: bool) -> range:
        """Return the block `levels` above the line `anchor`, or the outermost for 0.

        `siblings` adds the other blocks under the same parent, `header` the comments and attributes directly above.
        """
        head = self._head(anchor, levels)
        floor = self._depths[head]
        if siblings:
            first, end = head, self._end(anchor, floor)
            for n in self._code(range(head - 1, -1, -1)):
                if self._depths[n] < floor:
                    break
                first = n
        else:
            first, end = head, self._end(head, floor + 1)
            if end < self.count and self._depths[end] == floor and self._texts[end].startswith(CLOSERS):
                end += 1
        while header and first > 0 and self._is_header(first - 1, floor):
            first -= 1
        return range(min(first, anchor), max(end, anchor + 1))

    def _head(self, anchor: int, levels: int) -> int:
        head, climbed = anchor, 0
        for n in self._code(range(anchor - 1, -1, -1)):
            if self._texts[head] in OPENERS and self._depths[n] <= self._depths[head]:
                head = n  # no level of its own
            elif self._depths[n] < self._depths[head]:
                head, climbed = n, climbed + 1
            elif self._depths[n] == self._depths[head] == 0:
                break
            if levels and climbed == levels and self._texts[head] not in OPENERS:
                break
        return head

    def _end(self, start: int, floor: int) -> int:
        """Return the end of the lines from `start` that are at least as deep as `floor`, or open such a block."""
        end = start + 1
        for n in range(start + 1, self.count):
            opens = self._depths[n] == floor - 1 and self._texts[n] in OPENERS
            if self._texts[n] and (self._depths[n] >= floor or opens):
                end = n + 1
            elif self._texts[n] and not self._is_comment(n):
                break
        return end

    def _code(self, numbers: range) -> Iterator[int]:
        return (n for n in numbers if self._texts[n] and not self._is_comment(n))

    def _is_header(self, n: int, depth: int) -> bool:
        # In many styles, the later lines of a comment are indented by one more column.
        return self._is_comment(n) and self._depths[n] in (depth, depth + 1)

    def _is_comment(self, n: int) -> bool:
        return self._texts[n].startswith(COMMENTS)


def window(block: range, anchor: int, limit: int) -> range:
    """Return the at most `limit` lines of the block that are nearest to the anchor."""
    above, below = anchor - block.start, block.stop - 1 - anchor
    up = min(above, max(limit // 2, limit - 1 - below))
    down = min(below, limit - 1 - up)
    return range(anchor - up, anchor + down + 1)
