"""Real machines: full disks, homes that cannot be written, unusual locales, missing programs. A turn works wherever one
can, and the client is notified if something is lost.
"""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from tests.support.client import Refused
from tests.support.invariants import rollout
from tests.support.mounts import as_root, mounted_on_itself, protect, small_disk
from tests.support.places import Place, Served, conversing
from tests.support.scripted_model import ScriptedModel, reply, says, script
from tests.support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.faults]


def has_room(folder: Path) -> bool:
    """Return whether there is room. The kernel may release the space of a deleted file a moment later."""
    probe = folder / "probe"
    try:
        probe.write_bytes(bytes(8192))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


async def works(server: Served, text: str = "hi") -> str:
    conversation = await server.open()
    assert (await server.client.turn(conversation, text)).last_message == "done"
    return conversation


@as_root
async def test_a_full_disk_is_announced_and_recovered_from(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", "300k"):
        place = Place(tmp_path)
        model = ScriptedModel([reply(says("one")), reply(says("two")), reply(says("three"))])
        async with conversing(place, model) as server:
            conversation = await server.open()
            await server.client.turn(conversation, "first")
            filler = place.home / "filler"
            with contextlib.suppress(OSError):
                filler.write_bytes(b"x" * 1_000_000)
            # The last page still has room for a few lines.
            full = await server.client.turn(conversation, "second " + "x" * 8000)
            assert full.last_message == "two"
            warning = await server.client.anywhere("warning")
            assert "cannot be stored" in warning["params"]["msg"]["message"]
            filler.unlink()
            await until(lambda: has_room(place.home), "room on the disk")
            await server.client.turn(conversation, "third")
        (path,) = place.rollouts()
        lines, problems = rollout(path)
        assert problems == []
        said = [
            line["payload"]["message"][:6] for line in lines if line["payload"].get("type") == "user_message"
        ]
        assert said == ["first", "second", "third"]


@as_root
async def test_a_disk_that_is_full_from_the_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", "16k"):
        async with conversing(Place(tmp_path), ScriptedModel([reply(says("done"))] * 2)) as server:
            filler = server.place.home / "filler"
            with contextlib.suppress(OSError):
                filler.write_bytes(b"x" * 100_000)
            conversation = await works(server)
            assert "cannot be stored" in str(server.client.events("warning"))
            filler.unlink()
            await until(lambda: has_room(server.place.home), "room on the disk")
            await server.client.turn(conversation, "now there is room")


@as_root
async def test_a_workspace_that_cannot_be_written_is_the_commands_problem(tmp_path: Path) -> None:
    place = Place(tmp_path)
    model = ScriptedModel([reply(script("echo > new")), reply(says("done"))])
    with mounted_on_itself(place.workspace):
        protect(place.workspace)
        async with conversing(place, model) as server:
            await works(server)
    assert "Read-only file system" in model.requests[1].outputs()["c1"]


@pytest.mark.parametrize("locale", ["C", "POSIX", "de_DE.ISO-8859-1", "nonsense"])
async def test_any_locale_carries_any_text(tmp_path: Path, locale: str) -> None:
    place = Place(tmp_path, environment={"LANG": locale, "LC_ALL": locale})
    (place.workspace / "grün-ß").write_text("ü")
    (Path(os.fsdecode(bytes(place.workspace) + b"/\xff\xfe"))).write_text("x")
    model = ScriptedModel([reply(script("ls; cat gr*; printf '\\377'")), reply(says("done"))])
    async with conversing(place, model) as server:
        conversation = await works(server, "grüß dich 🙂")
        found = await server.client.call(
            "fuzzyFileSearch", {"query": "gr", "roots": [str(place.workspace)], "cancellationToken": None}
        )
    assert [file["path"] for file in found["files"]] == ["grün-ß"]
    assert "grüß dich 🙂" in model.requests[0].texts()
    assert "grün-ß" in model.requests[1].outputs()["c1"]
    (path,) = place.rollouts()
    assert "grüß dich 🙂" in path.read_text(encoding="utf-8")
    assert conversation in path.name


async def test_without_home_git_and_shell(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    place = Place(tmp_path, environment={"PATH": str(tools)}, without=("HOME", "LANG"))
    model = ScriptedModel([reply(script("echo out")), reply(says("done"))])
    async with conversing(place, model) as server:
        await works(server)
        with pytest.raises(Refused):
            await server.client.call("gitDiffToRemote", {"cwd": str(place.workspace)})


async def test_without_any_temporary_directory(tmp_path: Path) -> None:
    place = Place(tmp_path, environment={"TMPDIR": str(tmp_path / "nowhere")}, sandbox="workspace-write")
    patch = "*** Begin Patch\n*** Add File: new\n+text\n*** End Patch"
    model = ScriptedModel([reply(script(f"apply_patch <<'E'\n{patch}\nE")), reply(says("done"))])
    async with conversing(place, model) as server:
        await works(server)


async def test_a_directory_that_is_deleted_while_it_is_used(tmp_path: Path) -> None:
    place = Place(tmp_path)
    model = ScriptedModel(
        [reply(script('rm -rf "$PWD"; echo gone')), reply(script("echo still")), reply(says("done"))]
    )
    async with conversing(place, model) as server:
        await works(server)
        place.workspace.mkdir()
        model.replies += [reply(script("pwd")), reply(says("done"))]
        await works(server)
    assert str(place.workspace) in model.requests[-1].outputs()["c1"]


async def test_a_home_that_is_deleted_while_it_is_used(tmp_path: Path) -> None:
    place = Place(tmp_path)
    model = ScriptedModel([reply(says("done")), reply(says("done"))])
    async with conversing(place, model) as server:
        conversation = await works(server)
        while place.home.exists():  # the server may write into it meanwhile
            shutil.rmtree(place.home, ignore_errors=True)
        assert (await server.client.turn(conversation, "again")).last_message == "done"
        assert (await server.client.call("getUserAgent"))["userAgent"]


CLOCK = """\
import datetime, os, time
whole = datetime.datetime

def offset():
    with open(os.environ["CLOCK_OFFSET"]) as file:
        return float(file.read())

class Stepped(whole):
    @classmethod
    def now(cls, tz=None):
        return whole.fromtimestamp(time.time(), tz)

real_time, real_ns = time.time, time.time_ns
time.time = lambda: real_time() + offset()
time.time_ns = lambda: real_ns() + int(offset() * 1e9)
datetime.datetime = Stepped
"""
STEPS = (0, -3600, -50 * 365 * 86_400, 86_400 * 365, 0)
"""Offsets of the clock in seconds: an hour back, long before anything was written, a year ahead."""


def set_clock(clock: Path, seconds: float) -> None:
    """Set the clock atomically: the server may read it at any moment."""
    staged = clock.with_name("staged")
    staged.write_text(str(seconds))
    staged.replace(clock)


async def test_a_clock_that_steps(tmp_path: Path) -> None:
    """Order comes from positions in the file, and names stay unique, independent of the clock."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(CLOCK)
    clock = tmp_path / "offset"
    set_clock(clock, 0)
    place = Place(tmp_path, environment={"PYTHONPATH": str(tmp_path / "site"), "CLOCK_OFFSET": str(clock)})
    model = ScriptedModel([reply(says("done"))] * 2 * len(STEPS))
    async with conversing(place, model) as server:
        first = await server.open()
        for n, step in enumerate(STEPS):
            set_clock(clock, step)
            await server.client.turn(first, f"turn {n}")
            await works(server)
        set_clock(clock, 0)
        listed = (await server.client.call("listConversations", {"pageSize": 100}))["items"]
        assert len({item["conversationId"] for item in listed}) == 1 + len(STEPS)
        resumed = await server.client.call("resumeConversation", {"conversationId": first})
        said = [m["message"] for m in resumed["initialMessages"] if m["type"] == "user_message"]
        assert said == [f"turn {n}" for n in range(len(STEPS))]
