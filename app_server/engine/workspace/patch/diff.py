"""Unified diffs of texts, in git's format. Pure.

Myers' algorithm in linear space finds the lines that differ. Its time is quadratic in the number of differences. Above
a fixed cost, lines that are unique in both texts split the problem first. A part that is still too expensive counts as
replaced as a whole. Such a diff is correct, but not the shortest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

STEPS = 400_000
"""Maximum cost of one search for a middle point, in steps: a fraction of a second."""


class Change(Struct, frozen=True):
    """`new[b_start:b_stop]` replaces `old[a_start:a_stop]`; one of the two may be empty.

    Also called a box: the rectangle of the edit graph between these lines.
    """

    a_start: int
    a_stop: int
    b_start: int
    b_stop: int


def changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """Return the changes in order, with at least one equal line between two neighbours."""
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    boxes: list[Change] = []
    pending = [Change(0, len(a), 0, len(b))]
    while pending:
        box = _trimmed(a, b, pending.pop())
        if box.a_start == box.a_stop or box.b_start == box.b_stop:
            if box.a_stop > box.a_start or box.b_stop > box.b_start:
                boxes.append(box)
            continue
        parts = _divided(a, b, box)
        if parts:
            pending.extend(reversed(parts))
        else:
            boxes.append(box)
    return _joined(_slid(b, len(a), _joined(boxes)))


def _trimmed(a: list[int], b: list[int], box: Change) -> Change:
    """Return the box without the equal lines at its start and end."""
    a_start, a_stop, b_start, b_stop = box.a_start, box.a_stop, box.b_start, box.b_stop
    while a_start < a_stop and b_start < b_stop and a[a_start] == b[b_start]:
        a_start += 1
        b_start += 1
    while a_start < a_stop and b_start < b_stop and a[a_stop - 1] == b[b_stop - 1]:
        a_stop -= 1
        b_stop -= 1
    return Change(a_start, a_stop, b_start, b_stop)


def _divided(a: list[int], b: list[int], box: Change) -> list[Change]:
    """Split the box at a point of a shortest path. Return no parts if the two sides have no line in common, or too
    few.
    """
    middle = _middle(a[box.a_start : box.a_stop], b[box.b_start : box.b_stop])
    if middle is None:
        return _between_unique(a, b, box)
    x, y = box.a_start + middle[0], box.b_start + middle[1]
    parts = [Change(box.a_start, x, box.b_start, y), Change(x, box.a_stop, y, box.b_stop)]
    return [] if box in parts else parts


def _middle(a: list[int], b: list[int]) -> tuple[int, int] | None:
    """Return a point (x, y) on a shortest edit path from (0, 0) to (n, m); None above the maximum cost.

    A step right deletes a line of `a`, a step down inserts one of `b`, and equal lines are diagonal steps, which cost
    nothing. Diagonal `k` consists of the points with x - y = k. `forward[size + k]` is the largest x on diagonal k that
    d steps from the start reach; `backward` is the same from the end, with coordinates that count back from it. The two
    searches advance alternately. When they overlap on a diagonal, that point is on a shortest path: in the forward pass
    if n - m is odd, in the backward pass if it is even. Only two rows are stored, hence linear space.
    """
    n, m = len(a), len(b)
    delta = n - m
    odd = delta % 2 != 0
    size = (n + m + 1) // 2 + 2
    forward, backward = [0] * (2 * size + 1), [0] * (2 * size + 1)
    left = STEPS
    for d in range(size):
        left -= d
        if left < 0:
            return None
        for k in range(d, -d - 1, -2):
            x = _furthest(forward, size, k, d)
            start = x
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            forward[size + k] = x
            if odd and abs(k - delta) < d and x + backward[size - k + delta] >= n:
                return start, start - k
        for k in range(d, -d - 1, -2):
            x = _furthest(backward, size, k, d)
            y = x - k
            while x < n and y < m and a[n - x - 1] == b[m - y - 1]:
                x, y = x + 1, y + 1
            backward[size + k] = x
            if not odd and abs(k - delta) <= d and x + forward[size - k + delta] >= n:
                return n - x, m - y
    return None


def _furthest(reached: list[int], size: int, k: int, d: int) -> int:
    """Return the x at which step `d` enters diagonal `k`: from the neighbouring diagonal that reached further.

    From `k + 1` the step is down and keeps x; from `k - 1` it is right and adds one. At the edges of the range, only
    one neighbour exists.
    """
    if k == -d or (k != d and reached[size + k - 1] < reached[size + k + 1]):
        return reached[size + k + 1]
    return reached[size + k - 1] + 1


def _between_unique(a: list[int], b: list[int], box: Change) -> list[Change]:
    """Split the box at the lines that are unique on both sides: at the longest sequence of them in the same order."""
    in_a, in_b = Counter(a[box.a_start : box.a_stop]), Counter(b[box.b_start : box.b_stop])
    where = {line: n for n, line in enumerate(b[box.b_start : box.b_stop], box.b_start) if in_b[line] == 1}
    pairs = [(n, where[a[n]]) for n in range(box.a_start, box.a_stop) if in_a[a[n]] == 1 and a[n] in where]
    parts: list[Change] = []
    x, y = box.a_start, box.b_start
    for a_at, b_at in _ascending(pairs):
        parts.append(Change(x, a_at, y, b_at))
        x, y = a_at + 1, b_at + 1
    return [*parts, Change(x, box.a_stop, y, box.b_stop)] if parts else []


def _ascending(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence in which both numbers increase; the first number of each pair already does.

    Patience sorting: `tails[i]` is the smallest end of an increasing subsequence of length i + 1, `chains[i]` the index
    of that pair, and `before` links each pair to its predecessor.
    """
    tails: list[int] = []
    chains: list[int] = []
    before: list[int] = []
    for n, (_, b_at) in enumerate(pairs):
        length = bisect_left(tails, b_at)
        before.append(chains[length - 1] if length else -1)
        tails[length : length + 1] = [b_at]
        chains[length : length + 1] = [n]
    result: list[tuple[int, int]] = []
    n = chains[-1] if chains else -1
    while n >= 0:
        result.append(pairs[n])
        n = before[n]
    return result[::-1]


def _joined(boxes: list[Change]) -> list[Change]:
    joined: list[Change] = []
    for box in boxes:
        last = joined[-1] if joined else None
        if last and last.a_stop == box.a_start and last.b_stop == box.b_start:
            joined[-1] = Change(last.a_start, box.a_stop, last.b_start, box.b_stop)
        else:
            joined.append(box)
    return joined


def _slid(b: list[int], length: int, boxes: list[Change]) -> list[Change]:
    """Move insertions as far down as possible, also past a deletion, as git does.

    An insertion can move down by one line if its first line equals the line after it: inserting the shifted range gives
    the same text. If it meets the next insertion, the two merge. If it meets a deletion, the deletion comes first.
    """
    rest = [part for box in reversed(boxes) for part in reversed(_apart(box))]
    slid: list[Change] = []
    while rest:
        box = rest.pop()
        while box.a_start == box.a_stop:
            following = rest[-1] if rest else None
            if box.a_stop < (following.a_start if following else length):
                if b[box.b_start] != b[box.b_stop]:
                    break
                box = Change(box.a_start + 1, box.a_start + 1, box.b_start + 1, box.b_stop + 1)
            elif following is None:
                break
            elif following.a_start == following.a_stop:
                box = Change(box.a_start, box.a_start, box.b_start, rest.pop().b_stop)
            else:
                slid.append(Change(rest.pop().a_start, following.a_stop, box.b_start, box.b_start))
                box = Change(following.a_stop, following.a_stop, box.b_start, box.b_stop)
        slid.append(box)
    return slid


def _apart(box: Change) -> list[Change]:
    """Return the deletion and the insertion of a box, without empty ones."""
    gone = Change(box.a_start, box.a_stop, box.b_start, box.b_start)
    come = Change(box.a_stop, box.a_stop, box.b_start, box.b_stop)
    return [part for part in (gone, come) if part.a_start < part.a_stop or part.b_start < part.b_stop]


NO_NEWLINE = "\\ No newline at end of file\n"


def unified_hunks(old: str, new: str, context: int) -> str:
    """Return the hunks from `old` to `new`, without file headers; empty if nothing changed."""
    a, b = _lines(old), _lines(new)
    return "".join([_hunk(a, b, group, context) for group in _groups(changes(a, b), context)])


def _lines(text: str) -> list[str]:
    """Return the lines with their line ends. Only a newline ends a line, as in git."""
    pieces = text.split("\n")
    lines = [piece + "\n" for piece in pieces[:-1]]
    return [*lines, pieces[-1]] if pieces[-1] else lines


def _groups(found: Sequence[Change], context: int) -> Iterator[list[Change]]:
    """Yield groups of changes whose context lines would touch."""
    group: list[Change] = []
    for change in found:
        if group and change.a_start - group[-1].a_stop > 2 * context:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(a: list[str], b: list[str], group: list[Change], context: int) -> str:
    first, last = group[0], group[-1]
    a_start = max(first.a_start - context, 0)
    b_start = first.b_start - (first.a_start - a_start)
    a_stop = min(last.a_stop + context, len(a))
    b_stop = last.b_stop + (a_stop - last.a_stop)
    pieces = [f"@@ -{_range(a_start, a_stop)} +{_range(b_start, b_stop)} @@\n"]
    at = a_start
    for change in group:
        pieces.extend(_marked(" ", a[at : change.a_start]))
        pieces.extend(_marked("-", a[change.a_start : change.a_stop]))
        pieces.extend(_marked("+", b[change.b_start : change.b_stop]))
        at = change.a_stop
    pieces.extend(_marked(" ", a[at:a_stop]))
    return "".join(pieces)


def _range(start: int, stop: int) -> str:
    length = stop - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield mark + line
        if not line.endswith("\n"):
            yield "\n" + NO_NEWLINE
