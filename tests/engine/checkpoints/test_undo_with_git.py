"""An undo reverts the changes of the turn, and none of the user's."""

import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.engine.checkpoints.restore import RestoreRefused
from tests.support.sandpit import Sandpit

Step = Callable[[Sandpit], object]


def worktree(pit: Sandpit) -> dict[str, str]:
    """Return every file below the root with its content, and every link with its target."""
    found = {}
    for folder, folders, files in os.walk(pit.root):
        if ".git" in folders:
            folders.remove(".git")
        for name in (*files, *(f for f in folders if Path(folder, f).is_symlink())):
            place = Path(folder, name)
            content = f"-> {os.readlink(place)}" if place.is_symlink() else place.read_text()
            found[str(place.relative_to(pit.root))] = content
    return found


async def turn(pit: Sandpit, *steps: Step, folder: str = "") -> str:
    """Run a turn in which the agent does these steps by a command."""
    return await pit.turns.commands(*(partial(step, pit) for step in steps), folder=folder)


class Undone(NamedTuple):
    """Result of an undo. Names are relative to the root of the working tree."""

    restored: int
    kept: tuple[str, ...]


async def undo(pit: Sandpit, done: str) -> Undone:
    """Take a turn back, as the user asks for with an undo."""
    restored = await pit.turns.restore(done, uncertain=True)
    kept = (each.path for each in restored.files if not each.writes)
    root = str(pit.root.resolve()) + "/"
    return Undone(
        sum(each.writes for each in restored.files), tuple(path.removeprefix(root) for path in kept)
    )


def writes(path: str, text: str) -> Step:
    return lambda pit: pit.write(path, text)


def removes(path: str) -> Step:
    return lambda pit: (pit.root / path).unlink()


async def test_an_undo_brings_everything_back(pit: Sandpit) -> None:
    pit.commit(
        a="1\n", b="2\n", deep__er__c="3\n", **{"d.sh": "4\n", ".gitignore": "*.log\n", "was_file": "5\n"}
    )
    (pit.root / "d.sh").chmod(0o755)
    pit.write("a", "changed before\n")
    pit.write("old", "untracked before\n")
    (pit.root / "link").symlink_to("a")
    before = worktree(pit)

    def change(pit: Sandpit) -> None:
        pit.write("a", "changed by the turn\n")
        (pit.root / "b").unlink()
        (pit.root / "d.sh").chmod(0o644)
        (pit.root / "link").unlink()
        (pit.root / "link").symlink_to("b")
        (pit.root / "old").unlink()
        pit.write("new/er/file")
        pit.write("added")
        shutil.rmtree(pit.root / "deep")
        pit.write("deep", "a file where a folder was\n")
        (pit.root / "was_file").unlink()
        pit.write("was_file/inside")
        pit.run("add", "added", "new/er/file")
        pit.write("made.log", "ignored\n")

    done = await turn(pit, change)
    state = pit.state()

    undone = await undo(pit, done)

    assert undone == Undone(restored=11, kept=())
    assert worktree(pit) == {**before, "made.log": "ignored\n"}
    assert (pit.root / "d.sh").stat().st_mode & 0o777 == 0o755
    assert not (pit.root / "new").exists()
    assert pit.state() == state
    assert await undo(pit, done) == Undone(0, ())


async def test_an_undo_of_a_folder_leaves_the_rest(pit: Sandpit) -> None:
    pit.commit(a="1\n", sub__b="2\n")
    pit.write("a", "uncommitted\n")
    pit.write("new")
    done = await turn(pit, writes("sub/b", "undone\n"), writes("sub/new", "x\n"), folder="sub")
    assert (await undo(pit, done)).restored == 2  # requested in the parent folder
    assert worktree(pit) == {"a": "uncommitted\n", "sub/b": "2\n", "new": "x\n"}


async def test_an_undo_leaves_other_worktrees(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    pit.run("worktree", "add", "-q", "-b", "side", str(pit.base / "linked"))
    (pit.base / "linked" / "a").write_text("mine\n")
    done = await turn(pit, writes("a", "2\n"))
    assert await undo(pit, done) == Undone(1, ())
    assert (pit.base / "linked" / "a").read_text() == "mine\n"


# --- changes of the user
async def test_what_the_user_did_since_is_kept_and_named(pit: Sandpit) -> None:
    pit.commit(a="1\n", b="1\n", c="1\n", gone="1\n")
    done = await turn(
        pit,
        writes("a", "2\n"),
        writes("b", "2\n"),
        writes("n", "2\n"),
        writes("made/x", "2\n"),
        removes("gone"),
    )
    pit.write("a", "mine\n")
    pit.write("c", "mine\n")
    pit.write("n", "mine\n")
    pit.write("made/notes", "mine\n")
    pit.write("gone", "mine\n")
    assert await undo(pit, done) == Undone(restored=2, kept=("a", "gone", "n"))
    mine = dict.fromkeys(("a", "c", "n", "made/notes", "gone"), "mine\n")
    assert worktree(pit) == {**mine, "b": "1\n"}


async def test_what_the_user_committed_since_is_kept(pit: Sandpit) -> None:
    pit.commit(a="1\n", b="1\n")
    done = await turn(pit, writes("a", "2\n"), writes("n", "2\n"), writes("b", "2\n"))
    pit.run("add", "a", "n")
    pit.run("commit", "-q", "-m", "work")
    assert await undo(pit, done) == Undone(restored=1, kept=("a", "n"))
    assert worktree(pit) == {"a": "2\n", "b": "1\n", "n": "2\n"}


async def test_another_branch_keeps_its_files(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    pit.run("checkout", "-q", "-b", "other")
    pit.commit(a="2\n")
    pit.run("checkout", "-q", "main")
    done = await turn(pit, writes("a", "2\n"))
    pit.run("checkout", "-q", "--force", "other")
    assert await undo(pit, done) == Undone(restored=0, kept=("a",))
    assert worktree(pit) == {"a": "2\n"}


async def test_what_a_commit_of_the_agent_left_is_taken_back(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    done = await turn(pit, lambda pit: pit.commit(a="2\n", n="2\n"))
    assert (await undo(pit, done)).restored == 2
    assert worktree(pit) == {"a": "1\n"}


async def test_files_that_the_snapshot_does_not_hold_are_not_new(pit: Sandpit) -> None:
    """They were ignored, or too large, and are not any more."""
    pit.commit(**{"a": "1\n", ".gitignore": "*.log\nbuild/\n"})
    pit.write("mine.log", "mine\n")
    pit.write("build/mine", "mine\n")
    done = await turn(pit, writes(".gitignore", ""), writes("n", "2\n"))
    undone = await undo(pit, done)
    assert undone == Undone(restored=2, kept=())
    assert (pit.root / "mine.log").read_text() == "mine\n"
    assert (pit.root / "build" / "mine").read_text() == "mine\n"


async def test_a_file_that_the_agent_hides_from_git_is_put_back(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    pit.write("mine", "mine\n")
    done = await turn(pit, writes("mine", "2\n"), writes(".gitignore", "mine\n"))
    await undo(pit, done)
    assert worktree(pit) == {"a": "1\n", "mine": "mine\n"}


async def test_a_change_is_seen_though_size_and_time_are_the_old_ones(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    old = (pit.root / "a").stat()
    os.utime(pit.root / ".git" / "index", (old.st_atime + 100, old.st_mtime + 100))

    def forge(pit: Sandpit) -> None:
        pit.write("a", "2\n")
        os.utime(pit.root / "a", ns=(old.st_atime_ns, old.st_mtime_ns))

    await undo(pit, await turn(pit, forge))
    assert worktree(pit) == {"a": "1\n"}


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("how", ["written", "replaced", "removed"])
async def test_a_private_file_stays_private(pit: Sandpit, how: str, tracked: bool) -> None:
    pit.commit(a="1\n")
    (pit.write(".env", "SECRET=1\n")).chmod(0o600)
    if tracked:
        pit.run("add", ".env")
        pit.run("commit", "-q", "-m", "env")

    def change(pit: Sandpit) -> None:
        if how != "written":
            (pit.root / ".env").unlink()
        if how != "removed":
            pit.write(".env", "2\n")

    await undo(pit, await turn(pit, change))
    assert (pit.root / ".env").read_text() == "SECRET=1\n"
    assert (pit.root / ".env").stat().st_mode & 0o777 == 0o600


async def test_the_bits_of_the_present_file_are_kept(pit: Sandpit) -> None:
    pit.commit(**{"a": "1\n", "run.sh": "1\n"})
    (pit.root / "run.sh").chmod(0o750)
    (pit.root / "a").chmod(0o664)
    await undo(pit, await turn(pit, writes("a", "2\n"), writes("run.sh", "2\n")))
    assert [(pit.root / name).stat().st_mode & 0o777 for name in ("a", "run.sh")] == [0o664, 0o750]


async def test_names_beside_files_are_the_users(pit: Sandpit) -> None:
    pit.commit(**{"a": "1\n", "a.restored": "mine\n", "b": "1\n"})
    await undo(pit, await turn(pit, writes("a", "2\n"), writes("b", "2\n")))
    assert worktree(pit) == {"a": "1\n", "a.restored": "mine\n", "b": "1\n"}


async def test_an_undo_that_was_cut_off_is_completed_by_the_next(pit: Sandpit) -> None:
    pit.commit(a="1\n", b="1\n")
    done = await turn(pit, writes("a", "2\n"), writes("b", "2\n"), writes("n", "2\n"))
    pit.write("a", "1\n")
    assert await undo(pit, done) == Undone(restored=2, kept=())
    assert worktree(pit) == {"a": "1\n", "b": "1\n"}


# --- refusals
async def test_an_undo_of_an_unknown_turn_is_refused(pit: Sandpit) -> None:
    with pytest.raises(RestoreRefused, match="no change of files is recorded"):
        await undo(pit, "turn-7")


async def test_without_the_turns_end_nothing_is_undone(pit: Sandpit) -> None:
    """The server was killed before it looked at what the command had changed."""
    pit.commit(a="1\n")
    turns = pit.turns
    async with turns.turn() as recorder:
        async with recorder.command():
            pit.write("a", "2\n")
        assert not (await turns.checkpoints.recorded(turns.thread)).spans


async def test_a_file_whose_content_is_lost_is_unavailable_and_the_rest_is_undone(pit: Sandpit) -> None:
    pit.commit(a="1\n")
    pit.write("old", "mine\n")
    done = await turn(pit, writes("a", "2\n"), writes("old", "2\n"))
    blob = pit.run("hash-object", str(pit.write("../same", "mine\n")))
    (pit.turns.folder.objects / blob[:2] / blob[2:]).unlink()
    assert await undo(pit, done) == Undone(1, ("old",))
    assert worktree(pit) == {"a": "1\n", "old": "2\n"}


# --- links
async def test_an_undo_does_not_write_through_links(pit: Sandpit) -> None:
    pit.commit(sub__file="1\n")
    (pit.base / "outside").mkdir()

    def link(pit: Sandpit) -> None:
        shutil.rmtree(pit.root / "sub")
        (pit.root / "sub").symlink_to(pit.base / "outside")

    await undo(pit, await turn(pit, link))
    assert list((pit.base / "outside").iterdir()) == []
    assert worktree(pit) == {"sub/file": "1\n"}


async def test_a_folder_that_is_exchanged_with_a_link_meanwhile_leads_nowhere(pit: Sandpit) -> None:
    names = [f"f{number}" for number in range(20)]
    pit.commit(**{f"d__{name}": "1\n" for name in names})
    outside = pit.base / "outside"
    outside.mkdir()
    for name in (*names, *(f"n{name}" for name in names)):
        (outside / name).write_text("2\n")  # changes of the turn: an undo that comes here would continue
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.rename(pit.root / "d", pit.base / "aside")
            (pit.root / "d").symlink_to(outside)
            (pit.root / "d").unlink()
            os.rename(pit.base / "aside", pit.root / "d")

    for _ in range(5):
        everything = [writes(f"d/{prefix}{name}", "2\n") for name in names for prefix in ("", "n")]
        done = await turn(pit, *everything)
        swapping = threading.Thread(target=swap)
        over.clear()
        swapping.start()
        try:
            await undo(pit, done)
        finally:
            over.set()
            swapping.join()
    assert {place.read_text() for place in outside.iterdir()} == {"2\n"}
    assert len(list(outside.iterdir())) == 2 * len(names)


# --- any order of steps
PATHS = ("a", "b", "c", "d/e", "d/f", "new", "g/h")
CHANGES = st.lists(
    st.tuples(st.sampled_from(PATHS), st.sampled_from([None, "1\n", "2\n", "3\n"])), max_size=5
)


def change(root: Path, changes: list[tuple[str, str | None]], author: str) -> None:
    for path, text in changes:
        place = root / path
        if text is None:
            place.unlink(missing_ok=True)
        else:
            place.parent.mkdir(exist_ok=True)
            place.write_text(author + text)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=CHANGES, agents=CHANGES, users=CHANGES)
async def test_every_byte_that_the_user_wrote_is_still_there(
    pit: Sandpit,
    before: list[tuple[str, str | None]],
    agents: list[tuple[str, str | None]],
    users: list[tuple[str, str | None]],
) -> None:
    shutil.rmtree(pit.root)
    shutil.rmtree(pit.base / "home", ignore_errors=True)
    pit.root.mkdir()
    pit.run("init", "-q", "-b", "main")
    pit.commit(a="1\n", b="1\n", d__e="1\n")
    change(pit.root, before, "user ")
    begin = worktree(pit)
    done = await turn(pit, lambda pit: change(pit.root, agents, "agent "))
    left = worktree(pit)
    change(pit.root, users, "later ")
    now = worktree(pit)
    if begin == left:
        return
    await undo(pit, done)
    expected = {path: begin.get(path) if now.get(path) == left.get(path) else now.get(path) for path in PATHS}
    assert worktree(pit) == {path: text for path, text in expected.items() if text is not None}
