"""Turns are recorded and restored on a real disk, with git and without."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings

from app_server.engine.checkpoints import command_changes, kept_files, restore
from app_server.engine.checkpoints.history import Actor
from app_server.engine.checkpoints.plan import Action
from app_server.engine.checkpoints.restore import RestoreRefused
from app_server.engine.checkpoints.turn_recorder import TurnRecorder
from tests.engine.checkpoints.test_attribution_and_plan import PATHS, STEPS, Step
from tests.support.recorded_turns import THREAD, RecordedTurns, contents
from tests.support.sandpit import Sandpit

OLD = b"".join(b"old %d\n" % n for n in range(6))


@pytest.fixture(params=["git", "no git"])
def turns(request: pytest.FixtureRequest, tmp_path: Path) -> RecordedTurns:
    return begun(tmp_path, with_git=request.param == "git")


def begun(base: Path, *, with_git: bool) -> RecordedTurns:
    for folder in ("work", "home"):
        shutil.rmtree(base / folder, ignore_errors=True)
    root = base / "work"
    (root / "d").mkdir(parents=True)
    for path in ("a", "d/c"):
        (root / path).write_bytes(OLD)
    if with_git:
        pit = Sandpit(base)
        pit.run("init", "-q", "-b", "main")
        pit.commit()
    else:
        (root / ".git").mkdir()  # of no repository, so that none around it counts
    return RecordedTurns(root, base / "home")


# --- any order of steps
class Player:
    """Plays steps with files on disk, in recorded turns."""

    def __init__(self, turns: RecordedTurns) -> None:
        self.turns, self.ids = turns, list[str]()
        self.during: set[bytes] = set()
        """Lines of the user that were written while a command ran, or that a command has moved to another file."""
        self._line = 0

    async def play(self, steps: Sequence[Step]) -> None:
        rest = list(steps)
        while rest:
            async with self.turns.turn() as recorder:
                self.ids.append(recorder.turn.id)
                while rest and (step := rest.pop(0))[0] != "turn":
                    await self._step(recorder, *step)
            if rest and rest[0][0] == "user":
                self._act("user", *rest.pop(0)[1:])

    async def _step(self, recorder: TurnRecorder, who: str, what: str, path: str, number: int) -> None:
        match who:
            case "user":
                self.turns.tick()
                self._act("user", what, path, number)
                self.turns.tick()
            case "patch" if what in ("write", "append", "insert", "delete"):
                place, self._line = self.turns.root / path, self._line + 1
                old = place.read_bytes() if place.exists() else b""
                lines, line = old.splitlines(keepends=True), b"agent %d\n" % self._line
                new = {
                    "write": line,
                    "append": old + line,
                    "insert": b"".join([*lines[:number], line, *lines[number:]]),
                }.get(what)
                await self.turns.patch(recorder, path, new)
            case _:
                async with recorder.command():
                    place = self.turns.root / path
                    if what == "rename" and place.exists():
                        self.during |= {
                            line for line in place.read_bytes().splitlines() if line[:4] == b"user"
                        }
                    before = lines_of(self.turns.root, b"user")
                    self._act("user" if who == "during" else "agent", what, path, number)
                    self.during |= lines_of(self.turns.root, b"user") - before

    def _act(self, author: str, what: str, path: str, number: int) -> None:
        place, self._line = self.turns.root / path, self._line + 1
        line = f"{author} {self._line}\n".encode()
        old = place.read_bytes() if place.exists() else b""
        lines = old.splitlines(keepends=True)
        place.parent.mkdir(exist_ok=True)
        match what:
            case "write":  # as an editor saves: another file takes the place
                (place.parent / ".new").write_bytes(line)
                os.replace(place.parent / ".new", place)
            case "append":
                with place.open("ab") as file:
                    file.write(line)
            case "insert":
                place.write_bytes(b"".join([*lines[:number], line, *lines[number:]]))
            case "delete":
                place.unlink(missing_ok=True)
            case "rename" if place.exists():
                to = self.turns.root / PATHS[number % len(PATHS)]
                to.parent.mkdir(exist_ok=True)
                os.replace(place, to)
            case "mode" if place.exists():
                place.chmod(place.stat().st_mode ^ 0o111)


def lines_of(root: Path, author: bytes) -> set[bytes]:
    return {line for text in contents(root).values() for line in text.splitlines() if line.startswith(author)}


def modes(root: Path) -> dict[str, int]:
    return {path: (root / path).stat().st_mode & 0o100 for path in contents(root)}


async def any_steps_keep_what_the_user_wrote(
    base: Path, steps: list[Step], *, with_git: bool, uncertain: bool, merges: bool
) -> None:
    player = Player(turns := begun(base, with_git=with_git))
    await player.play(steps)
    recorded = await turns.checkpoints.recorded(THREAD)
    if not recorded.paths_since(0):
        return
    first = recorded.spans[0].id
    files, bits, users = turns.files(), modes(turns.root), lines_of(turns.root, b"user")

    done = await turns.restore(first, uncertain=uncertain, conflicts="merge" if merges else "keep")
    after = turns.files()
    lost = users - lines_of(turns.root, b"user")
    assert not lost - (player.during if uncertain else set())
    if done.undo_id is None:
        assert after == files
        return
    turns.restart()
    back = await turns.restore(done.undo_id)
    assert (turns.files(), modes(turns.root)) == (files, bits)
    assert back.undo_id is not None
    await turns.restore(back.undo_id)
    assert turns.files() == after


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_without_git_every_byte_of_the_user_is_still_there(tmp_path: Path, steps: list[Step]) -> None:
    for uncertain, merges in ((False, False), (True, True)):
        await any_steps_keep_what_the_user_wrote(
            tmp_path, steps, with_git=False, uncertain=uncertain, merges=merges
        )


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
async def test_with_git_every_byte_of_the_user_is_still_there(tmp_path: Path, steps: list[Step]) -> None:
    for uncertain, merges in ((False, True), (True, False)):
        await any_steps_keep_what_the_user_wrote(
            tmp_path, steps, with_git=True, uncertain=uncertain, merges=merges
        )


# --- one case each
async def test_a_line_between_two_edits_of_the_agent_stays(turns: RecordedTurns) -> None:
    place = turns.root / "a"
    first = await turns.patched("a", b"agent\n" + OLD)
    place.write_bytes(place.read_bytes() + b"mine\n")
    await turns.patched("a", b"again\n" + place.read_bytes())
    preview = await turns.preview(first)
    assert [(each.action, each.by) for each in preview.plan.files] == [(Action.CONFLICT, "both")]
    await turns.restore(first)
    assert place.read_bytes() == b"again\nagent\n" + OLD + b"mine\n"
    done = await turns.restore(first, conflicts="merge")
    assert place.read_bytes() == OLD + b"mine\n"
    assert done.undo_id is not None
    await turns.restore(done.undo_id)
    assert place.read_bytes() == b"again\nagent\n" + OLD + b"mine\n"


async def test_what_a_command_changed_comes_back_with_consent(turns: RecordedTurns) -> None:
    def change() -> None:
        (turns.root / "a").write_bytes(b"2\n")
        (turns.root / "d" / "c").unlink()
        (turns.root / "n").write_bytes(b"new\n")

    done = await turns.commands(change)
    kept = await turns.restore(done)
    assert {each.action for each in kept.files} == {Action.KEEP}
    assert turns.files() == {"a": b"2\n", "n": b"new\n"}
    await turns.restore(done, uncertain=True)
    assert turns.files() == {"a": OLD, "d/c": OLD}


async def test_a_process_that_writes_after_its_command_ended_counts_as_the_user(turns: RecordedTurns) -> None:
    async with turns.turn() as recorder:
        async with recorder.command():
            (turns.root / "a").write_bytes(b"2\n")
        turns.tick()
        (turns.root / "d" / "c").write_bytes(b"late\n")
    await turns.restore(recorder.turn.id, uncertain=True)
    assert turns.files() == {"a": OLD, "d/c": b"late\n"}


async def test_a_file_of_the_user_in_a_folder_of_the_agent_stays(turns: RecordedTurns) -> None:
    done = await turns.patched("made/x", b"agent\n")
    (turns.root / "made" / "mine").write_bytes(b"mine\n")
    await turns.restore(done)
    assert turns.files() == {"a": OLD, "d/c": OLD, "made/mine": b"mine\n"}


async def test_a_save_while_a_patch_waits_is_the_users(turns: RecordedTurns) -> None:
    """The user edits between a command and a patch of the same turn."""
    async with turns.turn() as recorder:
        async with recorder.command():
            (turns.root / "d" / "c").write_bytes(b"2\n")
        turns.tick()
        (turns.root / "a").write_bytes(OLD + b"mine\n")
        turns.tick()
        await turns.patch(recorder, "a", b"agent\n" + OLD + b"mine\n")
    await turns.restore(recorder.turn.id)
    assert turns.files() == {"a": OLD + b"mine\n", "d/c": b"2\n"}


async def test_a_file_that_a_client_wrote_during_a_command_is_the_users(turns: RecordedTurns) -> None:
    async with turns.turn() as recorder, recorder.command():
        (turns.root / "a").write_bytes(b"mine\n")
        turns.checkpoints.user_wrote(str(turns.root / "a"))
        (turns.root / "n").write_bytes(b"agent\n")
    await turns.restore(recorder.turn.id, uncertain=True)
    assert turns.files() == {"a": b"mine\n", "d/c": OLD}


async def test_a_terminal_counts_until_it_ends(turns: RecordedTurns) -> None:
    async with turns.turn() as recorder:
        turns.terminals = 1
        async with recorder.command(lasts=True):
            pass
        turns.tick()
        (turns.root / "a").write_bytes(b"2\n")
    recorded = await turns.checkpoints.recorded(THREAD)
    assert [change.actor for change in recorded.spans[0].changes] == [Actor.UNCERTAIN]


async def test_a_stale_token_is_refused_and_nothing_is_done(turns: RecordedTurns) -> None:
    done = await turns.patched("a", b"2\n")
    token = (await turns.preview(done)).plan.token
    (turns.root / "a").write_bytes(b"mine\n")
    with pytest.raises(RestoreRefused, match="files changed since the preview"):
        await turns.restore(done, token=token)
    assert (turns.root / "a").read_bytes() == b"mine\n"
    (turns.root / "a").write_bytes(b"2\n")
    await turns.restore(done, token=token)
    assert (turns.root / "a").read_bytes() == OLD


async def test_a_restore_is_refused_while_a_turn_works_there(turns: RecordedTurns) -> None:
    done = await turns.patched("a", b"2\n")
    async with turns.turn():
        with pytest.raises(RestoreRefused, match="a turn of this thread runs"):
            await turns.restore(done)
    turns.thread = "another-thread"
    async with turns.turn("d"):
        turns.thread = THREAD
        if (turns.root / ".git" / "HEAD").exists():
            with pytest.raises(RestoreRefused, match="another-thread works in"):
                await turns.restore(done)
    await turns.restore(done)
    assert (turns.root / "a").read_bytes() == OLD


async def test_a_turn_without_changes_leaves_nothing(turns: RecordedTurns) -> None:
    async with turns.turn():
        pass
    assert not (turns.home / "checkpoints").exists()


async def test_what_is_kept_is_private_and_goes_with_the_thread(turns: RecordedTurns) -> None:
    (turns.home / "auth.json").write_text("sk-sentinel")
    (turns.root / "linked").symlink_to(turns.home / "auth.json")

    def change() -> None:
        (turns.root / "a").write_bytes(b"2\n")
        (turns.root / "linked").unlink()
        os.link(turns.home / "auth.json", turns.root / "linked")

    done = await turns.commands(change)
    await turns.restore(done, uncertain=True)
    kept = list((turns.home / "checkpoints").rglob("*"))
    assert kept
    for place in (
        turns.home / "checkpoints",
        turns.folder.path,
        turns.folder.objects,
        turns.folder.path / "journal",
    ):
        assert not place.stat().st_mode & 0o077
    known = (
        turns.folder.get(place.parent.name + place.name)
        for place in turns.folder.objects.rglob("*")
        if place.is_file()
    )
    assert not any(b"sk-sentinel" in (content or b"") for content in known)
    kept_files.remove(turns.home, THREAD)
    assert list((turns.home / "checkpoints").iterdir()) == []


async def test_hidden_files_are_not_kept(turns: RecordedTurns) -> None:
    turns.may_read = lambda path: not path.endswith("/c")
    await turns.commands(
        lambda: (turns.root / "a").write_bytes(b"2\n"), lambda: (turns.root / "d/c").write_bytes(b"3\n")
    )
    kept = [
        turns.folder.get(place.parent.name + place.name)
        for place in turns.folder.objects.rglob("*")
        if place.is_file()
    ]
    assert b"3\n" not in kept


def kept_contents(turns: RecordedTurns) -> list[bytes]:
    places = [place for place in turns.folder.objects.rglob("*") if place.is_file()]
    found = [turns.folder.get(place.parent.name + place.name) for place in places]
    assert found
    return [content for content in found if content is not None]


async def test_a_folder_with_too_many_files_is_not_covered_and_says_so(
    turns: RecordedTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (turns.root / ".git" / "HEAD").exists():
        pytest.skip("a repository has other bounds")
    monkeypatch.setattr(command_changes, "MAX_SCANNED", 1)
    async with turns.turn() as recorder:
        async with recorder.command():
            (turns.root / "a").write_bytes(b"2\n")
        assert "checkpoints do not cover" in recorder.warnings[0]
        await turns.patch(recorder, "d/c", b"3\n")
    await turns.restore(recorder.turn.id, uncertain=True)
    assert turns.files() == {"a": b"2\n", "d/c": OLD}


async def test_the_oldest_threads_go_first(turns: RecordedTurns) -> None:
    for number in range(3):
        turns.thread = f"thread-{number}"
        await turns.patched("a", os.urandom(30_000))
        os.utime(turns.folder.path / "journal", (number, number))
        for place in turns.folder.objects.rglob("*"):
            os.utime(place, (number, number))
    kept_files.bound_home(turns.home, "thread-0", most=100_000)
    assert sorted(each.name for each in (turns.home / "checkpoints").iterdir()) == ["thread-0", "thread-2"]


async def test_lines_that_nobody_knows_are_passed_over(turns: RecordedTurns) -> None:
    done = await turns.patched("a", b"2\n")
    with (turns.folder.path / "journal").open("ab") as file:
        file.write(b'{"type":"later","x":1}\nno json\n{"type":"changes","id":"' + done.encode())
    second = await turns.patched("a", b"3\n")
    recorded = await turns.checkpoints.recorded(THREAD)
    assert [span.id for span in recorded.spans] == [done, second]
    await turns.restore(done)
    assert (turns.root / "a").read_bytes() == OLD


# --- killed
CRASHES = ("append", "carry_out", "_write", "_remove", "_replace", "put")


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, 4))
@pytest.mark.parametrize("step", CRASHES)
def test_a_kill_at_any_step_of_a_restore_loses_nothing(
    tmp_path: Path, step: str, number: int, after: bool
) -> None:
    turns = begun(tmp_path, with_git=False)
    done = anyio.run(turns.patched, "a", b"2\n")
    anyio.run(turns.patched, "d/c", None)
    anyio.run(turns.patched, "n", b"new\n")
    before = turns.files()

    turns.ids = itertools.count(100)
    child = os.fork()
    if child == 0:
        _die_at(step, number, after=after)
        anyio.run(turns.restore, done)
        os._exit(0)
    _, status = os.waitpid(child, 0)

    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    found = turns.files()
    old = {"a": OLD, "d/c": OLD}
    for path in ("a", "d/c", "n"):
        assert found.get(path) in (before.get(path), old.get(path)), "each file is the old one or the new one"
    assert set(found) <= {"a", "d/c", "n"}, "nothing is left beside the files"
    turns.ids = itertools.count(200)
    turns.restart()
    undo = turns.folder.read().spans[-1]
    if found != before:
        assert undo.target == done
        anyio.run(turns.restore, undo.id)
        assert turns.files() == before
    anyio.run(turns.restore, done)
    assert turns.files() == old


def _die_at(step: str, number: int, *, after: bool) -> None:
    """Let the process kill itself in a call of a step."""
    owner = kept_files.CheckpointFolder if step in ("append", "put") else restore.FileWriter
    function, calls = getattr(owner, step), [0]

    def wrapped(*arguments: object, **named: object) -> object:
        calls[0] += 1
        if calls[0] == number and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **named)
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, step, wrapped)


# --- all or nothing
async def test_without_room_on_the_disk_nothing_is_restored(
    turns: RecordedTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await turns.patched("a", b"2\n")
    full = os.statvfs_result((4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255))
    monkeypatch.setattr("app_server.engine.checkpoints.restore.os.statvfs", lambda path: full)
    with pytest.raises(RestoreRefused, match="no room"):
        await turns.restore(done)
    assert (turns.root / "a").read_bytes() == b"2\n"


async def test_a_file_that_changes_during_the_restore_is_kept(
    turns: RecordedTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = await turns.patched("a", b"2\n")
    await turns.patched("n", b"new\n")
    check = restore.FileWriter._check

    def saved(writer: restore.FileWriter, disk: object, file: object) -> None:
        (turns.root / "a").write_bytes(b"mine\n")
        check(writer, disk, file)  # type: ignore[arg-type]

    monkeypatch.setattr(restore.FileWriter, "_check", saved)
    result = await turns.restore(done)
    assert list(result.failed.values()) == ["it was changed meanwhile"]
    assert turns.files() == {"a": b"mine\n", "d/c": OLD}
