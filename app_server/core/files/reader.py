"""Reads for the model: lines of a file, entries of a folder, files that hold a pattern, images. Run as a process of its
own, `python -I -S reader.py REQUEST`, so that it has the rights of a command, no more, and can be ended at any time.

The request is JSON: `{"do": "read" | "block" | "list" | "grep" | "image", ...}`. The answer goes to stdout; what went
wrong goes to stderr, with exit status 1. Standard library and this folder only.
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
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from app_server.core.files.blocks import Lines, window
from app_server.core.files.walk import SEPARATOR, Tree

LINE_BYTES = 500
"""So much of a line or a name is shown."""
READ_SIZE = 1 << 16
BLOCK_LINES = 10_000
"""So far up and down is looked for what belongs to a line."""
GREP_BYTES = 16 << 20
"""So much of a file is searched."""
NUL_WITHIN = 8192
"""A file with a NUL byte in its beginning is no text."""
INDENT = "  "


class Unreadable(Exception):
    """Why the model gets no answer."""


# --- lines of a file
def read_lines(path: str, offset: int, limit: int) -> str:
    """Up to `limit` lines from the line `offset` on, counted from 1, each behind its number."""
    out: list[str] = []
    with _open(path) as file:
        for number, line in enumerate(_lines(file.fileno()), 1):
            if number >= offset:
                out.append(f"L{number}: {line}")
            if len(out) == limit:
                break
    if not out:
        raise Unreadable("offset exceeds file length")
    return "\n".join(out)


def read_block(path: str, anchor: int, levels: int, siblings: bool, header: bool, limit: int) -> str:
    """The lines that belong to the line `anchor` by their indentation; see `Lines.block`."""
    with _open(path) as file:
        lines = enumerate(_lines(file.fileno()), 1)
        near = deque(itertools.islice(lines, anchor), BLOCK_LINES)
        if not near or near[-1][0] != anchor:
            raise Unreadable("anchor_line exceeds file length")
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
        raise Unreadable(f"failed to read file: {_reason(error)}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Unreadable("failed to read file: it is not a regular file")
    return file


def _lines(number: int) -> Iterator[str]:
    """Each line's beginning, in memory that does not grow with the line."""
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
    # A character that the cut went through is left out.
    return text[:-1] if text.endswith("\ufffd") and not data.endswith("\ufffd".encode()) else text


# --- entries of a folder
def list_folder(path: str, offset: int, limit: int, depth: int) -> str:
    """Up to `limit` entries from the entry `offset` on, folders with what is in them down to `depth`."""
    try:
        os.scandir(path).close()
    except OSError as error:
        raise Unreadable(f"failed to read directory: {_reason(error)}") from error
    entries = itertools.islice(_entries(path, depth, ""), offset - 1, offset + limit)
    shown = list(entries)
    if not shown and offset > 1:
        raise Unreadable("offset exceeds directory entry count")
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


# --- files that hold a pattern
def grep(pattern: str, path: str, include: str | None, limit: int) -> str:
    """The paths of files with a matching line, the one changed last first."""
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise Unreadable(f"the pattern is not a regular expression: {error}") from error
    try:
        whole_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        raise Unreadable(f"unable to access `{path}`: {_reason(error)}") from error
    candidates = _candidates(path, include) if whole_folder else [path]
    found = itertools.islice((file for file in candidates if _holds(file, expression)), limit)
    return "\n".join(_shown_path(file) for file in found) or "No matches found."


def _candidates(root: str, include: str | None) -> list[str]:
    listing = Tree(root.rstrip("/") + "/", lambda: 0).listing(lambda: False) or ""
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
    """`*.{a,b}` as `*.a` and `*.b`."""
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
    except (Unreadable, OSError):
        return False
    if b"\0" in data[:NUL_WITHIN]:
        return False
    return any(expression.search(line) for line in data.decode("utf-8", "replace").split("\n"))


# --- images
def read_image(path: str, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes; whether they are an image is for the caller to say."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        raise Unreadable(f"unable to locate image at `{path}`: {reason}") from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Unreadable(f"unable to read image at `{path}`: not a file")
    with os.fdopen(number, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise Unreadable(f"unable to read image at `{path}`: larger than {most} bytes")
    return data


def _shown_path(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _reason(error: OSError) -> str:
    return f"{error.strerror} (os error {error.errno})"


def main(request: str) -> int:
    asked = json.loads(request)
    answer: str | bytes
    try:
        match asked.pop("do"):
            case "read":
                answer = read_lines(**asked)
            case "block":
                answer = read_block(**asked)
            case "list":
                answer = list_folder(**asked)
            case "image":
                answer = read_image(**asked)
            case _:
                answer = grep(**asked)
    except Unreadable as problem:
        answer, output = str(problem), sys.stderr.buffer
    except OSError as error:
        answer, output = f"failed to read: {_reason(error)}", sys.stderr.buffer
    else:
        output = sys.stdout.buffer
    output.write(answer.encode("utf-8", "replace") if isinstance(answer, str) else answer)
    return 0 if output is sys.stdout.buffer else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
