"""Small trees of directories, links and repositories, two conversations with roots inside each other, and their
commands: make, write, rename, link, copy and remove.

Paths are relative to the top of a tree that belongs to one example; `Tree` has the disk.
"""

import os
import shlex
import stat
from collections.abc import Mapping
from pathlib import Path

from hypothesis import strategies as st
from msgspec import Struct

from app_server_protocol.policy import PROTECTED_FOLDERS

FENCED = PROTECTED_FOLDERS
OUTSIDE = ("out", "out/d")
FOLDERS = ("a", "a/b", "a/b/c", "a/d", "x", "x/y", *OUTSIDE)
HOMES = ("home", "a/conf/home", "a/b/home", "x/y/deep/home")
LINKS = {"ln": "a/b", "a/l": "b", "a/b/up": "../../out", "x/z": "../a/b/c", "a/abs": "x/y", "out/in": "../a"}
PROTECTED_AT = ("a", "a/b", "a/b/c", "a/d", "x", "x/y", "a/d/deep")
PROTECTED_AS = ("repository", "pointer", "link", "settings")

PLACES = (
    *FOLDERS,
    *LINKS,
    *(f"{folder}/{name}" for folder in ("a", "a/b", "a/b/c", "a/d", "x/y") for name in FENCED[:2]),
    *(
        "a/b/.git/hooks",
        "a/d/.git/hooks",
        "a/conf",
        "a/conf/home",
        "a/b/home",
        "x/y/deep",
        "home/config.toml",
    ),
    *(
        "a/f",
        "a/b/f",
        "a/b/c/f",
        "out/f",
        "out/d/f",
        "a/n",
        "a/b/n",
        "a/b/c/n",
        "x/n",
        "out/n",
        "a/m",
        "a/b/m",
    ),
    *("a/n/f", "a/b/n/c", "a/l/n", "ln/f", "a/b/up/f", "a/b/up/n", "x/z/f", "a/n/.git", "a/b/real"),
)
places = st.sampled_from(PLACES)
roots = st.sampled_from(
    ["a", "a/b", "a/b/c", "a/d", "x", "x/y", "ln", "a/l", "a/b/n", "x/z", "a/abs", "a/b/up"]
)

Entry = tuple[object, ...]
"""All visible metadata and content of one file, except the time of its last read."""


class Layout(Struct, frozen=True):
    """Initial contents of a tree, before the first command."""

    home: str
    links: frozenset[str]
    protected: frozenset[tuple[str, str]]


class Named(Struct, frozen=True):
    """Roots that a client names, the working directory first."""

    cwd: str
    more: tuple[str, ...] = ()


class Op(Struct, frozen=True):
    """One program that a command runs."""

    kind: str
    place: str
    other: str


class Run(Struct, frozen=True):
    """One command of a conversation."""

    who: int
    ops: tuple[Op, ...]
    writes: bool = True
    """Whether the command may write. If false, the policy of the turn is read-only."""
    stale: bool = False
    """Whether the command runs by the plan of this conversation's last command, as if it had waited since."""


class Race(Struct, frozen=True):
    """Two commands that run at once, repeatedly."""

    first: Run
    second: Run


class Rename(Struct, frozen=True):
    """Step in which the client names other roots, in the same conversation or in a new one."""

    who: int
    named: Named
    anew: bool


Step = Run | Race | Rename

KINDS = {
    "mkdir": "mkdir -p {place}",
    "write": "echo x > {place}",
    "append": "echo x >> {place}",
    "move": "mv -T {place} {other}",
    "move into": "mv {place} {other}/",
    "replace": "mv -T {place} {place}.old && ln -sfn {other} {place}",
    "aside": "mv -T {place} {place}.old && cp -a {place}.old {place}",
    "link": "ln -sfn {other} {place}",
    "relative link": "ln -sfn ../{name} {place}",
    "hard link": "ln -T {other} {place}",
    "copy": "cp -a -T {other} {place}",
    "remove": "rm -rf {place}",
    "mode": "chmod 700 {place}",
    "touch": "touch {place}",
    "truncate": "truncate -s 1 {place}",
    "enter": "cd {place} && echo x > f; mkdir -p n; mv n ../m",
}
"""Shell commands by kind of operation. None of them needs to succeed."""

layouts = st.builds(
    Layout,
    home=st.sampled_from(HOMES),
    links=st.frozensets(st.sampled_from(sorted(LINKS))),
    protected=st.frozensets(
        st.tuples(st.sampled_from(PROTECTED_AT), st.sampled_from(PROTECTED_AS)), max_size=4
    ),
)
namings = st.builds(Named, roots, st.lists(roots, max_size=2, unique=True).map(tuple))
ops = st.builds(Op, st.sampled_from(sorted(KINDS)), places, places)
who = st.integers(0, 1)
runs = st.builds(
    Run,
    who,
    st.lists(ops, min_size=1, max_size=4).map(tuple),
    writes=st.sampled_from([True] * 7 + [False]),
    stale=st.sampled_from([False] * 3 + [True]),
)
races = st.builds(
    lambda first, second: Race(first, Run(1 - first.who, second.ops)),
    runs.filter(lambda run: run.writes),
    runs,
)
steps = st.one_of(runs, runs, runs, races, st.builds(Rename, who, namings, st.booleans()))


def script(run: Run, top: str, *, rounds: int = 1) -> str:
    """Return a script for `sh`. It tries each of its programs."""
    lines = []
    for op in run.ops:
        place, other = (shlex.quote(f"{top}/{path}") for path in (op.place, op.other))
        name = shlex.quote(os.path.basename(op.other))
        lines.append("(" + KINDS[op.kind].format(place=place, other=other, name=name) + ")")
    body = "\n".join(lines)
    return body if rounds == 1 else f"i=0; while [ $i -lt {rounds} ]; do i=$((i+1))\n{body}\ndone"


class Tree:
    """Disk of one example."""

    def __init__(self, top: Path, layout: Layout) -> None:
        self.top = str(top)
        self.home = f"{top}/{layout.home}"
        for folder in (*FOLDERS, layout.home):
            (top / folder).mkdir(parents=True, exist_ok=True)
        for folder in FOLDERS:
            (top / folder / "f").write_text("before\n")
        (top / layout.home / "config.toml").write_text("before\n")
        for link in sorted(layout.links):
            absolute = link == "a/abs"
            (top / link).symlink_to(f"{top}/{LINKS[link]}" if absolute else LINKS[link])
        for place, kind in sorted(layout.protected):
            self._protect(top / place, kind)

    def _protect(self, folder: Path, kind: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if kind == "settings":
            (folder / ".codex").mkdir(exist_ok=True)
            (folder / ".codex/config.toml").write_text("before\n")
            return
        if os.path.lexists(folder / ".git"):
            return
        real = folder / (".git" if kind == "repository" else "real")
        (real / "hooks").mkdir(parents=True, exist_ok=True)
        (real / "config").write_text("before\n")
        if kind == "pointer":
            (folder / ".git").write_text("gitdir: real\n")
        elif kind == "link":
            (folder / ".git").symlink_to("real")

    def look(self) -> dict[str, Entry] | None:
        """Return every entry by its real path, the top included. None if an entry vanished meanwhile."""
        found = {self.top: entry(self.top)}
        try:
            for folder, folders, files in os.walk(self.top):
                for name in (*folders, *files):
                    path = f"{folder}/{name}"
                    found[path] = entry(path)
        except FileNotFoundError:
            return None
        return found


def entry(path: str) -> Entry:
    """Return the entry of a path. It includes the time of the inode's last change, so a value that was set and set back
    is seen.
    """
    status = os.lstat(path)
    content = None
    if stat.S_ISREG(status.st_mode):
        content = Path(path).read_bytes()
    elif stat.S_ISLNK(status.st_mode):
        content = os.fsencode(os.readlink(path))
    seen = (status.st_mode, status.st_ino, status.st_nlink, status.st_uid, status.st_gid, status.st_ctime_ns)
    return (*seen, status.st_mtime_ns, content)


def below(seen: Mapping[str, Entry], path: str) -> dict[str, Entry]:
    """Return the entries of a path and of everything below it."""
    return {each: value for each, value in seen.items() if each == path or each.startswith(f"{path}/")}


def changed(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
