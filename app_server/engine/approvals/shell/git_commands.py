"""git commands: those that lose work, the scripts in their arguments, and the programs that a repository makes them
run.

git runs programs that a repository configures: monitors, filters, drivers, hooks. So no git command is safe by its
arguments alone; everything in the repository that could name a program has to be known. Work is lost if changes,
branches or history are removed that exist nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

_GITLINK_MODE = (0o160000).to_bytes(4, "big")
_SHARED_INDEX = b"link"

_SECTION = re.compile(r'[ \t]*\[([A-Za-z0-9.-]+)(?:[ \t]+"([^"\\\x00-\x1f]*)")?\][ \t]*')
_ENTRY = re.compile(r'[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[^"\\\x00-\x08\x0a-\x1f]*)?')
_COMMENT = re.compile(r"[ \t]*([#;].*)?")
_PLAIN_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|abbrev)"
    r"|user\.(name|email)"
    r"|remote\..+\.(url|fetch|tagopt|prune)"
    r"|branch\..+\.(remote|merge|rebase|description|vscode-merge-base|github-pr-owner-number)"
    r"|(pull|push|fetch|init|merge|rebase|color|column|advice|gc)\.[a-z]+"
    r"|lfs\.repositoryformatversion|lfs\..+\.access",
    re.IGNORECASE,
)
"""Configuration keys that name nothing to run, to include, or to fetch while reading."""


def is_plain_repository(read: Callable[[str], bytes | None]) -> bool:
    """Return whether git's reading commands run nothing that this repository configures.

    `read` returns the content of a file by its name below `.git`: None if it does not exist, empty if it cannot be
    read. The caller has made sure that this is the repository that git would find: the nearest `.git`, a folder, with
    no file named `HEAD` between it and the working directory, which would be a bare repository.
    """
    config = read("config")
    if config is None or any(
        read(name) is not None for name in ("commondir", "config.worktree", "hooks/post-index-change")
    ):
        return False
    index = read("index") or b""
    # git enters submodules, which have their own configuration. An accidental match only costs an approval.
    if _GITLINK_MODE in index or _SHARED_INDEX in index:
        return False
    return is_plain_config(config.decode("utf-8", "replace"))


def is_plain_config(text: str) -> bool:
    return all(key is not None and _PLAIN_KEYS.fullmatch(key) for key in _keys(text))


def _keys(text: str) -> Iterator[str | None]:
    """Yield the full name of each entry; None for a line that git might parse differently."""
    section = None
    for line in text.split("\n"):
        if _COMMENT.fullmatch(line):
            continue
        if match := _SECTION.fullmatch(line):
            section = match[1] if match[2] is None else f"{match[1]}.{match[2]}"
        elif section is not None and (match := _ENTRY.fullmatch(line)):
            yield f"{section}.{match[1]}"
        else:
            yield None


_VALUED = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--attr-source"}
)
_CONFIGURED = re.compile(r"([\w.-]+)=!?(.*)", re.DOTALL)
_RUNNING = (["bisect", "run"], ["submodule", "foreach"])
_EXECUTING = re.compile(r"(?:-x|--exec)=?(.*)", re.DOTALL)


def after_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the values of git's own `-c` options, and the words from git's command on."""
    configured: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in _VALUED and rest:
            value = rest.pop(0)
            if option == "-c":
                configured.append(value)
    return configured, rest


def git_scripts(words: Sequence[str]) -> Iterator[str]:
    """Yield the scripts that `git` with these arguments runs."""
    configured, rest = after_options(words)
    for each in configured:
        if match := _CONFIGURED.fullmatch(each):
            yield match[2]
            if match[1].lower().startswith("alias."):
                yield " ".join(("git", match[2], *rest[1:]))
    if rest[:2] in _RUNNING:
        yield " ".join(word for word in rest[2:] if word != "--recursive")
    if rest[:1] == ["rebase"]:
        for at, word in enumerate(rest):
            if match := _EXECUTING.fullmatch(word):
                yield match[1] or " ".join(rest[at + 1 : at + 2])


SHORTEST = 4
"""Shortest form of a long option, in characters with its dashes: git accepts any prefix that fits one option only."""

_ALWAYS = frozenset({"reset", "rm", "clean", "filter-branch", "filter-repo", "prune"})


def git_destroys(words: Sequence[str]) -> bool:
    """Return whether `git` with these arguments loses work."""
    _, rest = after_options(words)
    if not rest:
        return False
    if rest[0] in _ALWAYS:
        return True
    judge = _COMMANDS.get(rest[0])
    return judge is not None and judge(rest[1:])


def _has(words: Sequence[str], letters: str = "", long: Sequence[str] = ()) -> bool:
    """Return whether one of these short or long options precedes `--`."""
    for word in words:
        if word == "--":
            return False
        if word.startswith("--"):
            name = word.partition("=")[0]
            if any(name in (option, option[: max(len(name), SHORTEST)]) for option in long):
                return True
        elif word.startswith("-") and any(letter in word for letter in letters):
            return True
    return False


def _push(words: Sequence[str]) -> bool:
    return _has(
        words,
        "fd",
        ("--force", "--force-with-lease", "--mirror", "--delete", "--prune", "--force-if-includes"),
    ) or any(word.startswith(("+", ":")) for word in words)


def _checkout(words: Sequence[str]) -> bool:
    return _has(words, "fB", ("--force", "--ours", "--theirs")) or "." in words or "--" in words[:-1]


def _forced(words: Sequence[str]) -> bool:
    return _has(words, "f", ("--force",))


_COMMANDS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "push": _push,
    "checkout": _checkout,
    "restore": lambda words: not _has(words, "S", ("--staged",)) or _has(words, "W", ("--worktree",)),
    "branch": lambda words: _has(words, "DfMC", ("--force",)),
    "switch": lambda words: _has(words, "fC", ("--force", "--discard-changes", "--force-create")),
    "stash": lambda words: words[:1] in (["drop"], ["clear"]),
    "reflog": lambda words: words[:1] in (["expire"], ["delete"]),
    "update-ref": lambda words: _has(words, "d", ("--stdin",)),
    "gc": lambda words: "--prune=now" in words or "--prune=all" in words,
    "worktree": lambda words: words[:1] == ["remove"] and _forced(words),
    "submodule": lambda words: "deinit" in words and _forced(words),
}
