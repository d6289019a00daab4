"""A task of a batch from its line to its result: its place, its settings, its commands, its limits."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import anyio
import pytest

from app_server_protocol.encoding import Json
from tests.support.batches import BatchWorld, writes
from tests.support.scripted_model import ModelRequest, Reply, reply, says, script

pytestmark = [pytest.mark.scenario, pytest.mark.anyio]

FIELDS = {
    *("id", "status", "attempts", "threadId", "finalMessage", "output", "patch", "files", "check", "usage"),
    *("declined", "startedAt", "seconds", "error", "node", "meta"),
}


async def test_a_task_without_a_place_gets_an_empty_folder(batch: BatchWorld) -> None:
    batch.author = writes("pwd; ls -A | wc -l")
    batch.write({"id": "a", "meta": {"split": "dev"}})
    done = await batch.run()
    assert done.status == 0, done.stderr
    [line] = done.lines
    assert line.keys() == FIELDS
    assert (line["status"], line["attempts"], line["finalMessage"], line["meta"]) == (
        "completed",
        1,
        "done",
        {"split": "dev"},
    )
    assert line["usage"] == {
        "inputTokens": 20,
        "cachedInputTokens": 0,
        "outputTokens": 10,
        "requests": 2,
        "cost": None,
    }
    assert (line["patch"], line["files"], line["check"], line["error"], line["declined"]) == (
        None,
        0,
        None,
        None,
        0,
    )
    assert line["seconds"].keys() == {"queued", "checkout", "setup", "turn"}
    [output] = batch.requests[-1].outputs().values()
    assert "\\n0\\n" in output or "\n0\n" in output
    assert batch.left_over() == []


async def test_a_repository_is_checked_out_and_its_changes_come_back_as_a_patch(batch: BatchWorld) -> None:
    repository = batch.repository(files={"a.txt": "one\n", "old.bin": "x"})
    batch.author = writes(
        "echo two >> a.txt; printf 'b\\0c' > new.bin; rm old.bin; mkdir d; echo n > d/new.txt"
    )
    batch.write({"id": "a", "repo": str(repository)})
    done = await batch.run()
    assert done.status == 0, done.stderr
    line = done.results["a"]
    assert (line["patch"], line["files"]) == ("patches/a.diff", 4)
    assert batch.git(repository, "status", "--porcelain") == "", "the user's checkout is as it was"
    assert batch.git(repository, "worktree", "list").count("\n") == 0
    batch.git(repository, "apply", "--index", str(done.out / line["patch"]))
    assert (repository / "a.txt").read_text() == "one\ntwo\n"
    assert (repository / "new.bin").read_bytes() == b"b\0c"
    assert (repository / "d" / "new.txt").read_text() == "n\n"
    assert not (repository / "old.bin").exists()
    assert batch.left_over() == []


async def test_a_ref_is_what_it_was_when_the_batch_began(batch: BatchWorld) -> None:
    repository = batch.repository(files={"a.txt": "old\n"})
    batch.git(repository, "tag", "v1")
    (repository / "a.txt").write_text("new\n")
    batch.git(repository, "commit", "-qam", "next")
    batch.author = writes("cat a.txt")
    batch.write({"id": "tag", "repo": str(repository), "ref": "v1"}, {"id": "head", "repo": str(repository)})
    assert (await batch.run(jobs=1)).status == 0
    seen = ["old" in str(request.outputs()) for request in batch.requests if request.outputs()]
    assert seen == [True, False]


@pytest.fixture
def address(batch: BatchWorld) -> Iterator[str]:
    """Serve a repository with a branch, a tag and a commit that no ref names, as any web server does; yield its
    address.
    """
    repository = batch.repository(files={"a.txt": "one\n"})
    for text in ("two", "three"):
        (repository / "a.txt").write_text(f"{text}\n")
        batch.git(repository, "commit", "-qam", text)
    batch.git(repository, "tag", "-a", "-m", "tagged", "v2", "HEAD^")
    batch.git(batch.root, "clone", "-q", "--bare", str(repository), "served.git")
    batch.git(batch.root / "served.git", "update-server-info")
    handler = partial(QuietHandler, directory=str(batch.root))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/served.git"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


async def test_a_repository_is_reached_by_its_address(batch: BatchWorld, address: str) -> None:
    first = batch.git(batch.root / "repo", "rev-parse", "HEAD^^")
    refs = {"head": None, "branch": "main", "tag": "v2", "commit": first}
    batch.author = writes("cat a.txt; echo more >> a.txt")
    batch.write(*({"id": id, "repo": address, **({"ref": ref} if ref else {})} for id, ref in refs.items()))
    done = await batch.run()
    assert done.status == 0, done.stderr
    removed = {id: (done.out / line["patch"]).read_text() for id, line in done.results.items()}
    for id, text in {"head": "three", "branch": "three", "tag": "two", "commit": "one"}.items():
        assert f" {text}\n+more\n" in removed[id]
    assert batch.left_over() == []


async def test_an_address_without_a_repository_or_a_ref_is_told_before_anything_runs(
    batch: BatchWorld, address: str
) -> None:
    batch.write(
        {"id": "a", "repo": address, "ref": "gone"},
        {"id": "b", "repo": address.replace("served", "missing")},
        {"id": "c", "repo": address, "ref": "abc123"},
    )
    done = await batch.run()
    assert (done.status, batch.requests, done.out.exists()) == (2, [], False)
    said = done.stderr.splitlines()
    assert f":1: `ref` gone is no branch, tag or whole commit id of {address}" in said[0]
    assert ":2: `repo` " in said[1]
    assert "cannot be read as a git repository" in said[1]
    assert ":3: `ref` abc123 is no branch, tag or whole commit id" in said[2]


async def test_two_tasks_of_one_repository_and_ref_have_folders_of_their_own(batch: BatchWorld) -> None:
    repository = batch.repository()
    batch.author = writes("echo mine >> a.txt; cat a.txt")
    ids = ["plain", "with space", "../up", "x" * 300, "Größe/ß"]
    batch.write(*({"id": id, "repo": str(repository)} for id in ids))
    done = await batch.run()
    assert done.status == 0, done.stderr
    assert done.results.keys() == set(ids)
    patches = {line["patch"] for line in done.lines}
    assert len(patches) == len(ids)
    for patch in patches:
        assert (done.out / patch).read_text().count("+mine") == 1
        assert (done.out / patch).parent == done.out / "patches"


async def test_a_copy_has_what_lies_in_the_folder_and_the_patch_begins_there(batch: BatchWorld) -> None:
    repository = batch.repository(files={"a.txt": "one\n", ".gitignore": "built\n"})
    (repository / "a.txt").write_text("uncommitted\n")
    (repository / "built").write_text("by hand\n")
    batch.author = writes("cat built; echo more >> a.txt")
    batch.write({"id": "a", "repo": str(repository)})
    done = await batch.run("--checkout", "copy")
    assert done.status == 0, done.stderr
    assert "by hand" in str(batch.requests[-1].outputs())
    patch = (done.out / "patches" / "a.diff").read_text()
    assert " uncommitted\n+more\n" in patch
    assert (repository / "a.txt").read_text() == "uncommitted\n"


async def test_tasks_of_one_folder_run_in_place_and_one_after_another(batch: BatchWorld) -> None:
    folder = batch.root / "place"
    folder.mkdir()
    batch.author = writes("test ! -e lock && touch lock && sleep 0.05 && rm lock && echo free")
    batch.write(*({"id": f"t{n}", "cwd": str(folder)} for n in range(4)))
    done = await batch.run()
    assert done.status == 0, done.stderr
    outputs = [str(request.outputs()) for request in batch.requests if request.outputs()]
    assert len(outputs) == 4
    assert all("free" in output for output in outputs)


async def test_setup_and_check_run_around_the_turn(batch: BatchWorld) -> None:
    repository = batch.repository()
    batch.author = writes("cat made; echo fixed > fixed")
    setup, check = ["sh", "-c", "echo ready > made"], ["sh", "-c", "test -e fixed"]
    place = {"repo": str(repository)}
    batch.write(
        {"id": "good", **place, "setup": setup, "check": check},
        {"id": "bad-check", **place, "check": ["sh", "-c", "echo why >&2; exit 3"]},
        {"id": "bad-setup", **place, "setup": ["sh", "-c", "echo broken >&2; exit 4"]},
        {"id": "no-program", **place, "setup": ["no-such-program"]},
    )
    done = await batch.run()
    assert done.status == 1
    results = done.results
    assert (results["good"]["status"], results["good"]["check"]["exitCode"]) == ("completed", 0)
    assert (results["bad-check"]["status"], results["bad-check"]["check"]["exitCode"]) == ("checkFailed", 3)
    assert results["bad-check"]["error"]["message"] == "check ended with exit code 3: why"
    assert (results["bad-setup"]["status"], results["bad-setup"]["attempts"]) == ("failed", 0)
    assert results["bad-setup"]["error"]["message"] == "setup ended with exit code 4: broken"
    assert results["no-program"]["status"] == "failed"
    asked = {text for request in batch.requests for text in request.texts()}
    assert not any("bad-setup" in text for text in asked), "no model is asked"


async def test_structured_output(batch: BatchWorld) -> None:
    schema = batch.root / "schema.json"
    schema.write_text(
        json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    )

    def author(request: ModelRequest) -> Reply:
        return reply(says('{"n": 3}' if "good" in request.texts()[-1] else '{"n": "three"}'))

    batch.author = author
    batch.write({"id": "good"}, {"id": "other"})
    done = await batch.run("--output-schema", str(schema))
    assert done.status == 1
    assert done.results["good"]["output"] == {"n": 3}
    assert (done.results["other"]["status"], done.results["other"]["output"]) == ("failed", None)
    assert "does not match the schema at $.n" in done.results["other"]["error"]["message"]
    assert batch.requests[0].body["text"]["format"]["type"] == "json_schema"


async def test_settings_of_a_task_go_over_those_of_the_batch(batch: BatchWorld) -> None:
    batch.write(
        {"id": "a", "settings": {"model": "special", "developerInstructions": "Be brief."}}, {"id": "b"}
    )
    done = await batch.run("-m", "usual", jobs=1)
    assert done.status == 0, done.stderr
    assert [request.body["model"] for request in batch.requests] == ["special", "usual"]
    assert "Be brief." in json.dumps(batch.requests[0].body)


async def test_what_would_need_an_approval_is_declined_counted_and_named(batch: BatchWorld) -> None:
    batch.author = writes("touch made")
    batch.write({"id": "a"}, {"id": "b", "settings": {"approvalPolicy": "never"}})
    done = await batch.run("-c", "approval_policy=untrusted", config={"sandbox_mode": "workspace-write"})
    assert done.status == 0, done.stderr
    assert done.results["a"]["declined"] == 1
    [request] = done.results["a"]["declinedRequests"]
    assert request.startswith("command: ")
    assert "touch made" in request
    assert done.results["b"].keys() == FIELDS


async def test_nobody_is_asked_whatever_the_settings_of_the_user_say(batch: BatchWorld) -> None:
    batch.author = writes("touch made")
    batch.write({"id": "a"})
    done = await batch.run(config={"sandbox_mode": "workspace-write", "approval_policy": "untrusted"})
    assert (done.status, done.results["a"]["declined"]) == (0, 0), done.stderr


async def test_a_time_limit_ends_the_task_and_keeps_its_patch(batch: BatchWorld) -> None:
    repository = batch.repository()
    batch.author = writes("echo begun >> a.txt; sleep 1000")
    batch.write({"id": "a", "repo": str(repository), "budget": {"seconds": 1}})
    with anyio.fail_after(60):
        done = await batch.run()
    assert done.status == 1
    line = done.results["a"]
    assert line["status"] == "timedOut"
    assert line["error"]["message"] == "it took more than 1 seconds"
    assert "+begun" in (done.out / line["patch"]).read_text()


@pytest.mark.parametrize(
    ("budget", "requests", "said"),
    [
        ({"requests": 2}, 2, "the task's budget of 2 requests is used up"),
        ({"tokens": 20}, 2, "the task's budget of 20 tokens is used up"),
    ],
)
async def test_a_budget_of_a_task_interrupts_its_turn(
    batch: BatchWorld, budget: Json, requests: int, said: str
) -> None:
    repository = batch.repository()
    batch.author = lambda request: reply(script("echo x >> a.txt", call_id=f"c{len(batch.requests)}"))
    batch.write({"id": "a", "repo": str(repository), "budget": budget})
    done = await batch.run()
    line = done.results["a"]
    assert (done.status, line["status"], line["error"]["message"]) == (1, "overBudget", said)
    assert len(batch.requests) == line["usage"]["requests"] == requests
    assert "+x" in (done.out / line["patch"]).read_text()


async def test_kept_folders_and_events(batch: BatchWorld) -> None:
    repository = batch.repository()
    batch.author = writes("echo x >> a.txt")
    batch.write(
        {"id": "a", "repo": str(repository)}, {"id": "b", "repo": str(repository), "check": ["false"]}
    )
    async with batch.serving():
        done = await batch.command("--keep", "failed")
        assert [path.name for path in (done.out / "checkouts").iterdir()] == ["b"]
        assert batch.git(done.out / "checkouts" / "b", "diff", "--stat")
        await batch.command("retry", str(done.out), "--id", "a", "--keep", "all")
    assert (done.out / "checkouts" / "a" / "a.txt").read_text() == "one\nx\n"
    methods = [
        json.loads(line)["method"] for line in (done.out / "events" / "a.jsonl").read_text().splitlines()
    ]
    assert (methods[0], methods[-1]) == ("thread/started", "turn/completed")


async def test_a_folder_is_kept_on_another_disk(batch: BatchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Ray, folders of tasks are temporary ones of a node, and the batch's folder may be elsewhere."""
    rename = os.rename

    def of_one_disk(old: str | Path, new: str | Path) -> None:
        if "checkouts" in Path(new).parts:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(old, new)

    repository = batch.repository()
    batch.author = writes("echo x >> a.txt; ln -s nowhere link")
    batch.write({"id": "a", "repo": str(repository)}, {"id": "b"})
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", of_one_disk)
        done = await batch.run("--keep", "all")
    assert done.status == 0, done.stderr
    kept = done.out / "checkouts" / "a"
    assert (kept / "a.txt").read_text() == "one\nx\n"
    assert (kept / "link").is_symlink()
    assert "+x" in batch.git(kept, "diff"), "git finds it there"
    assert not list((done.out / ".work").glob("worker-*"))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux: the sandbox puts empty folders in a root there")
async def test_commands_in_the_sandbox_write_in_their_checkout_alone(batch: BatchWorld) -> None:
    repository = batch.repository()
    outside = batch.root / "outside"
    tries = f"echo x >> a.txt; touch {outside} {batch.out}/results.jsonl /tmp/{batch.root.name}-shared; git status"
    batch.author = writes(tries)
    tasks = [{"id": f"t{n}", "repo": str(repository), "setup": ["touch", "made"]} for n in range(6)]
    batch.write(*tasks)
    done = await batch.run(config={"sandbox_mode": "workspace-write"})
    assert done.status == 0, done.stderr
    assert {line["files"] for line in done.lines} == {2}
    assert not outside.exists()
    assert not Path(f"/tmp/{batch.root.name}-shared").exists()
    assert batch.left_over() == []
