"""The parts of the disk that a command may see and change. Linux, in the namespaces of the command.

The module handles protected paths in writable roots, and for a permission profile hidden paths, visible paths inside
them, and a root with the visible paths alone. Every path is opened without following links. A hidden folder is replaced
by one that cannot be listed, a hidden file by one that cannot be read.
"""

from __future__ import annotations

import errno
import os
import stat

from app_server.engine.sandbox.launcher.namespaces import (
    AT_EMPTY_PATH,
    AT_RECURSIVE,
    ATTR_RDONLY,
    GONE,
    HIDDEN_FILE,
    HIDDEN_FOLDER,
    MNT_DETACH,
    MS_NODEV,
    MS_NOSUID,
    attach,
    mount,
    open_tree,
    pin,
    set_attributes,
)
from app_server.engine.sandbox.launcher.stdlib_min import Any, suppress
from app_server.engine.sandbox.launcher.syscalls import call, open_place

ALWAYS = (b"/dev", b"/proc")
"""Paths that are always visible: both belong to the command alone."""
NEW_ROOT = b"/proc"
"""Path at which the root of visible paths is made: a folder that every system has, and that is copied before."""
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def close(confine: dict[str, Any]) -> list[int]:
    """Make protected paths read-only, and hide and reopen paths. Return descriptors of the writable paths beside the
    roots.
    """
    protected, hidden = frozenset(confine["protected"]), frozenset(confine["hidden"])
    reopened, inner = frozenset(confine["reopened"]), _open_inner(confine)
    covers: list[int] = []
    # Upper directories first, because a mount hides earlier mounts below it.
    for path in sorted({*protected, *hidden, *inner, *confine["pinned"]}, key=lambda path: path.split(b"/")):
        if path in inner:
            _show(path, inner[path], writable=path in reopened)
        elif path in hidden:
            _hide(path, holds=any(place.startswith(path + b"/") for place in inner), covers=covers)
        else:
            pin(path, protected=path in protected)
    for cover in covers:
        set_attributes(b"", add=ATTR_RDONLY, flags=AT_EMPTY_PATH, at=cover)
        os.close(cover)
    for path in inner.keys() - reopened:
        os.close(inner[path])
    return [inner[path] for path in inner if path in reopened]


def _open_inner(confine: dict[str, Any]) -> dict[bytes, int]:
    """Open the paths inside hidden or read-only ones, before those are mounted over them."""
    inner: dict[bytes, int] = {}
    shown = [] if confine["visible"] is not None and not confine["hidden"] else confine["shown"]
    for path in (*confine["reopened"], *shown):
        try:
            inner[path] = open_place(path)
        except OSError as error:
            if error.errno not in GONE:
                raise
    return inner


def _hide(path: bytes, *, holds: bool, covers: list[int]) -> None:
    """Mount an unreadable file or folder over a path. `holds` says that something inside is shown again. Then the cover
    needs folders, and it is added to `covers`, to be made read-only.
    """
    try:
        place = open_place(path)
    except OSError as error:
        if error.errno in GONE:
            return
        raise
    try:
        kind = os.fstat(place).st_mode
        if stat.S_ISLNK(kind):
            return
        if holds:
            # A link could redirect a path, but not the descriptor.
            mount(b"hidden", b"/proc/self/fd/%d" % place, b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=111,size=1m")
            covers.append(open_place(path))
        else:
            attach(open_tree(HIDDEN_FOLDER if stat.S_ISDIR(kind) else HIDDEN_FILE), place)
    finally:
        os.close(place)


def _show(path: bytes, source: int, *, writable: bool) -> None:
    """Mount a path over itself, or in the cover of the hidden folder that contains it."""
    tree = open_tree(b"", AT_RECURSIVE | AT_EMPTY_PATH, source)
    try:
        if writable:
            _clear_read_only(tree)
        else:
            set_attributes(b"", add=ATTR_RDONLY, flags=AT_RECURSIVE | AT_EMPTY_PATH, at=tree)
        try:
            place = open_place(path)
        except FileNotFoundError:
            _make_place(path, folder=stat.S_ISDIR(os.fstat(source).st_mode), mode=0o111)
            place = open_place(path)
    except BaseException:
        os.close(tree)
        raise
    try:
        attach(tree, place)
    finally:
        os.close(place)


def _clear_read_only(tree: int) -> None:
    try:
        set_attributes(b"", clear=ATTR_RDONLY, flags=AT_RECURSIVE | AT_EMPTY_PATH, at=tree)
    except PermissionError:  # a mount below is read-only on the host
        set_attributes(b"", clear=ATTR_RDONLY, flags=AT_EMPTY_PATH, at=tree)


def _make_place(path: bytes, *, folder: bool, mode: int, root: bytes = b"") -> None:
    """Create a file or folder at a path as a mount point, with the folders above it. They are in a file system of this
    command.
    """
    at = os.open(root or b"/", FOLDER)
    try:
        *above, name = [part for part in path.split(b"/") if part]
        for part in above:
            with suppress(FileExistsError):
                os.mkdir(part, mode, dir_fd=at)
            inner = os.open(part, FOLDER, dir_fd=at)
            os.close(at)
            at = inner
        with suppress(FileExistsError):
            if folder:
                os.mkdir(name, mode, dir_fd=at)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=at))
    finally:
        os.close(at)


def enter_root(confine: dict[str, Any]) -> None:
    """Replace the root of this process by one that has the visible paths alone."""
    trees: list[tuple[bytes, int, bool]] = []
    for path in sorted(_all_visible(confine), key=lambda path: path.split(b"/")):
        try:
            place = open_place(path)
        except OSError as error:
            if error.errno in GONE:
                continue
            raise
        kind = os.fstat(place).st_mode
        if not stat.S_ISLNK(kind):  # otherwise a link has replaced it
            trees.append((path, open_tree(b"", AT_RECURSIVE | AT_EMPTY_PATH, place), stat.S_ISDIR(kind)))
        os.close(place)
    links = [(path, target) for path in confine["links"] if (target := _target(path)) is not None]
    mount(b"root", NEW_ROOT, b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=755,size=4m")
    for path, tree, folder in trees:
        _make_place(path, folder=folder, mode=0o755, root=NEW_ROOT)
        attach(tree, NEW_ROOT + path)
    for path, target in links:
        with suppress(OSError):
            _make_link(path, target)
    os.chdir(NEW_ROOT)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir(b"/")
    set_attributes(b"/", add=ATTR_RDONLY)


def _all_visible(confine: dict[str, Any]) -> set[bytes]:
    return {*ALWAYS, *shown_places(confine)}


def shown_places(confine: dict[str, Any]) -> list[bytes]:
    """Return the only paths that may be read. Return nothing if the whole disk may be read."""
    if confine["visible"] is None:
        return []
    return [*confine["visible"], *confine["shown"]]


def _target(link: bytes) -> bytes | None:
    try:
        return os.readlink(link)
    except OSError as error:
        if error.errno in (*GONE, errno.EINVAL):
            return None
        raise


def _make_link(path: bytes, target: bytes) -> None:
    folder = os.path.dirname(path)
    if folder != b"/":
        _make_place(folder, folder=True, mode=0o755, root=NEW_ROOT)
    os.symlink(target, NEW_ROOT + path)
