"""git commands that lose work: changes, branches or history that nothing else holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from app_server.core.shell.git_scripts import after_options

SHORTEST = 4
"""Characters of a shortened long option, with its dashes: git takes any part that fits one option only."""

_ALWAYS = frozenset({"reset", "rm", "clean", "filter-branch", "filter-repo", "prune"})


def git_destroys(words: Sequence[str]) -> bool:
    """Whether `git` with these arguments loses work."""
    _, rest = after_options(words)
    if not rest:
        return False
    if rest[0] in _ALWAYS:
        return True
    judge = _COMMANDS.get(rest[0])
    return judge is not None and judge(rest[1:])


def _has(words: Sequence[str], letters: str = "", long: Sequence[str] = ()) -> bool:
    """Whether one of these short or long options precedes `--`."""
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


def _restore(words: Sequence[str]) -> bool:
    return not _has(words, "S", ("--staged",)) or _has(words, "W", ("--worktree",))


def _branch(words: Sequence[str]) -> bool:
    return _has(words, "DfMC", ("--force",))


def _forced(words: Sequence[str]) -> bool:
    return _has(words, "f", ("--force",))


_COMMANDS: Mapping[str, Callable[[Sequence[str]], bool]] = {
    "push": _push,
    "checkout": _checkout,
    "restore": _restore,
    "branch": _branch,
    "switch": lambda words: _has(words, "fC", ("--force", "--discard-changes", "--force-create")),
    "stash": lambda words: words[:1] in (["drop"], ["clear"]),
    "reflog": lambda words: words[:1] in (["expire"], ["delete"]),
    "update-ref": lambda words: _has(words, "d", ("--stdin",)),
    "gc": lambda words: "--prune=now" in words or "--prune=all" in words,
    "worktree": lambda words: words[:1] == ["remove"] and _forced(words),
    "submodule": lambda words: "deinit" in words and _forced(words),
}
