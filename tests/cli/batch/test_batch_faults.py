"""Faults around a batch: providers, logins, budgets, disks, workers, repositories, tasks that misbehave."""

import errno
import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.cli.batch import checkout, coordinator, local, out_folder
from app_server.cli.batch.out_folder import OutFolder
from app_server.engine.storage.disk import DiskCalls
from app_server.engine.support.engine_errors import GitError
from app_server_protocol.encoding import Json
from tests.support.batches import Author, BatchWorld, MemoryWorkers, agrees, refuses, writes
from tests.support.mounts import as_root, mounted_on_itself, protect
from tests.support.processes import marked
from tests.support.scripted_model import ModelRequest, Reply, failure, reply, says, script
from tests.support.waiting import until

pytestmark = [pytest.mark.scenario, pytest.mark.anyio]


def refusing(first: int, refusal: Reply) -> Author:
    """Return a model that refuses the first requests, and then answers."""
    left = first

    def author(request: ModelRequest) -> Reply:
        nonlocal left
        left -= 1
        return refusal if left >= 0 else reply(says("done"))

    return author


# --- providers
async def test_a_provider_that_asks_for_fewer_requests_fails_no_task_and_costs_neither_attempt_nor_budget(
    batch: BatchWorld,
) -> None:
    batch.author = refusing(6, failure(429, {"error": {"message": "slow down"}}, **{"retry-after": "0.2"}))
    batch.write(*({"id": f"t{n}", "budget": {"seconds": 60, "requests": 1}} for n in range(4)))
    done = await batch.run()
    assert done.status == 0, done.stderr
    assert {line["attempts"] for line in done.lines} == {1}
    assert sum(line["usage"]["requests"] for line in done.lines) == len(batch.requests) == 10
    assert max(line["seconds"]["queued"] for line in done.lines) > 0.2
    assert max(line["seconds"]["turn"] for line in done.lines) < 60


async def test_what_may_pass_is_tried_again_in_a_fresh_place(batch: BatchWorld) -> None:
    repository = batch.repository()
    served = {"a": 0}

    def author(request: ModelRequest) -> Reply:
        if request.outputs():
            served["a"] += 1
            return (
                failure(503, {"error": {"message": "overloaded"}})
                if served["a"] == 1
                else reply(says("done"))
            )
        return reply(script("echo once >> a.txt"))

    batch.author = author
    batch.write({"id": "a", "repo": str(repository)})
    done = await batch.run()
    line = done.results["a"]
    assert (done.status, line["status"], line["attempts"]) == (0, "completed", 2), done.stderr
    assert (done.out / line["patch"]).read_text().count("+once") == 1


@pytest.mark.parametrize("retries", ["0", "1"])
async def test_retries_end(batch: BatchWorld, retries: str) -> None:
    batch.author = refuses(503)
    batch.write({"id": "a"})
    done = await batch.run("--retries", retries)
    assert (done.status, done.results["a"]["status"]) == (1, "failed")
    assert done.results["a"]["attempts"] == int(retries) + 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_login_stops_the_batch_at_once_and_costs_no_result(
    batch: BatchWorld, status: int
) -> None:
    good = batch.author
    batch.author = refuses(status)
    batch.write(*({"id": f"t{n}"} for n in range(20)))
    done = await batch.run(jobs=2)
    assert (done.status, done.lines) == (4, [])
    assert "the provider refuses the login" in done.stderr
    assert len(batch.requests) <= 2
    batch.author = good
    again = await batch.run()
    assert (again.status, len(again.results)) == (0, 20)


async def test_failures_in_a_row_stop_the_batch(batch: BatchWorld) -> None:
    batch.author = refuses(400)
    batch.write(*({"id": f"t{n}"} for n in range(20)))
    done = await batch.run("--stop-after", "3", jobs=1)
    assert (done.status, len(done.lines)) == (4, 3)
    assert "too many tasks have failed in a row: 0 of 20 tasks completed, 17 are left" in done.stderr


# --- budgets
@pytest.mark.parametrize(
    ("options", "most"),
    [(("--max-tokens", "100"), 100), (("--max-cost", "0.0001"), 10**9)],
    ids=["tokens", "cost"],
)
async def test_a_budget_of_the_whole_ends_turns_in_the_middle_and_keeps_their_patches(
    batch: BatchWorld, options: tuple[str, ...], most: int
) -> None:
    repository = batch.repository()
    (batch.home / "prices.json").write_text(json.dumps({"scripted": {"input": 1.0, "output": 1.0}}))
    calls = 0

    def author(request: ModelRequest) -> Reply:
        nonlocal calls
        calls += 1
        return reply(script("echo x >> a.txt", call_id=f"c{calls}"))

    batch.author = author
    batch.write(*({"id": f"t{n}", "repo": str(repository)} for n in range(6)))
    done = await batch.run(*options, jobs=3)
    assert done.status == 3
    assert "a budget of the whole batch is used up: 0 of 6 tasks completed" in done.stderr
    spent = 15 * len(batch.requests)
    assert 100 <= spent <= 115
    assert {line["status"] for line in done.lines} == {"overBudget"}
    assert len(done.lines) == 3, "the others are left for a larger budget"
    assert all((done.out / line["patch"]).exists() for line in done.lines)
    if options[0] == "--max-cost":
        assert sum(line["usage"]["cost"] for line in done.lines) == pytest.approx(spent / 1e6)
    batch.author = agrees
    again = await batch.run("--max-tokens", "100000")
    assert (again.status, len(again.results)) == (1, 6)


# --- workers
async def test_a_worker_that_dies_costs_attempts_and_no_task(batch: BatchWorld) -> None:
    workers: list[MemoryWorkers] = []

    def author(request: ModelRequest) -> Reply:
        if len(batch.requests) == 2:
            workers[0].scopes[0].cancel()
        return reply(says("done"))

    batch.author = author
    batch.write(*({"id": f"t{n}"} for n in range(6)))
    async with batch.serving():
        workers.append(MemoryWorkers(2, batch.environment))
        done = await batch.command(workers=workers[0])
    assert done.status == 0, done.stderr
    assert len(done.results) == 6
    assert len(workers[0].scopes) == 3, "it was started again"


async def test_a_task_that_kills_its_workers_is_lost(batch: BatchWorld) -> None:
    workers: list[MemoryWorkers] = []

    def author(request: ModelRequest) -> Reply:
        if "Do bad." in request.texts()[-1]:
            workers[0].scopes[-1].cancel()
        return reply(says("done"))

    batch.author = author
    batch.write({"id": "bad"}, {"id": "good"})
    async with batch.serving():
        workers.append(MemoryWorkers(1, batch.environment))
        done = await batch.command("--retries", "1", workers=workers[0], jobs=1)
    assert done.status == 1
    assert (done.results["bad"]["status"], done.results["bad"]["attempts"]) == ("lost", 2)
    assert done.results["good"]["status"] == "completed"


async def test_where_no_patch_can_be_made_the_folder_is_kept(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def killed(*arguments: Any) -> object:
        raise GitError("git update-index failed with exit code -9")

    batch.author = writes("echo x >> a.txt")
    batch.write({"id": "a", "repo": str(batch.repository()), "ref": "main"})
    with monkeypatch.context() as patch:
        patch.setattr(checkout, "write_worktree", killed)
        done = await batch.run()
    assert done.results["a"]["status"] == "failed"
    assert "no patch could be made, so the task's folder is kept" in done.results["a"]["error"]["message"]
    assert (done.out / "checkouts" / "a" / "a.txt").read_text() == "one\nx\n"


async def test_a_worker_removes_what_dead_ones_have_left_on_its_machine(tmp_path: Path) -> None:
    work = tmp_path / "work"
    async with local.scratch_folder(work) as alive:
        dead = work / "worker-0123abcd"
        (dead / "t" / "closed").mkdir(parents=True)
        (dead / "t" / "closed").chmod(0)
        (work / f"{dead.name}.lock").touch()
        async with local.scratch_folder(work) as another:
            assert {*work.glob("worker-????????")} == {alive, another}
    assert list(work.iterdir()) == []


# --- the folder for results
async def test_a_disk_that_is_full_stops_the_batch_and_spoils_nothing(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    stored: list[bytes] = []

    def full(file: int, data: memoryview) -> int:
        if b'"status"' not in bytes(data):
            return write(file, data)
        stored.append(bytes(data))
        if len(stored) == 2:
            return write(file, data[:10])
        if len(stored) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data)

    batch.write(*({"id": f"t{n}"} for n in range(20)))
    with monkeypatch.context() as patch:
        patch.setattr(out_folder, "DISK", DiskCalls(write=full))
        patch.setattr(coordinator, "GATHERS_FOR", 0.0)
        done = await batch.run(jobs=1)
    assert done.status == 4
    assert "cannot be written any more: No space left on device" in done.stderr
    assert (done.out / "results.jsonl").read_bytes() == stored[0], "what was final stays readable"
    again = await batch.run()
    assert (again.status, len(again.results)) == (0, 20)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what is open")
async def test_what_belongs_to_a_result_is_synced_before_its_line(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure leaves no result without its patch, and a retry no folder without results."""
    fsync, synced = os.fsync, list[str]()

    def noted(file: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        fsync(file)

    batch.author = writes("echo x >> a.txt")
    batch.write({"id": "a", "repo": str(batch.repository())}, {"id": "b"})
    monkeypatch.setattr(os, "fsync", noted)
    async with batch.serving():
        await batch.command(jobs=1)
        assert [name for name in synced if name in ("patches", "results.jsonl")][:2] == [
            "patches",
            "results.jsonl",
        ]
        synced.clear()
        monkeypatch.setattr(os, "fsync", noted)
        await batch.command("retry", str(batch.out), "--id", "b")
    aside, rewritten, *_ = (name for name in synced if name.startswith(("retried", ".results")))
    assert (aside, rewritten.startswith(".results.jsonl.staged-")) == ("retried.jsonl", True)


async def test_a_place_that_cannot_be_written_is_told_before_anything_runs(batch: BatchWorld) -> None:
    (batch.root / "file").write_text("")
    batch.write({"id": "a"})
    for place in ("file/out", "file"):
        done = await batch.run("-o", str(batch.root / place))
        assert (done.status, batch.requests) == (2, [])
        assert "Not a directory" in done.stderr or "File exists" in done.stderr


@as_root
async def test_a_folder_that_may_only_be_read_is_refused_and_its_status_is_told(batch: BatchWorld) -> None:
    batch.write({"id": "a"})
    await batch.run()
    asked = len(batch.requests)
    with OutFolder(batch.out, batch.home) as out, mounted_on_itself(batch.out):
        out.show_running(1)
        protect(batch.out)
        status = await batch.command("status", str(batch.out))
        assert status.stdout.startswith("1 tasks, 0 left, 1 running; done: 1 completed\n")
        for arguments in ((), ("-o", str(batch.out / "more"))):
            done = await batch.run(*arguments)
            assert (done.status, len(batch.requests)) == (2, asked)
            assert "cannot be written: Read-only file system" in done.stderr


@as_root
async def test_a_folder_that_cannot_be_written_any_more_stops_the_batch(batch: BatchWorld) -> None:
    patches = batch.out / "patches"

    def author(request: ModelRequest) -> Reply:
        if request.outputs():
            undo.enter_context(mounted_on_itself(patches))
            protect(patches)
            return reply(says("done"))
        return reply(script("echo x >> a.txt"))

    batch.author = author
    batch.write({"id": "a", "repo": str(batch.repository())})
    with ExitStack() as undo:
        done = await batch.run()
    assert (done.status, done.lines) == (4, [])
    assert "cannot be written any more: Read-only file system" in done.stderr
    batch.author = agrees
    assert (await batch.run()).status == 0


# --- untrusted repositories and tasks
HOSTILE = {
    ".gitattributes": "*.txt filter=evil diff=evil merge=evil text eol=lf\n",
    ".gitmodules": '[submodule "sub"]\n\tpath = sub\n\turl = ext::sh -c touch% PWNED\n',
    "a.txt": "one\n",
}


def plant(folder: Path, marker: Path) -> list[list[str]]:
    """Return git commands that write settings which name programs, each of which would create the marker."""
    touch = f"touch {marker}; cat"
    names = (
        "filter.evil.smudge",
        "filter.evil.clean",
        "filter.evil.process",
        "diff.evil.command",
        "diff.evil.textconv",
    )
    more = ("core.fsmonitor", "diff.external", "core.sshCommand", "core.pager", "uploadpack.packObjectsHook")
    return [["git", "-C", str(folder), "config", name, touch] for name in (*names, *more)]


async def test_nothing_of_a_repository_is_run_neither_for_the_checkout_nor_for_the_patch(
    batch: BatchWorld,
) -> None:
    repository, marker = batch.repository(files=HOSTILE), batch.root / "PWNED"
    for command in plant(repository, marker):
        batch.git(repository, *command[3:])
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        path = repository / ".git" / "hooks" / hook
        path.write_text(f"#!/bin/sh\ntouch {marker}\n")
        path.chmod(0o755)
    batch.git(repository, "config", "core.worktree", str(batch.root / "user"))
    batch.author = writes("echo two >> a.txt")
    batch.write({"id": "a", "repo": str(repository)}, {"id": "b", "repo": str(repository), "ref": "main"})
    done = await batch.run()
    assert not marker.exists()
    assert done.status == 0, done.stderr
    assert "+two" in (done.out / "patches" / "b.diff").read_text()


async def test_nothing_that_a_task_puts_into_its_checkout_is_run(batch: BatchWorld) -> None:
    repository, marker = batch.repository(files=HOSTILE), batch.root / "PWNED"
    planted = " && ".join(
        " ".join([*c[:5], f"'{c[5]}'"]).replace(f"-C {repository}", "") for c in plant(repository, marker)
    )
    hook = (
        f"mkdir -p hooks && printf '#!/bin/sh\\ntouch {marker}\\n' > hooks/post-checkout && chmod +x hooks/*"
    )
    dirty = f"{planted} && git config core.hooksPath $PWD/hooks && {hook} && echo two >> a.txt"

    def author(request: ModelRequest) -> Reply:
        if request.outputs():
            return reply(says("done"))
        return reply(script(dirty if "Do bad" in request.texts()[-1] else "echo three >> a.txt"))

    batch.author = author
    tasks = [{"id": id, "repo": str(repository)} for id in ("bad-1", "good-1", "bad-2", "good-2")]
    batch.write(*tasks)
    done = await batch.run(jobs=1)
    assert not marker.exists()
    assert done.status == 0, done.stderr
    assert "+two" in (done.out / "patches" / "bad-1.diff").read_text()
    for id in ("good-1", "good-2"):
        patch = (done.out / "patches" / f"{id}.diff").read_text()
        assert "+three" in patch
        assert "two" not in patch
    assert "evil" not in (repository / ".git" / "config").read_text()


async def test_a_task_cannot_have_git_take_another_repository_for_its_own(batch: BatchWorld) -> None:
    """The task replaces its `.git` by one that leads to the user's repository."""
    repository = batch.repository()
    head = batch.git(repository, "rev-parse", "HEAD")
    swap = f"rm .git && ln -s {repository}/.git .git && echo two >> a.txt"
    batch.author = writes(swap)
    batch.write({"id": "a", "repo": str(repository)})
    done = await batch.run()
    assert done.results["a"]["status"] == "completed", done.stderr
    assert "+two" in (done.out / "patches" / "a.diff").read_text()
    assert batch.git(repository, "rev-parse", "HEAD") == head
    assert batch.git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "misbehaves",
    [
        "yes",
        "sleep 1000",
        "while true; do sleep 1000 & setsid sleep 1000 & sleep 0.01; done",
        "trap '' TERM INT HUP; mkdir -p $(seq -s/ 1 200); chmod 0 1; while true; do sleep 1; done",
        "mkdir many; cd many; for n in $(seq 1 3000); do echo x > $n; done; sleep 1000",
    ],
    ids=["floods", "hangs", "forks", "clings", "fills"],
)
async def test_a_task_that_misbehaves_ends_by_its_own_limit_and_others_do_not_notice(
    batch: BatchWorld, misbehaves: str
) -> None:
    def author(request: ModelRequest) -> Reply:
        if request.outputs():
            return reply(says("done"))
        return reply(script(misbehaves if "Do bad." in request.texts()[-1] else "echo fine"))

    batch.author = author
    batch.write({"id": "bad", "budget": {"seconds": 1}}, *({"id": f"t{n}"} for n in range(4)))
    with anyio.fail_after(90):
        done = await batch.run()
    assert done.results["bad"]["status"] == "timedOut"
    assert {done.results[f"t{n}"]["status"] for n in range(4)} == {"completed"}
    await until(lambda: not marked(str(batch.out / ".work")), "the commands of the task have ended")
    assert batch.left_over() == []


# --- secrets
KEY = "sk-batch-0123456789abcdef"


async def test_no_secret_is_in_the_folder_of_a_batch(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider quotes the key; a command prints its environment; a setting of the command line is a secret."""

    def author(request: ModelRequest) -> Reply:
        if "refused" in request.texts()[-1]:
            return failure(400, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
        if request.outputs():
            return reply(says(f"The key is {KEY}, and the header {KEY[::-1]}."))
        return reply(script("env; echo done > made"))

    batch.author = author
    repository = batch.repository()
    batch.write({"id": "refused"}, {"id": "talks", "repo": str(repository)})
    header = f'model_providers.scripted.http_headers={{"x-api-key"="{KEY[::-1]}"}}'
    config: Json = {"config": {}, "tables": 'env_key = "BATCH_PROVIDER_KEY"\n'}
    async with batch.serving(**config):
        batch.environment = {**batch.environment, "BATCH_PROVIDER_KEY": KEY}
        done = await batch.command("-c", header, "--keep", "all")
    assert done.results["talks"]["status"] == "completed", done.stderr
    assert "BATCH_PROVIDER_KEY" not in str(batch.requests[-1].outputs())
    assert "********" in done.results["talks"]["finalMessage"]
    for secret in (KEY, KEY[::-1]):
        assert secret not in done.stderr
        assert [
            path for path in done.out.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
        ] == []
    [thread] = done.out.glob(f"homes/*/sessions/**/*{done.results['talks']['threadId']}.jsonl")
    assert "The key is ********, and the header ********." in thread.read_text()


async def test_a_prompt_with_a_key_in_it_is_refused(batch: BatchWorld) -> None:
    batch.write({"id": "a", "prompt": f"Use {KEY}."})
    async with batch.serving(tables='env_key = "BATCH_PROVIDER_KEY"\n'):
        batch.environment = {**batch.environment, "BATCH_PROVIDER_KEY": KEY}
        done = await batch.command()
    assert done.status == 2
    assert ":1: the line has the value of $BATCH_PROVIDER_KEY in it" in done.stderr
    assert KEY not in done.stderr
    assert not done.out.exists()


async def test_a_prompt_with_the_key_of_an_mcp_server_is_refused(batch: BatchWorld) -> None:
    batch.write({"id": "a", "prompt": f"Use {KEY}."})
    done = await batch.run("-c", f'mcp_servers.tracker={{command="true",env={{TRACKER_KEY="{KEY}"}}}}')
    assert (done.status, batch.requests) == (2, [])
    assert ":1: the line has the value of TRACKER_KEY of the MCP server tracker in it" in done.stderr
