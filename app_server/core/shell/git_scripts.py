"""Scripts that git is given to run: in options, as aliases, and by commands that run others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_VALUED = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env", "--attr-source"}
)
_CONFIGURED = re.compile(r"([\w.-]+)=!?(.*)", re.DOTALL)
_RUNNING = (["bisect", "run"], ["submodule", "foreach"])
_EXECUTING = re.compile(r"(?:-x|--exec)=?(.*)", re.DOTALL)


def after_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The values of git's own `-c` options, and the words from its command on."""
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
    """Of `git` with these arguments."""
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
