"""What open terminals use: shares of time between two looks, and trees of processes."""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import cast

import pytest

from app_server.core.exec.report import CommandRoot, ProcessUsage, usage_of
from app_server.core.launcher import descendants
from app_server.core.tools import terminals
from app_server.core.tools.terminals import Terminal, look_at_terminals
from tests.support.waiting import wait_until

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")


def terminal(root: CommandRoot | None) -> Terminal:
    process = SimpleNamespace(root=root)
    return cast("Terminal", SimpleNamespace(pty=SimpleNamespace(process=process), last_usage=None))


def test_shares_are_of_the_time_since_the_look_before(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(
        [
            ProcessUsage(7, 1.0, 100, 4.0),
            ProcessUsage(7, 1.1, 120, 4.1),  # too soon after the first to say anything by itself
            ProcessUsage(7, 2.0, 90, 6.0),
            ProcessUsage(7, 1.5, 90, 8.0),  # a process ended of which nobody waited
            None,
        ]
    )
    monkeypatch.setattr(terminals, "usage_of", lambda root, table: next(looks))
    one = terminal(CommandRoot(7, is_supervisor=False))
    told = [look_at_terminals([one])[0] for _ in range(5)]
    assert [each and (each.cpu_percent, each.rss_kb) for each in told] == [
        (25.0, 100),
        (26.8, 120),
        (50.0, 90),
        (0.0, 90),
        None,
    ]


def test_nothing_is_known_of_what_has_not_started() -> None:
    assert look_at_terminals([terminal(None)]) == [None]
    assert look_at_terminals([]) == []


@needs_proc
def test_a_tree_is_counted_as_one() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo up; wait"], stdout=subprocess.PIPE) as shell:
        try:
            assert shell.stdout is not None
            shell.stdout.readline()
            [child] = descendants.below(shell.pid, descendants.listed())
            # The kernel counts the memory of a new process late.
            wait_until(
                lambda: (
                    (usage := usage_of(CommandRoot(child, is_supervisor=False), descendants.listed()))
                    is not None
                    and usage.rss_kb > 0
                )
            )
            inner, table = (
                usage_of(CommandRoot(child, is_supervisor=False), descendants.listed()),
                descendants.listed(),
            )
            assert inner is not None
            whole = usage_of(CommandRoot(shell.pid, is_supervisor=False), table)
            as_supervisor = usage_of(CommandRoot(shell.pid, is_supervisor=True), table)
            assert whole is not None
            assert as_supervisor is not None
            assert (whole.pid, inner.pid, as_supervisor.pid) == (shell.pid, child, child)
            assert whole.rss_kb > inner.rss_kb > 0
            assert whole.age_seconds >= 0
        finally:
            os.kill(child, 9)
            shell.kill()
    assert usage_of(CommandRoot(shell.pid, is_supervisor=False), descendants.listed()) is None
