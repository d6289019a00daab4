"""Reads files for the model: lines of a file, the block around a line, entries of a folder, files that contain a
pattern, images.

It runs as a separate process, a program with the argument REQUEST, so that it has only the rights of a command and can
be killed at any time. The request is JSON: `{"do": "read" | "block" | "list" | "grep" | "image", ...}`. The result goes
to stdout; an error goes to stderr, with exit status 1. Imports only the standard library and this folder.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from fnmatch import translate

from app_server.engine.workspace.files.walk import SEPARATOR, Tree

TAB = 4

COMMENTS = ("#", "//", "/*", "*", "--", ";", "@", "<!--")
"""Prefixes of comments and attributes in most languages."""
OPENERS = frozenset({"{", "(", "[", "do", "begin", "then"})
"""Lines that open the block of the line above them, if they stand alone on a line."""
CLOSERS = ("}", ")", "]", "end")


class Lines:
    """Lines with the depths of their indentation. A blank line has the depth of the line before it."""

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
        """Return the block `levels` levels above the line `anchor`; the outermost block if `levels` is 0.

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
                head = n  # it has no level of its own
            elif self._depths[n] < self._depths[head]:
                head, climbed = n, climbed + 1
            elif self._depths[n] == self._depths[head] == 0:
                break
            if levels and climbed == levels and self._texts[head] not in OPENERS:
                break
        return head

    def _end(self, start: int, floor: int) -> int:
        """Return the end of the block that begins at line `start`: its lines are at least as deep as `floor`, or open a
        block of that depth.
        """
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
    """Return the lines of the block that are nearest to the anchor, at most `limit`."""
    above, below = anchor - block.start, block.stop - 1 - anchor
    up = min(above, max(limit // 2, limit - 1 - below))
    down = min(below, limit - 1 - up)
    return range(anchor - up, anchor + down + 1)


LINE_BYTES = 500
"""Maximum length of a line or a name in a result, in bytes."""
READ_SIZE = 1 << 16
BLOCK_LINES = 10_000
"""Number of lines above and below a line that are searched for its block."""
GREP_BYTES = 16 << 20
"""Maximum number of bytes of a file that are searched."""
NUL_WITHIN = 8192
"""Number of bytes at the beginning of a file that are searched for a NUL. A file with a NUL there is not text."""
INDENT = "  "


class ReadError(Exception):
    """The read failed. The message is for the model."""


# --- lines of a file
def read_lines(path: str, offset: int, limit: int) -> str:
    """Return up to `limit` lines, each with its number. The first one is line `offset`, counted from 1."""
    out: list[str] = []
    with _open(path) as file:
        for number, line in enumerate(_lines(file.fileno()), 1):
            if number >= offset:
                out.append(f"L{number}: {line}")
            if len(out) == limit:
                break
    if not out:
        raise ReadError("offset exceeds file length")
    return "\n".join(out)


def read_block(path: str, anchor: int, levels: int, siblings: bool, header: bool, limit: int) -> str:
    """Return the lines of the block around line `anchor`, by indentation: see `Lines.block`."""
    with _open(path) as file:
        lines = enumerate(_lines(file.fileno()), 1)
        near = deque(itertools.islice(lines, anchor), BLOCK_LINES)
        if not near or near[-1][0] != anchor:
            raise ReadError("anchor_line exceeds file length")
        place = len(near) - 1
        numbered = [*near, *itertools.islice(lines, BLOCK_LINES)]
    block = Lines([line for _, line in numbered]).block(
        place, levels=levels, siblings=siblings, header=header
    )
    shown = window(block, place, limit)
    return "\n".join(f"L{number}: {line}" for number, line in numbered[shown.start : shown.stop])


def _open(path: str):  # type: ignore[no-untyped-def]  # an unbuffered binary file
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        file = os.fdopen(number, "rb", buffering=0)
    except OSError as error:
        raise ReadError(f"failed to read file: {_reason(error)}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ReadError("failed to read file: it is not a regular file")
    return file


def _lines(number: int) -> Iterator[str]:
    """Yield the first LINE_BYTES bytes of each line, in bounded memory."""
    head, begun = b"", False
    while chunk := os.read(number, READ_SIZE):
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            yield _shown((head + piece)[: LINE_BYTES + 1].removesuffix(b"\r"))
            head = b""
        head, begun = (head + rest)[: LINE_BYTES + 1], bool(rest) or (begun and not ended)
    if begun:
        yield _shown(head.removesuffix(b"\r"))


def _shown(data: bytes) -> str:
    if len(data) <= LINE_BYTES:
        return data.decode("utf-8", "replace")
    data = data[:LINE_BYTES]
    text = data.decode("utf-8", "replace")
    # Drop a character that was split by the cut.
    return text[:-1] if text.endswith("\ufffd") and not data.endswith("\ufffd".encode()) else text


# --- entries of a folder
def list_folder(path: str, offset: int, limit: int, depth: int) -> str:
    """Return up to `limit` entries, from entry `offset` on, with the contents of folders down to `depth`."""
    try:
        os.scandir(path).close()
    except OSError as error:
        raise ReadError(f"failed to read directory: {_reason(error)}") from error
    entries = itertools.islice(_entries(path, depth, ""), offset - 1, offset + limit)
    shown = list(entries)
    if not shown and offset > 1:
        raise ReadError("offset exceeds directory entry count")
    more = len(shown) > limit
    out = [f"Absolute path: {path}", *shown[:limit]]
    return "\n".join([*out, f"More than {limit} entries found"] if more else out)


def _entries(path: str, depth: int, indent: str) -> Iterator[str]:
    try:
        with os.scandir(path) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        folder = entry.is_dir(follow_symlinks=False)
        yield f"{indent}{_shown(os.fsencode(entry.name))}{_mark(entry, folder)}"
        if folder and depth > 1:
            yield from _entries(entry.path, depth - 1, indent + INDENT)


def _mark(entry: os.DirEntry[str], folder: bool) -> str:
    if folder:
        return "/"
    if entry.is_symlink():
        return "@"
    return "" if entry.is_file(follow_symlinks=False) else "?"


# --- files that contain a pattern
def grep(pattern: str, path: str, include: str | None, limit: int) -> str:
    """Return the paths of files with a matching line, the most recently changed first."""
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ReadError(f"the pattern is not a regular expression: {error}") from error
    try:
        whole_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        raise ReadError(f"unable to access `{path}`: {_reason(error)}") from error
    candidates = _candidates(path, include) if whole_folder else [path]
    found = itertools.islice((file for file in candidates if _holds(file, expression)), limit)
    return "\n".join(os.fsencode(file).decode("utf-8", "replace") for file in found) or "No matches found."


def _candidates(root: str, include: str | None) -> list[str]:
    found = Tree(root.rstrip("/") + "/", lambda: 0).listing(lambda: False)
    listing = "" if found is None else found.files
    wanted = [re.compile(translate(glob)) for glob in braces(include)] if include else []
    by_path = include is not None and "/" in include
    files = []
    for name in listing.split(SEPARATOR)[1:]:
        if name.startswith(".") or "/." in name:
            continue
        judged = name if by_path else name.rpartition("/")[2]
        if not wanted or any(glob.match(judged) for glob in wanted):
            files.append(os.path.join(root, name))
    return sorted(files, key=_changed, reverse=True)


def braces(glob: str) -> Sequence[str]:
    """Split `*.{a,b}` into `*.a` and `*.b`."""
    head, opening, rest = glob.partition("{")
    inner, closing, tail = rest.partition("}")
    if not opening or not closing:
        return (glob,)
    return [head + choice + end for choice in inner.split(",") for end in braces(tail)]


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _holds(path: str, expression: re.Pattern[str]) -> bool:
    try:
        with _open(path) as file:
            data = file.read(GREP_BYTES)
    except (ReadError, OSError):
        return False
    if b"\0" in data[:NUL_WITHIN]:
        return False
    return any(expression.search(line) for line in data.decode("utf-8", "replace").split("\n"))


# --- images
def read_image(path: str, most: int) -> bytes:
    """Return the content of a regular file of at most `most` bytes. The caller checks that it is an image."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else "no file can have this name"
        raise ReadError(f"unable to locate image at `{path}`: {reason}") from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise ReadError(f"unable to read image at `{path}`: not a file")
    with os.fdopen(number, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ReadError(f"unable to read image at `{path}`: larger than {most} bytes")
    return data


def _reason(error: OSError) -> str:
    return f"{error.strerror} (os error {error.errno})"


def main(command_line: Sequence[str]) -> int:
    arguments = json.loads(command_line[0])
    result: str | bytes
    try:
        match arguments.pop("do"):
            case "read":
                result = read_lines(**arguments)
            case "block":
                result = read_block(**arguments)
            case "list":
                result = list_folder(**arguments)
            case "image":
                result = read_image(**arguments)
            case _:
                result = grep(**arguments)
    except ReadError as problem:
        result, output = str(problem), sys.stderr.buffer
    except OSError as error:
        result, output = f"failed to read: {_reason(error)}", sys.stderr.buffer
    else:
        output = sys.stdout.buffer
    output.write(result.encode("utf-8", "replace") if isinstance(result, str) else result)
    return 0 if output is sys.stdout.buffer else 1
