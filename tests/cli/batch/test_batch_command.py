"""`app-server batch` as users and scripts see it: refusals before anything runs, exit statuses, continuing, retries,
shards, status.
"""

import errno
import json
import os
import subprocess
from pathlib import Path

import anyio
import pytest

from app_server.cli.batch import out_folder
from app_server.cli.batch.batch_command import run_batch
from app_server.cli.batch.out_folder import OutFolder
from app_server.cli.parse_command import parse
from app_server_protocol.encoding import Json
from tests.support.batches import Author, BatchWorld, agrees, writes
from tests.support.program import SCRIPT
from tests.support.scripted_model import ModelRequest, Reply, failure, reply, says, script

pytestmark = [pytest.mark.scenario, pytest.mark.anyio]


def fails_for(*ids: str) -> Author:
    """Return a model that refuses the requests of these tasks."""

    def author(request: ModelRequest) -> Reply:
        text = request.texts()[-1]
        bad = failure(400, {"error": {"message": "no"}})
        return bad if any(f"Do {id}." in text for id in ids) else reply(says("done"))

    return author


async def test_every_bad_line_is_told_and_nothing_is_made(batch: BatchWorld) -> None:
    clean, dirty = batch.repository("clean"), batch.repository("dirty")
    (dirty / "new.txt").write_text("not committed")
    batch.write(
        {"id": "good", "repo": str(clean)},
        "not json",
        {"id": "good"},
        {"id": "c", "color": "red"},
        {"id": "d", "repo": str(batch.root / "nowhere")},
        {"id": "e", "repo": str(clean), "ref": "no-such-branch"},
        {"id": "f", "repo": str(clean), "ref": "--all"},
        {"id": "g", "repo": str(dirty)},
        {"id": "h", "cwd": str(batch.root / "nowhere")},
        {"id": "i", "repo": str(dirty), "ref": "main"},
        {"id": "j", "repo": str(batch.root / "workspace")},
    )
    done = await batch.run()
    assert (done.status, done.stdout, batch.requests) == (2, "", [])
    assert not done.out.exists()
    said = [line.removeprefix(str(batch.root / "tasks.jsonl")) for line in done.stderr.splitlines()]
    assert [line.split(":")[1] for line in said] == ["2", "3", "4", "5", "6", "7", "8", "9", "11"]
    for line, words in zip(
        said,
        (
            "it is not JSON",
            "that of line 1",
            "unknown field `color`",
            "is no git repository",
            "`ref` no-such-branch is no commit of",
            "`ref` --all is no commit of",
            "changes that a checkout of HEAD would not hold: commit them, or name a `ref`",
            "is no folder",
            "is no git repository",
        ),
        strict=True,
    ):
        assert words in line


async def test_a_dry_run_checks_and_counts_and_writes_nothing(batch: BatchWorld) -> None:
    repository = batch.repository()
    batch.write({"id": "a", "repo": str(repository)}, {"id": "b"})
    done = await batch.run("--dry-run")
    assert (done.status, done.stdout) == (0, "2 tasks, 2 of them to run, 1 checkouts\n")
    assert (batch.requests, done.out.exists()) == ([], False)
    batch.write({"id": "a", "repo": str(repository), "ref": "gone"})
    done = await batch.run("--dry-run")
    assert (done.status, done.stdout) == (2, "")
    assert ":1: `ref` gone is no commit" in done.stderr


async def test_what_has_a_result_is_not_asked_again(batch: BatchWorld) -> None:
    batch.author = fails_for("b")
    batch.write({"id": "a"}, {"id": "b"}, {"id": "c"})
    done = await batch.run()
    assert (done.status, len(batch.requests)) == (1, 3)
    assert done.results["b"]["status"] == "failed"
    assert "400" in done.results["b"]["error"]["message"]
    again = await batch.run()
    assert (again.status, len(batch.requests), again.lines) == (1, 3, done.lines)


async def test_half_a_line_at_the_end_is_done_again(batch: BatchWorld) -> None:
    batch.write({"id": "a"}, {"id": "b"})
    done = await batch.run(jobs=1)
    path = done.out / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    again = await batch.run()
    assert again.status == 0
    assert again.results.keys() == {"a", "b"}
    assert len(batch.requests) == 3


@pytest.mark.parametrize(
    ("options", "tasks", "said"),
    [
        (("-m", "another"), [{"id": "a"}], "other settings"),
        (("--checkout", "copy"), [{"id": "a"}], "other settings"),
        (("--shard", "1/2"), [{"id": "a"}], "another shard"),
        ((), [{"id": "a"}, {"id": "b"}], "other tasks"),
    ],
)
async def test_another_batch_in_the_same_folder_is_refused_unless_that_is_allowed(
    batch: BatchWorld, options: tuple[str, ...], tasks: list[Json], said: str
) -> None:
    batch.write({"id": "a"})
    await batch.run()
    batch.write(*tasks)
    done = await batch.run(*options)
    assert done.status == 2
    assert said in done.stderr
    assert (await batch.run(*options, "--allow-changed")).status == 0
    assert (await batch.run("--jobs", "1", "--retries", "5", "--max-tokens", "100000", *options)).status == 0


async def test_a_folder_of_something_else_is_refused(batch: BatchWorld) -> None:
    batch.write({"id": "a"})
    batch.out.mkdir()
    (batch.out / "thesis.txt").write_text("mine")
    done = await batch.run()
    assert done.status == 2
    assert "has files in it, and is of no batch" in done.stderr
    assert [path.name for path in batch.out.iterdir()] == ["thesis.txt"]


async def test_a_second_batch_is_refused_while_the_first_one_runs_and_only_then(
    batch: BatchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(out_folder, "LOCKED_WITHIN", 0.0)
    batch.write({"id": "a"})
    with OutFolder(batch.out, batch.home):
        done = await batch.run()
        assert done.status == 2
        assert "is in use" in done.stderr
    assert (await batch.run()).status == 0


async def test_a_retry_runs_what_failed_and_keeps_the_old_lines(batch: BatchWorld) -> None:
    batch.author = fails_for("b")
    batch.write({"id": "a"}, {"id": "b", "budget": {"requests": 5}})
    await batch.run()
    batch.author = fails_for()
    async with batch.serving():
        done = await batch.command("retry", str(batch.out))
    assert done.status == 0, done.stderr
    assert (done.results["b"]["status"], done.results["b"]["attempts"]) == ("completed", 2)
    assert done.results["a"]["attempts"] == 1
    old = [json.loads(line) for line in (batch.out / "retried.jsonl").read_text().splitlines()]
    assert [(line["id"], line["status"]) for line in old] == [("b", "failed")]


async def test_a_retry_leaves_out_a_damaged_line(batch: BatchWorld) -> None:
    batch.author = fails_for("b")
    batch.write({"id": "a"}, {"id": "b"})
    done = await batch.run()
    path = done.out / "results.jsonl"
    path.write_bytes(b'{"id": "b"\n' + path.read_bytes())
    batch.author = fails_for()
    async with batch.serving():
        again = await batch.command("retry", str(batch.out))
    assert again.status == 0, again.stderr
    assert {line["status"] for line in again.results.values()} == {"completed"}


async def test_a_retry_of_certain_tasks_or_statuses(batch: BatchWorld) -> None:
    batch.author = fails_for("c")
    batch.write({"id": "a"}, {"id": "b"}, {"id": "c"})
    async with batch.serving():
        await batch.command()
        asked = len(batch.requests)
        await batch.command("retry", str(batch.out), "--id", "a")
        assert len(batch.requests) == asked + 1
        await batch.command("retry", str(batch.out), "--status", "completed")
        assert len(batch.requests) == asked + 3
        for options, said in (
            (("--id", "x"), "the task 'x' has no result"),
            (("--status", "bad"), "got 'bad'"),
        ):
            refused = await batch.command("retry", str(batch.out), *options)
            assert refused.status == 2
            assert said in refused.stderr


async def test_a_secret_setting_is_not_stored_and_a_retry_wants_it_again(batch: BatchWorld) -> None:
    secret = "s3cr3t-s3cr3t-s3cr3t"
    setting = f'model_providers.scripted.experimental_bearer_token="{secret}"'
    batch.author = fails_for("a")
    batch.write({"id": "a"})
    async with batch.serving():
        done = await batch.command("-c", setting)
        assert secret.encode() not in done.files()
        refused = await batch.command("retry", str(batch.out))
        assert refused.status == 2
        assert "give -c model_providers.scripted.experimental_bearer_token=… again" in refused.stderr
        batch.author = fails_for()
        again = await batch.command("retry", str(batch.out), "-c", setting)
    assert again.status == 0
    assert secret.encode() not in again.files()


def full_disk(*arguments: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_shards_are_merged(batch: BatchWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = batch.repository()
    batch.author = writes("echo x >> a.txt")
    batch.write(*({"id": f"t{n}", "repo": str(repository)} for n in range(5)))
    async with batch.serving():
        for shard in ("1/2", "2/2"):
            done = await batch.command("-o", str(batch.root / shard[0]), "--shard", shard)
            assert done.status == 0, done.stderr
        first = [
            json.loads(line)["id"] for line in (batch.root / "1" / "results.jsonl").read_text().splitlines()
        ]
        assert sorted(first) == ["t0", "t2", "t4"]
        with monkeypatch.context() as patch:
            patch.setattr(OutFolder, "_write", full_disk)
            done = await batch.command("merge", str(batch.root / "3"), str(batch.root / "1"))
        assert (done.status, done.stderr.count("\n")) == (4, 1)
        assert "cannot be used any more: [Errno 28] No space left on device" in done.stderr
        for _ in range(2):  # the second merge changes nothing
            done = await batch.command("merge", str(batch.out), str(batch.root / "1"), str(batch.root / "2"))
            assert done.status == 0, done.stderr
            assert done.results.keys() == {f"t{n}" for n in range(5)}
            journal = (batch.out / "attempts.jsonl").read_text()
            assert (journal.count("\n"), journal.count('"usage"')) == (15, 10)
        asked = len(batch.requests)
        assert (await batch.command()).status == 0, "the whole batch is done"
        assert len(batch.requests) == asked
    assert len(list((batch.out / "patches").iterdir())) == 5
    [home] = (batch.out / "homes").iterdir()
    assert len(list(home.glob("sessions/**/*.jsonl"))) == 5


async def test_the_status_of_a_batch(batch: BatchWorld) -> None:
    batch.author = fails_for("b")
    batch.write({"id": "a"}, {"id": "b"}, {"id": "c"})
    await batch.run(jobs=1)
    done = await batch.command("status", str(batch.out), "--json")
    found = json.loads(done.stdout)
    assert (found["tasks"], found["left"], found["running"]) == (3, 0, 0)
    assert found["statuses"] == {"completed": 2, "failed": 1}
    assert (found["usage"]["inputTokens"], found["usage"]["requests"]) == (20, 3)
    assert len(found["slowest"]) == 3
    assert list(found["reasons"].values()) == [1]
    done = await batch.command("status", str(batch.out))
    assert done.stdout.startswith("3 tasks, 0 left, 0 running; done: 2 completed, 1 failed\n")
    with OutFolder(batch.out, batch.home) as out:
        out.show_running(2)
        done = await batch.command("status", str(batch.out), "--json")
        assert json.loads(done.stdout)["running"] == 2
    refused = await batch.command("status", str(batch.root / "home"))
    assert refused.status == 2


async def test_the_status_has_what_was_spent_on_tasks_without_a_result(batch: BatchWorld) -> None:
    (batch.home / "prices.json").write_text(json.dumps({"scripted": {"input": 1.0, "output": 1.0}}))
    no_more = failure(401, {"error": {"message": "no"}})
    batch.author = lambda request: no_more if request.outputs() else reply(script("true"))
    batch.write({"id": "a"})
    assert (await batch.run()).status == 4
    found = json.loads((await batch.command("status", str(batch.out), "--json")).stdout)
    assert (found["left"], found["usage"]["inputTokens"], found["usage"]["requests"]) == (1, 10, 2)
    assert found["usage"]["cost"] == pytest.approx(15 / 1e6)
    batch.author = agrees
    assert (await batch.run()).status == 0
    found = json.loads((await batch.command("status", str(batch.out), "--json")).stdout)
    assert (found["left"], found["usage"]["inputTokens"], found["usage"]["requests"]) == (0, 20, 3)
    assert found["usage"]["cost"] == pytest.approx(30 / 1e6)


async def test_events_as_lines_of_json(batch: BatchWorld) -> None:
    batch.write({"id": "a"})
    done = await batch.run("--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["method"] for event in events] == ["taskEnded", "notice"]
    assert events[0]["params"]["id"] == "a"
    assert "all 1 tasks completed" in events[1]["params"]["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("batch",),
        ("batch", "tasks.jsonl"),
        ("batch", "tasks.jsonl", "-o", "out", "--jobs", "0"),
        ("batch", "tasks.jsonl", "-o", "out", "--task-timeout", "soon"),
        ("batch", "tasks.jsonl", "-o", "out", "--shard", "3/2"),
        ("batch", "tasks.jsonl", "-o", "out", "--max-cost", "5"),
        ("batch", "tasks.jsonl", "-o", "out", "--max-cost", "5", "--prices", "missing.json"),
        ("batch", "missing.jsonl", "-o", "out"),
        ("batch", "empty.jsonl", "-o", "out"),
        ("batch", "tasks.jsonl", "-o", "out", "-c", "nonsense"),
        ("batch", "tasks.jsonl", "-o", "out", "-c", 'sandbox_mode="nonsense"'),
        ("batch", "tasks.jsonl", "-o", "out", "--output-schema", "tasks.jsonl"),
        ("batch", "status", "missing"),
        ("batch", "merge", "out"),
        ("batch", "retry", "missing"),
    ],
)
def test_a_wrong_command_line_is_2_and_says_what_was_expected(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "prompt": "x"}\n{"id": "b", "prompt": "x"}')
    (tmp_path / "empty.jsonl").write_text("\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "home"))
    try:
        status = run_batch(parse(words))
    except SystemExit as left:
        status = int(left.code or 0)
    assert status == 2
    assert capsys.readouterr().err.strip()
    assert not (tmp_path / "out").exists()


@pytest.mark.process
async def test_a_thread_of_a_batch_is_opened_by_its_id(batch: BatchWorld) -> None:
    batch.write({"id": "a"})
    async with batch.serving():
        done = await batch.command()
        thread = done.results["a"]["threadId"]
        command = (SCRIPT, "exec", "--resume", thread, "And now?")
        again = await anyio.run_process(command, env=batch.environment, cwd=batch.root, check=False)
    assert again.returncode == 0, again.stderr
    assert batch.requests[-1].texts("assistant") == ["done"]


def test_tasks_come_from_stdin(tmp_path: Path) -> None:
    environment = {**os.environ, "CODEX_HOME": str(tmp_path / "home")}
    command = (SCRIPT, "batch", "-", "-o", str(tmp_path / "out"), "--dry-run")
    raw = b'{"id": "a", "prompt": "x"}\nnonsense\n'
    done = subprocess.run(command, env=environment, input=raw, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode().split(":")[:2]) == (2, ["stdin", "2"])


async def test_hooks_that_do_not_run_are_told_once_for_all_tasks(batch: BatchWorld) -> None:
    batch.home.mkdir(parents=True, exist_ok=True)
    handler = {"type": "command", "command": "guard"}
    (batch.home / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [handler]}]}}))
    batch.write({"id": "a", "prompt": "Do a."}, {"id": "b", "prompt": "Do b."})
    done = await batch.run()
    assert done.status == 0
    assert done.stderr.count("1 hook does not run (you have not agreed to it yet)") == 1
