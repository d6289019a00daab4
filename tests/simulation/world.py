"""One simulated world: a server, people, a model, commands and a disk, all in one thread and in virtual time.

A world has two parts. In the first anything may happen that its habits allow. Then the faults stop, questions are
answered and commands end: every turn has to end, and a second server has to read what is stored. The oracle checks what
was said, run and stored.
"""

import asyncio
import gc
import hashlib
import json
import logging
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from app_server_protocol.encoding import Json
from tests.engine.hooks.hook_scripts import trusted
from tests.simulation.company import keep_company, visit
from tests.simulation.coverage import situations_of
from tests.simulation.draws import Choices, Draws
from tests.simulation.habits import MIDDLE, SHARED, Habits, draw_habits
from tests.simulation.journal import Entry, Journal
from tests.simulation.later import all_tell_the_same, beginning, second_server
from tests.simulation.loop import Deadlock, SimLoop, describe_tasks, threads_in_the_loop
from tests.simulation.oracle import violations
from tests.simulation.people import Person
from tests.simulation.sim_commands import Commands
from tests.simulation.sim_disk import killed_in_restores, reading_fails
from tests.simulation.sim_git import git_in_the_loop, make_repository
from tests.simulation.sim_model import SimModel
from tests.simulation.sim_world import SimWorld, arrive, kill
from tests.simulation.stored import rollouts
from tests.simulation.watchdog import Spin, step_limit

ROOT = Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
"""Folder for the files of worlds: in memory, if the system has such a folder."""
OF_KILLED = "of-killed"
"""Name of the folder to which the home of a killed process is moved."""

FIRST_PART = 900.0
"""Duration of the first part, in virtual seconds."""

LAST_PART = 4000.0
"""Time in which every turn has to end after the faults have stopped, in virtual seconds: more than all retries take."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a world."""

    seed: int
    problems: tuple[str, ...]
    made: Choices
    digest: str
    """Digest of everything that was said and stored."""
    virtual_seconds: float
    situations: Mapping[str, int]
    habits: Habits
    journal: tuple[Entry, ...]

    @property
    def report(self) -> str:
        """Problems, and the commands that show the world and shrink it."""
        show = f"make simulate ARGS='--seed {self.seed}'"
        return "\n".join([*self.problems, show, f"make simulate ARGS='--seed {self.seed} --shrink'"])

    def failing(self, problems: tuple[str, ...]) -> "Outcome":
        """Return the same world with other problems."""
        return replace(self, problems=problems)


def play(seed: int, given: Choices | None = None, *, keep: Path | None = None) -> Outcome:
    """Play one world. `keep` is a folder in which the files of the world are left."""
    draws = Draws(seed, given)
    habits = draw_habits(draws)
    root = ROOT / f"simulation-{os.getpid():07d}"  # a path of the same length in every process
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(mode=0o700)
    before = _open_files()
    try:
        with _collected_behind():
            outcome = _play(seed, draws, habits, root)
        if left := _open_files() - before:
            gc.collect()  # closes files that are no longer in use
            left = _open_files() - before
        return outcome.failing((*outcome.problems, f"left open: {sorted(left)}")) if left else outcome
    finally:
        if keep is not None:
            shutil.copytree(root, keep, dirs_exist_ok=True)
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _collected_behind() -> Iterator[None]:
    """Keep the garbage collector from running in a world: it takes time, and finalizers would run at any moment. After
    the block it collects what was made in the world, and nothing older.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.collect(0)


def _open_files() -> set[str]:
    """Return the descriptors of this process, with their paths. Those of a simulated process that was killed are left
    out: the system closes them.
    """
    found = set()
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):  # the descriptor that lists them
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return {each for each in found if f"/{OF_KILLED}/" not in each}


def _play(seed: int, draws: Draws, habits: Habits, root: Path) -> Outcome:
    for name in ("home", "workspace", "user"):
        (root / name).mkdir()
    loop = SimLoop(draws)
    model = SimModel(draws, habits, Journal(loop.time))
    world = SimWorld(draws, root, habits, model, Commands(model), loop)
    _write_config(world)
    if habits.goes_back:
        (Path(world.workspace) / SHARED).write_text(f"the beginning\n{MIDDLE}\nthe end\n")
    if habits.repository:
        make_repository(Path(world.workspace))
    if habits.crash_at is not None:
        loop.before_round[habits.crash_at] = lambda: kill(world)
    for step, seconds in habits.clock_jumps:
        loop.before_round[step] = partial(_jump, world, seconds)
    if habits.full_disk:
        loop.before_round[100 + draws.below("step of the full disk", 2000)] = lambda: _fill_disk(world)
    with (
        _virtual(world),
        threads_in_the_loop(draws, habits.thread_delays, world.thread_begins),
        reading_fails(model, world.home),
        killed_in_restores(world) if habits.goes_back else nullcontext(),
        git_in_the_loop(world) if habits.repository else nullcontext(),
    ):
        try:
            with step_limit(lambda: loop.rounds):
                anyio.run(_both_parts, world, backend_options={"loop_factory": lambda: loop})
        except Deadlock:
            world.problems.append(f"deadlock:\n{describe_tasks(loop)}")
        except Spin as spin:
            world.problems.append(str(spin))
        except BaseExceptionGroup as group:
            told = (
                str(each) if isinstance(each, Spin) else f"exception: {each!r}" for each in _leaves(group)
            )
            world.problems += told
    if not loop.is_closed():
        loop.close()
    world.problems += [*world.writers.problems, *violations(world)]
    journal = tuple(model.journal.entries)
    said = json.dumps([[each.seconds, each.who, each.sent, each.message] for each in journal], sort_keys=True)
    stored = [path.read_bytes().decode(errors="backslashreplace") for path in rollouts(world.home)]
    text = re.sub(r"simulation-\d*", "ROOT", "\n".join([said, *stored]))  # also where a line was torn in it
    text = re.sub(r'"token": "[0-9a-f]{32}"', '"token": "TOKEN"', text)  # it is made of paths, too
    return Outcome(
        seed,
        tuple(world.problems),
        draws.made,
        hashlib.sha256(text.encode()).hexdigest(),
        loop.time(),
        situations_of(journal),
        habits,
        journal,
    )


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _both_parts(world: SimWorld) -> None:
    jumps = sum(max(seconds, 0.0) for _, seconds in world.habits.clock_jumps)
    with anyio.move_on_after(FIRST_PART + LAST_PART + jumps) as limit:
        async with anyio.create_task_group() as tasks:
            person = arrive(world, tasks, world.habits.api, world.home)
            world.tasks = tasks
            if world.habits.visitor:
                tasks.start_soon(visit, world, name="a visitor")
            for api in world.habits.company:
                tasks.start_soon(keep_company, world, api, name="somebody beside the first")
            tasks.start_soon(_die, world, tasks, name="the end of the process")
            with anyio.move_on_after(FIRST_PART):
                await person.live()
                await world.all_quiet()
            await _calm_down(world, person)
            tasks.cancel_scope.cancel()
        world.loop.before_round.clear()
        if world.killed.is_set():
            os.rename(world.home, world.root / OF_KILLED)
            os.rename(world.root / "killed", world.home)
            world.model.note("killed")
            _let_go(world)
            world.restarted = True
        await second_server(world)
        if world.draws.chance("a beginning goes on", 0.3):
            await beginning(world)
        if world.draws.chance("all APIs tell", 0.15):
            await all_tell_the_same(world)
    if limit.cancelled_caught:
        world.problems.append(f"the world did not end:\n{describe_tasks(asyncio.get_running_loop())}")
    if len(asyncio.all_tasks()) > 1:
        world.problems.append(f"tasks are left:\n{describe_tasks(asyncio.get_running_loop())}")


def _jump(world: SimWorld, seconds: float) -> None:
    """Move both clocks forward, as after a suspend, or set the wall clock back."""
    world.model.note("a clock jumped")
    if seconds > 0:
        world.loop.jump(seconds)
    else:
        world.wall_clock_off += seconds


def _fill_disk(world: SimWorld) -> None:
    world.model.note("the disk is full")
    world.model.disk_is_full = True


async def _die(world: SimWorld, tasks: TaskGroup) -> None:
    """End every task of the process that was killed."""
    await world.killed.wait()
    tasks.cancel_scope.cancel()


def _let_go(world: SimWorld) -> None:
    """Stop the faults for the server that follows a killed one."""
    world.model.faults, world.model.calm = False, True
    for step, _ in world.habits.clock_jumps:
        world.loop.before_round.pop(step, None)
    world.commands.calm_down()
    world.calm.set()


async def _calm_down(world: SimWorld, person: Person) -> None:
    """Stop the faults. Every turn has to end; then the client leaves."""
    _let_go(world)
    with anyio.move_on_after(LAST_PART / 2) as limit:
        await world.guests_left()
    if limit.cancelled_caught:
        open_words = [word for word, state in world.record.words.items() if state == "accepted"]
        world.problems.append(f"turns never end: {open_words}\n{describe_tasks(world.loop)}")
    person.settle()
    if not person.closed:
        await person.leave()
    if world.shared is not None:
        world.over.set()
        await world.ended.wait()
        world.shared = None


@contextmanager
def _virtual(world: SimWorld) -> Iterator[None]:
    """Replace the clocks and identifiers of the standard library that are read without a `Machine` by the world's, and
    log nothing: faults would fill the log.
    """
    ids = random.Random(7)
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", world.now)
            patch.setattr(time, "monotonic", world.loop.time)
            patch.setattr(time, "sleep", world.loop.jump)
            patch.setattr(os, "urandom", ids.randbytes)
            yield
    finally:
        logging.disable(logged)


def _write_config(world: SimWorld) -> None:
    habits = world.habits
    lines: list[str] = [
        'model = "gpt-5.1-codex"' if habits.terminals else 'model = "scripted"',
        'model_provider = "sim"',
        f'approval_policy = "{habits.approval_policy}"',
        f'sandbox_mode = "{habits.sandbox_mode}"',
    ]
    if habits.context_window is not None:
        lines.append(f"model_context_window = {habits.context_window}")
    if habits.terminals:
        lines += ["[features]", "unified_exec = true"]
    lines += [
        '[models."scripted*"]',
        'display_name = "Scripted"',
        "[model_providers.sim]",
        'name = "Sim"',
        'base_url = "http://model.invalid/v1"',
        'wire_api = "responses"',
        f"request_max_retries = {habits.retries}",
        f"stream_max_retries = {habits.retries}",
    ]
    if habits.mcp:
        lines += ["[mcp_servers.notes]", 'command = "/bin/notes"', "tool_timeout_sec = 40"]
    if habits.hooks:
        lines += [_hooks(world.home)]
    (world.home / "config.toml").write_text("\n".join(lines) + "\n")


SIMULATED_HOOKS = (
    *("PreToolUse", "PostToolUse", "PermissionRequest", "PreModelRequest", "PostModelRequest"),
    *("SessionStart", "SessionEnd", "PreCompact", "PostCompact", "Stop", "Interrupt"),
)
"""Events of the hooks of a world. Those of messages are left out: the model of a world has to be sent all of them."""


def _hooks(home: Path) -> str:
    """Write hooks into the home, and return the settings by which the user trusts them."""
    hooks: dict[str, list[Json]] = {
        event: [{"hooks": [{"type": "command", "command": f"/bin/hook {event}"}]}]
        for event in SIMULATED_HOOKS
    }
    path = home / "hooks.json"
    path.write_text(json.dumps({"hooks": hooks}))
    return trusted(path, hooks)
