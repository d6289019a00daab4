"""Real confined commands of two conversations in random trees: only what a model of the rules allows changes on disk.

Content and metadata of everything else stay as they were, whatever the commands link, rename and replace, also if a
command waited while the other conversation's ran, or both ran at once.
"""

import errno
import os
import shutil
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import assert_never

import anyio
import anyio.lowlevel
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.sandbox.roots import ConversationRoots, ServerRoots
from app_server.engine.support.engine_errors import SandboxUnavailable
from app_server_protocol.policy import ReadOnly, SandboxPolicy, WorkspaceWrite
from tests.engine.sandbox.conftest import PATH, Bench, bench
from tests.support.fuzz_mutation import EXAMPLES, thorough
from tests.support.tree_model import Grant, Model, in_any, inside, locked_inodes, plain
from tests.support.trees import (
    FENCED,
    Entry,
    Layout,
    Named,
    Op,
    Race,
    Rename,
    Run,
    Step,
    Tree,
    below,
    changed,
    layouts,
    namings,
    script,
    steps,
)

__all__ = ["bench"]

pytestmark = [pytest.mark.fuzz, pytest.mark.skipif(sys.platform != "linux", reason="the Linux sandbox")]

RACE_ROUNDS = 10
SETTLES_WITHIN = 60.0
few = settings(thorough, max_examples=max(EXAMPLES // 40, 10))
number = count()

Seen = dict[str, Entry]


@dataclass
class Play:
    """One example: a tree, its conversations, and the plans of their last commands."""

    bench: Bench
    tree: Tree
    model: Model
    roots: list[ConversationRoots] = field(default_factory=list)
    named: list[Named] = field(default_factory=list)
    last: list[tuple[SandboxPlan, Grant] | None] = field(default_factory=lambda: [None, None])

    async def opens(self, named: Named) -> None:
        who = len(self.roots)
        self.roots.append(self.bench.runner.roots.open())
        self.named.append(named)
        await self._told(Rename(who, named, anew=False))

    async def renames(self, step: Rename) -> None:
        if step.anew:
            self.roots[step.who].close()
            self.roots[step.who] = self.bench.runner.roots.open()
            self.last[step.who] = None
        self.named[step.who] = step.named
        await self._told(step)

    async def _told(self, step: Rename) -> None:
        """Apply the new settings as a session does."""
        self.model.names(step.who, step.named, anew=step.anew)
        self.roots[step.who].learn(self._policy(step.who), f"{self.tree.top}/{step.named.cwd}")
        self.planned(step.who, await self.look())

    def _policy(self, who: int, *, writes: bool = True) -> SandboxPolicy:
        if not writes:
            return ReadOnly()
        more = tuple(f"{self.tree.top}/{name}" for name in self.named[who].more)
        return WorkspaceWrite(writable_roots=more, exclude_slash_tmp=True, exclude_tmpdir_env_var=True)

    async def look(self) -> Seen:
        """Return the tree once the launcher has removed the placeholders of the last command."""
        seen, held = self.tree.look(), [""]
        with anyio.move_on_after(SETTLES_WITHIN):
            while True:
                earlier, locked, seen = seen, locked_inodes(), self.tree.look()
                held = self.model.held(seen, locked) if seen is not None else held
                if seen is not None and seen == earlier and not held:
                    return seen
                await anyio.lowlevel.checkpoint()
        raise AssertionError(f"left behind: {held}")

    def planned(self, who: int, seen: Seen, *, writes: bool = True) -> tuple[SandboxPlan, Grant]:
        grant = self.model.grant(who, seen, writes=writes)
        cwd = f"{self.tree.top}/{self.named[who].cwd}"
        plan = self.bench.runner.plan(self._policy(who, writes=writes), cwd, self.roots[who])
        assert plan is not None
        if writes:
            self.last[who] = (plan, grant)
        return plan, grant

    async def run(self, text: str, plan: SandboxPlan) -> ExecResult:
        spec = CommandSpec(
            argv=("sh", "-c", text), cwd="/", env={"PATH": PATH}, timeout_ms=60_000, sandbox=plan
        )
        return await self.bench.runner.run(spec, lambda *_: None)

    async def runs(self, run: Run) -> None:
        before = await self.look()
        kept = self.last[run.who] if run.stale else None
        plan, grant = kept or self.planned(run.who, before, writes=run.writes)
        await self.run(script(run, self.tree.top), plan)
        after = await self.look()
        self.check(before, after, [grant])
        missing = {f"{root}/{name}" for root in grant.named for name in FENCED} - before.keys()
        made = [path for path in missing if path in after and plain(os.path.dirname(path))]
        assert not made, f"came into being: {made}"

    async def race(self, step: Race) -> None:
        before = await self.look()
        plans = [self.planned(run.who, before, writes=run.writes) for run in (step.first, step.second)]
        async with anyio.create_task_group() as group:
            for run, (plan, _) in zip((step.first, step.second), plans, strict=True):
                group.start_soon(self._race_one, script(run, self.tree.top, rounds=RACE_ROUNDS), plan)
        self.check(before, await self.look(), [grant for _, grant in plans])

    async def _race_one(self, text: str, plan: SandboxPlan) -> None:
        """Run one command of a race. It is refused if the other command replaces a folder above a protected path by a
        link before it begins.
        """
        try:
            await self.run(text, plan)
        except SandboxUnavailable as error:
            if error.code != errno.ELOOP:
                raise

    def check(self, before: Seen, after: Seen, grants: list[Grant]) -> None:
        writable = {root for grant in grants for root in grant.writable}
        outside = [path for path in changed(before, after) if not in_any(path, writable)]
        assert not outside, f"changed outside {sorted(writable)}: {outside}"
        home = self.tree.home
        assert below(before, home) == below(after, home), "the server's home was changed"
        for grant in grants:
            for path, was in grant.protected.items():
                if before.get(path) == was:
                    self._kept(before, after, path, writable)

    def _kept(self, before: Seen, after: Seen, path: str, writable: set[str]) -> None:
        assert below(before, path) == below(after, path), f"protected, and changed: {path}"
        for place in _led_to(path):
            if place in before and in_any(place, writable) and not inside(path, place):
                assert below(before, place) == below(after, place), f"{path} leads to it: {place}"

    async def works(self, who: int) -> None:
        """Check that every granted place can be written to, whatever was done before."""
        seen = await self.look()
        plan, grant = self.planned(who, seen)
        for root in grant.writable:
            if any(inside(root, protected) for protected in plan.protected):
                continue  # a command made the root a target of a `.git`
            assert in_any(root, set(plan.writable_roots)), f"not granted: {root}; {plan.notices}"
            mark = f"{root}/works{next(number)}"
            result = await self.run(f"echo x > {mark}", plan)
            assert os.path.exists(mark), result.aggregated


def _led_to(path: str) -> list[str]:
    """Return where a `.git` that is a link or a pointer leads now: it has not been changed."""
    if os.path.islink(path):
        return [os.path.realpath(path)]  # the target may be missing
    if os.path.isfile(path):
        text = Path(path).read_text(errors="replace").partition("\n")[0]
        if text.startswith("gitdir: "):
            return [os.path.realpath(os.path.join(os.path.dirname(path), text.removeprefix("gitdir: ")))]
    return []


@few
@given(layouts, namings, namings, st.lists(steps, min_size=1, max_size=8))
@example(
    Layout("home", frozenset({"ln"}), frozenset()),
    Named("a"),
    Named("a/b"),
    [Run(0, (Op("replace", "a/b", "out"),)), Run(1, (Op("write", "a/b/f", "a"), Op("write", "out/n", "a")))],
)
@example(
    Layout("a/conf/home", frozenset(), frozenset({("a/d/deep", "link"), ("a", "pointer")})),
    Named("a"),
    Named("x", ("x/y",)),
    [Run(0, (Op("aside", "a/conf", "a"), Op("aside", "a/d", "a"), Op("replace", "a/real", "a/n")))],
)
@example(
    # A command of one conversation copies the placeholder of the other.
    Layout("home", frozenset({"x/z"}), frozenset()),
    Named("x/z"),
    Named("a/b"),
    [
        Race(Run(0, (Op("mode", "a/b/c/f", "a"),)), Run(1, (Op("aside", "a/b/c", "a"),))),
        Rename(0, Named("a/b/c"), anew=False),
        Run(0, (Op("write", "a/b/c/f", "a"),)),
    ],
)
async def test_commands_change_what_the_roots_of_their_conversation_allow(
    bench: Bench, tmp_path: Path, layout: Layout, first: Named, second: Named, taken: list[Step]
) -> None:
    if (await bench.runner.sandbox.state()).level != "full":
        pytest.skip("this kernel gives no full sandbox")
    top = tmp_path / f"tree{next(number)}"
    top.mkdir()
    tree = Tree(top, layout)
    bench.runner.roots, bench.runner.home = ServerRoots(), tree.home
    play = Play(bench, tree, Model(tree.top, tree.home))
    for named in (first, second):
        await play.opens(named)
    for step in taken:
        match step:
            case Run():
                await play.runs(step)
            case Race():
                await play.race(step)
            case Rename():
                await play.renames(step)
            case _:
                assert_never(step)
    for who in (0, 1):
        await play.works(who)
    for roots in play.roots:
        roots.close()
    await play.look()
    shutil.rmtree(top)
