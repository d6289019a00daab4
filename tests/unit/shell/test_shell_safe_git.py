"""git runs unasked only in repositories that are known to make it run nothing."""

from functools import partial

import pytest

from app_server.core.shell.git_commands import is_plain_config, is_plain_repository
from app_server.core.shell.safe_commands import is_known_safe as judge_safe
from tests.unit.shell.tables import entries

is_known_safe = partial(judge_safe, trusts=lambda program: True)

READING = """
    git status | git status -sb | git status --porcelain=v2 | git diff | git diff --stat HEAD
    git diff --cached -- f | git show HEAD | git show HEAD:f | git log --oneline -5 | git log -n 3 -p f
    git branch | git branch -a | git branch --show-current | /usr/bin/git status
"""

NOT_READING = """
    git | git -C d status | git -c core.pager=x log | git --config-env=core.pager=X log | git --git-dir=d/.git log
    git --work-tree=/ status | git --exec-path=/x status | git -p log | git --paginate log | git --no-pager log
    git log --output=out | git log --output out | git log --outp=out | git show --output=out HEAD
    git diff --ext-diff | git diff --ext-dif | git log -p --textconv | git diff --no-index f g
    git log --show-signature | git log --format=%G? | git branch -d x | git branch -D x | git branch -m a b
    git branch x | git branch --edit-description | git branch -u origin/x | git checkout status | git reset --hard
    git clean -fdx | git fetch | git pull | git push | git stash | git remote -v | git config -l
    git rev-parse HEAD | git ls-files | git blame f | git grep -O foo | git help -a | git commit -m x | git add .
    git tag | ./git status | d/git status | git status ; rm x | cd d && git status | cd d; git log | git difftool
    git log -S | git submodule status | git archive HEAD
"""


@pytest.mark.parametrize("command", entries(READING))
def test_reading_runs_unasked_in_a_plain_repository(command: str) -> None:
    for argv in (command.split(), ["bash", "-lc", f"{command} | head -5"]):
        assert is_known_safe(argv, git_is_plain=lambda: True)
        assert not is_known_safe(argv, git_is_plain=lambda: False)
        assert not is_known_safe(argv)


@pytest.mark.parametrize("command", entries(NOT_READING))
def test_everything_else_asks_in_any_repository(command: str) -> None:
    assert not is_known_safe(["bash", "-lc", command], git_is_plain=lambda: True)
    assert not is_known_safe(command.split(), git_is_plain=lambda: True)


def test_the_repository_is_looked_at_only_for_git() -> None:
    def asked() -> bool:
        raise AssertionError("nothing here is git")

    assert is_known_safe(["bash", "-lc", "ls && rg git"], git_is_plain=asked)
    assert not is_known_safe(["git", "push"], git_is_plain=asked)


PLAIN = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tlogallrefupdates = true
[remote "origin"]
\turl = https://example.com/a.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
# a comment
[user]
  name = A B
"""


def test_a_clone_is_plain() -> None:
    assert is_plain_config(PLAIN)
    assert is_plain_config("")


@pytest.mark.parametrize(
    "lines",
    [
        "[core]\nfsmonitor = ./evil",
        "[core]\n  FSMonitor=true",
        "[core]\nfsmonitor",
        "[core] fsmonitor = ./evil",
        "[core]\nhooksPath = .",
        "[core]\npager = evil",
        "[core]\nsshCommand = evil",
        "[core]\nworktree = /",
        "[core]\nattributesFile = x",
        '[filter "x"]\nclean = evil',
        "[filter.x]\nclean = evil",
        '[diff "x"]\ntextconv = evil',
        "[diff]\nexternal = evil",
        "[include]\npath = other",
        '[includeIf "gitdir:/"]\npath = other',
        "[extensions]\nworktreeConfig = true",
        '[remote "x"]\npromisor = true',
        '[remote "x"]\nuploadpack = evil',
        "[gpg]\nprogram = evil",
        "[log]\nshowSignature = true",
        "[status]\nsubmoduleSummary = true",
        "[alias]\nstatus = !evil",
        '[submodule "x"]\nurl = y',
        # lines that git may read differently
        "[user]\nname = a\\\n[core]\nfsmonitor = evil",
        '[user]\nname = "a\n[core]\nfsmonitor = evil"',
        "[user]\nname = a\r[core]\rfsmonitor = evil",
        "fsmonitor = evil",
        "[core\nfsmonitor = evil",
        '[branch "a\\"b"]\nremote = x',
    ],
)
def test_what_names_something_to_run_is_not_plain(lines: str) -> None:
    assert not is_plain_config(PLAIN + lines + "\n")


FILES = {"config": PLAIN.encode(), "index": b"DIRC\0\0\0\2", "HEAD": b"ref: refs/heads/main\n"}


@pytest.mark.parametrize(
    "more",
    [
        {"commondir": b"../x"},
        {"config.worktree": b"[core]\n"},
        {"hooks/post-index-change": b""},
        {"index": b"DIRC\0\0\0\2" + b"\0\0\xe0\0" + b"sub\0"},
        {"index": b"DIRC\0\0\0\2link"},
        {"config": b"[core]\nfsmonitor = x\n"},
        {"config": None},
    ],
)
def test_other_files_of_a_repository_count(more: dict[str, bytes | None]) -> None:
    assert is_plain_repository(FILES.get)
    assert not is_plain_repository({**FILES, **more}.get)
