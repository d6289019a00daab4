"""Attacks on a batch: by commands of tasks, by folders from elsewhere, and by workers that lie."""

import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
import pytest

from app_server.cli.batch.local import Workers
from app_server.cli.batch.worker import node_name
from app_server.cli.batch.worker_messages import Ask, Ended, Over, Ready, Result, TaskUsage
from app_server.engine.support.rooted_fs import RefusedName
from tests.support.batches import BatchWorld, agrees, writes
from tests.support.scripted_model import ModelRequest, Reply, failure, reply, says, script

pytestmark = [pytest.mark.scenario, pytest.mark.anyio]

WRITES = ("-s", "workspace-write")
GREEDY = 'mcp_servers.e.command="touch"'


def here(batch: BatchWorld) -> str:
    """Return the parent of the batch's folder."""
    return str(batch.root)


# --- the folder of a batch in the folder of a task
async def test_a_command_changes_nothing_in_the_folder_of_its_batch(batch: BatchWorld) -> None:
    outside = batch.root / "outside"
    outside.mkdir()
    batch.author = writes(
        "echo x >> out/batch.json; rmdir out/patches && ln -s ../outside out/patches; mv out moved; "
        "echo y > out/homes/new; touch beside"
    )
    batch.write({"id": "a", "cwd": here(batch)})
    done = await batch.run(*WRITES)
    assert done.status == 0, done.stderr
    assert (batch.root / "beside").exists(), "the rest of its folder is the task's"
    assert not (batch.out / "homes" / "new").exists()
    assert not (batch.out / "patches").is_symlink()
    json.loads((batch.out / "batch.json").read_text())


async def test_a_patch_changes_nothing_there_either(batch: BatchWorld) -> None:
    patch = "*** Begin Patch\n*** Add File: out/homes/new\n+x\n*** End Patch"
    batch.author = writes(f"apply_patch <<'END'\n{patch}\nEND")
    batch.write({"id": "a", "cwd": here(batch)})
    done = await batch.run(*WRITES)
    assert done.status == 0, done.stderr
    assert not (batch.out / "homes" / "new").exists()
    assert done.results["a"]["declined"] == 1
    assert "out/homes/new" in done.results["a"]["declinedRequests"][0]


async def test_a_task_in_the_folder_of_its_batch_writes_nothing(batch: BatchWorld) -> None:
    batch.write({"id": "first"})
    assert (await batch.run()).status == 0
    batch.author = writes("touch mine")
    batch.write({"id": "first"}, {"id": "a", "cwd": str(batch.out / "homes")})
    done = await batch.run(*WRITES, "--allow-changed")
    assert done.results["a"]["status"] == "completed", done.stderr
    assert not (batch.out / "homes" / "mine").exists()


async def test_settings_that_let_commands_write_around_the_folder_are_refused(batch: BatchWorld) -> None:
    batch.write({"id": "a"})
    roots = f'sandbox_workspace_write.writable_roots=["{batch.root}"]'
    done = await batch.run(*WRITES, "-c", roots)
    assert done.status == 2
    assert "which the settings let commands write: name a folder outside of it" in done.stderr
    assert not batch.out.exists()


# --- what a folder says
async def test_a_retry_believes_no_settings_that_something_has_changed(batch: BatchWorld) -> None:
    batch.write({"id": "a", "check": ["false"]})
    async with batch.serving():
        assert (await batch.command()).status == 1
        stored = json.loads((batch.out / "batch.json").read_text())
        stored["doing"]["overrides"]["settings"].append(GREEDY.split("="))
        (batch.out / "batch.json").write_text(json.dumps(stored))
        done = await batch.command("retry", str(batch.out), "--status", "checkFailed")
        assert done.status == 2
        assert "so its settings are not believed" in done.stderr
        again = await batch.command("--allow-changed")  # the command line has all the settings
        assert again.status == 1
        done = await batch.command("retry", str(batch.out), "--status", "checkFailed")
    assert done.status == 1, done.stderr
    assert len(done.results) == 1


async def test_a_retry_runs_no_tasks_that_something_has_changed(batch: BatchWorld) -> None:
    batch.write({"id": "a", "check": ["false"]})
    async with batch.serving():
        await batch.command()
        (batch.out / "tasks.jsonl").write_text('{"id": "a", "prompt": "other words"}\n')
        done = await batch.command("retry", str(batch.out), "--status", "checkFailed")
    assert done.status == 2
    assert "was changed since the batch began" in done.stderr


async def test_a_folder_from_elsewhere_is_retried_once_its_command_was_repeated(batch: BatchWorld) -> None:
    batch.write({"id": "a", "check": ["false"]})
    async with batch.serving():
        await batch.command()
        moved = shutil.copytree(batch.out, batch.root / "moved", symlinks=True)
        retry = ("retry", str(moved), "--status", "checkFailed")
        assert (await batch.command(*retry)).status == 2
        assert (await batch.command("-o", str(moved))).status == 1
        assert (await batch.command(*retry)).status == 1


async def test_paths_begin_where_the_command_is_given_again_if_the_folder_was_changed(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = batch.root / "outside"
    (outside / "w").mkdir(parents=True)
    (batch.root / "w").mkdir()
    tasks = [{"id": "a", "cwd": "w"}, {"id": "b", "cwd": "w"}]
    batch.write(*tasks)
    monkeypatch.chdir(batch.root)
    async with batch.serving():
        assert (await batch.command()).status == 0
        stored = json.loads((batch.out / "batch.json").read_text()) | {"folder": str(outside)}
        (batch.out / "batch.json").write_text(json.dumps(stored))
        lines = (batch.out / "results.jsonl").read_text().splitlines(keepends=True)
        (batch.out / "results.jsonl").write_text(lines[0])
        monkeypatch.chdir(batch.root)
        assert (await batch.command()).status == 0
    assert json.loads((batch.out / "batch.json").read_text())["folder"] == str(batch.root)


# --- shards
async def test_a_merge_takes_regular_files_alone(batch: BatchWorld) -> None:
    batch.write({"id": "a", "repo": str(batch.repository())}, {"id": "b"})
    batch.author = writes("echo x >> a.txt")
    victim, planted = batch.root / "victim", batch.root / "planted"
    victim.write_text("untouched")
    planted.mkdir()
    async with batch.serving():
        await batch.command()
        patch = batch.out / "patches" / "a.diff"
        whole = patch.read_bytes()
        for kind in ("a link", "a pipe", "a folder"):
            patch.unlink()
            if kind == "a link":
                patch.symlink_to(victim)
            elif kind == "a pipe":
                os.mkfifo(patch)
            else:
                patch.mkdir()
            (batch.out / "patches" / "other.diff").unlink(missing_ok=True)
            (batch.out / "patches" / "other.diff").symlink_to(planted)
            merged = batch.root / "merged"
            shutil.rmtree(merged, ignore_errors=True)
            done = await batch.command("merge", str(merged), str(batch.out))
            assert done.status == 0, done.stderr
            assert done.stderr.count("left out: ") == 1
            assert list((merged / "patches").iterdir()) == []
            patch.rmdir() if patch.is_dir() else patch.unlink()
            patch.write_bytes(whole)
    assert victim.read_text() == "untouched"
    assert list(planted.iterdir()) == []


@pytest.mark.parametrize("name", ["batch.json", "results.jsonl", "tasks.jsonl", "attempts.jsonl", "lock"])
async def test_a_pipe_in_a_folder_keeps_nobody_waiting(batch: BatchWorld, name: str) -> None:
    batch.write({"id": "a"})
    async with batch.serving():
        await batch.command()
        (batch.out / name).unlink()
        os.mkfifo(batch.out / name)
        for arguments in (
            ("status", str(batch.out)),
            ("merge", str(batch.root / "m"), str(batch.out)),
            ("retry", str(batch.out), "--status", "completed"),
        ):
            with anyio.fail_after(60):
                with suppress(RefusedName):
                    assert (await batch.command(*arguments)).status in (0, 2, 4)


# --- workers that lie
def ended(id: str, **more: object) -> Ended:
    return Ended(result=Result(id=id, status="completed"), **more)  # type: ignore[arg-type]


LIES: dict[str, list[object]] = {
    "a place outside of the folder": [ended("a", rollout=("../../evil", b"x"))],
    "an absolute place": [ended("a", rollout=("/tmp/evil", b"x"))],
    "a task of nobody": [ended("c")],
    "a task twice": [ended("a"), ended("a")],
    "a request of nobody": [Ask(id="c", size=1, first=True)],
    "the end of a request that was not asked for": [Over(id="a", model="m", usage=TaskUsage())],
    "less than nothing": [Ask(id="a", size=-5, first=True)],
    "another name": [Ready(node="other")],
    "no JSON": [b"garbage"],
    "no message": [b'{"type":"boom"}'],
}


class Scripted:
    """Worker that sends these messages after it was given two tasks. Without messages it does each task."""

    def __init__(self, said: list[object] | None, node: str) -> None:
        self._said, self._node = said, node
        self._given: list[str] = []
        self._fresh = anyio.Event()

    async def lines(self) -> AsyncIterator[list[bytes]]:
        yield [msgspec.json.encode(Ready(node=self._node))]
        done = 0
        while True:
            await self._fresh.wait()
            self._fresh = anyio.Event()
            if self._said is None:
                while done < len(self._given):
                    yield [msgspec.json.encode(ended(self._given[done]))]
                    done += 1
            elif len(self._given) == 2:
                for each in self._said:
                    yield [each if isinstance(each, bytes) else msgspec.json.encode(each)]

    async def write(self, data: bytes) -> None:
        told = map(json.loads, data.splitlines())
        self._given += [each["task"]["id"] for each in told if each["type"] == "run"]
        self._fresh.set()


def workers_that_say(said: list[object], node: str = "n") -> Workers:
    """Return workers of which the first one sends these messages."""
    left: list[list[object] | None] = [said]

    @asynccontextmanager
    async def connect() -> AsyncIterator[Scripted]:
        yield Scripted(left.pop() if left else None, node)

    return Workers(1, connect)  # type: ignore[arg-type]


@pytest.mark.parametrize("lie", LIES)
async def test_a_worker_that_lies_is_ended_and_its_tasks_are_done_by_another(
    batch: BatchWorld, lie: str
) -> None:
    batch.write({"id": "a"}, {"id": "b"})
    around = set(batch.root.iterdir())
    done = await batch.run("--ray", "x", workers=workers_that_say(LIES[lie]), jobs=2)
    assert done.status == 0, done.stderr
    assert set(done.results) == {"a", "b"}
    assert {line["node"] for line in done.lines} == {"n"}
    assert {path.name for path in set(batch.root.iterdir()) - around} == {"out"}


@pytest.mark.parametrize("node", ["..", "../..", "/", "a/b", "", "n\n", "x" * 300])
async def test_a_worker_whose_name_is_no_name_is_never_used(batch: BatchWorld, node: str) -> None:
    batch.write({"id": "a"}, {"id": "b"})
    done = await batch.run("--ray", "x", workers=workers_that_say([], node))
    assert done.status == 4
    assert "every worker ended 3 times before it was of use" in done.stderr
    assert list((batch.out / "homes").iterdir()) == []


def test_a_host_of_any_name_is_called_by_a_name() -> None:
    assert [node_name(each) for each in ("host-1.example", "..", "a/b", "naïve", "")] == [
        "host-1.example",
        "here",
        "a-b",
        "na-ve",
        "here",
    ]


# --- what models say
async def test_half_a_character_ends_no_other_task(batch: BatchWorld) -> None:
    def author(request: ModelRequest) -> Reply:
        return reply(says("half \ud83d of it" if "odd" in request.texts()[-1] else "done"))

    batch.author = author
    batch.write({"id": "a", "prompt": "odd"}, *({"id": f"t{n}"} for n in range(4)))
    done = await batch.run()
    assert done.status == 0, done.stderr
    assert done.results["a"]["finalMessage"] == "half \ufffd of it"
    assert {line["attempts"] for line in done.lines} == {1}


async def test_whatever_an_attempt_raises_ends_that_attempt_alone(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app_server.cli.batch.attempt import Attempt  # noqa: PLC0415

    work: Callable[..., object] = Attempt._work

    async def fails(self: Attempt, thread: object) -> None:
        if self.task.id == "a":
            raise ZeroDivisionError("unforeseen")
        await work(self, thread)  # type: ignore[misc]

    monkeypatch.setattr(Attempt, "_work", fails)
    batch.author = agrees
    batch.write(*({"id": id} for id in ("a", "b", "c")))
    async with batch.serving():
        with monkeypatch.context():
            done = await batch.command()
    assert "unforeseen" in done.results["a"]["error"]["message"]
    assert [done.results[id]["status"] for id in ("a", "b", "c")] == ["failed", "completed", "completed"]


# --- patches
async def test_a_patch_is_what_was_written_whatever_variables_hold(batch: BatchWorld) -> None:
    repository = batch.repository(files={"a.txt": "path = /srv/data/shared\n"})
    batch.author = writes("echo more >> a.txt")
    batch.write({"id": "a", "repo": str(repository)})
    async with batch.serving():
        batch.environment = {**batch.environment, "PASSWORD_STORE_DIR": "/srv/data/shared"}
        done = await batch.command(*WRITES)
    patch = batch.out / done.results["a"]["patch"]
    batch.git(repository, "apply", "--check", str(patch))
    assert "path = /srv/data/shared" in patch.read_text()


async def test_a_patch_with_a_credential_of_the_server_fails_its_task_and_is_not_stored(
    batch: BatchWorld,
) -> None:
    key = "sk-batch-0123456789abcdef"
    batch.author = lambda request: (
        reply(says("done")) if request.outputs() else reply(script(f"echo {key[:9]}{key[9:]} >> a.txt"))
    )
    batch.write({"id": "a", "repo": str(batch.repository())})
    async with batch.serving(tables='env_key = "BATCH_PROVIDER_KEY"\n'):
        batch.environment = {**batch.environment, "BATCH_PROVIDER_KEY": key}
        done = await batch.command(*WRITES)
    line = done.results["a"]
    assert (line["status"], line["patch"]) == ("failed", None)
    assert line["error"]["message"].startswith("the patch has the value of $BATCH_PROVIDER_KEY in it")
    assert (batch.out / "checkouts" / "a" / "a.txt").exists()
    assert list((batch.out / "patches").iterdir()) == []


# --- providers
async def test_a_provider_that_asks_for_a_wait_without_end_stops_the_batch(batch: BatchWorld) -> None:
    batch.author = lambda request: failure(
        429, {"error": {"message": "no"}}, **{"retry-after": "99999999999"}
    )
    batch.write({"id": "a"})
    done = await batch.run()
    assert (done.status, done.lines) == (4, [])
    assert "the provider asks to wait 1e+11 s, which is not waited for" in done.stderr
    batch.author = agrees
    assert (await batch.run()).status == 0, "the same command goes on"


# --- names of one folder
async def test_tasks_of_one_folder_follow_one_another_whatever_it_is_called(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (batch.root / "w").mkdir()
    (batch.root / "link").symlink_to("w")

    def author(request: ModelRequest) -> Reply:
        if request.outputs():
            return reply(says("done"))
        return reply(script("test ! -e busy && touch busy && sleep 0.3 && rm busy || touch met"))

    batch.author = author
    names = ("w", "./w", "w/", "link", str(batch.root / "w"), "w/../w")
    batch.write(*({"id": f"t{n}", "cwd": name} for n, name in enumerate(names)))
    monkeypatch.chdir(batch.root)
    done = await batch.run(*WRITES, jobs=6)
    assert done.status == 0, done.stderr
    assert not (batch.root / "w" / "met").exists()


# --- addresses
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://user:hunter2@example.com/r.git", "a password or token"),
        ("https://ghp0123456789@example.com/r.git", "a password or token"),
        ("fd::17", "needs an address that begins with"),
        ("ext::sh -c x", "needs an address that begins with"),
        ("fd://17", "needs an address that begins with"),
    ],
)
async def test_an_address_with_a_password_or_that_runs_a_program_is_refused(
    batch: BatchWorld, address: str, said: str
) -> None:
    batch.write({"id": "a", "repo": address})
    done = await batch.run()
    assert done.status == 2
    assert said in done.stderr
    assert "hunter2" not in done.stderr
    assert not batch.out.exists()
