"""`app-server exec --json`: events in the format of `codex exec --json`, as the SDKs of codex read them; and the
commands that resume a thread, fork one or review.
"""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from app_server.cli import named_files
from app_server.client.command_line import InvalidCommandLine
from app_server.engine.support import schema_match
from app_server_protocol.encoding import Json
from tests.cli.exec.test_exec_command import Done, options_of, run
from tests.support.scripted_model import ScriptedModel, calls, failure, patches, reply, says, script

pytestmark = pytest.mark.scenario

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+new\n*** End Patch"


def events(done: Done) -> list[Json]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def kinds(done: Done) -> list[str]:
    return [" ".join(filter(None, (each["type"], each.get("item", {}).get("type")))) for each in events(done)]


def completed(done: Done) -> list[Json]:
    return [each["item"] for each in events(done) if each["type"] == "item.completed"]


async def begun(root: Path) -> str:
    """Return the id of a stored thread with one turn."""
    first = await run(root, "--json", "one", replies=(reply(says("first")),))
    id: str = events(first)[0]["thread_id"]
    return id


async def test_a_turn_is_told_in_the_events_of_codex(root: Path) -> None:
    plan = {"plan": [{"step": "look", "status": "completed"}, {"step": "write", "status": "pending"}]}
    replies = (
        reply(calls("update_plan", plan, "c1")),
        reply(script("echo out; exit 3", "c2")),
        reply(patches(PATCH, "c3")),
        reply(says("done")),
    )
    done = await run(root, "--json", "-s", "danger-full-access", "hi", replies=replies)
    assert (done.status, done.stderr) == (0, "")
    assert kinds(done) == [
        "thread.started",
        "turn.started",
        "item.started todo_list",
        "item.started command_execution",
        "item.completed command_execution",
        "item.started file_change",
        "item.completed file_change",
        "item.completed agent_message",
        "item.completed todo_list",
        "turn.completed",
    ]
    command, change, message, todo = completed(done)
    assert (command["aggregated_output"], command["exit_code"], command["status"]) == ("out\n", 3, "failed")
    assert change["changes"] == [{"path": str(root / "workspace" / "new.txt"), "kind": "add"}]
    assert message == {"id": "item_3", "type": "agent_message", "text": "done"}
    assert todo["items"] == [{"text": "look", "completed": True}, {"text": "write", "completed": False}]
    assert events(done)[-1]["usage"] == {
        "input_tokens": 40,
        "cached_input_tokens": 0,
        "cache_write_input_tokens": 0,
        "output_tokens": 20,
        "reasoning_output_tokens": 0,
    }


async def test_a_failed_turn_ends_in_turn_failed(root: Path) -> None:
    broken = failure(400, {"error": {"message": "out of order"}})
    done = await run(root, "--json", "hi", replies=(broken,))
    assert (done.status, kinds(done)[-2:]) == (1, ["error", "turn.failed"])
    assert "out of order" in events(done)[-1]["error"]["message"]


async def test_a_limit_fails_the_turn_and_says_which(root: Path) -> None:
    replies = tuple(reply(script("true", f"c{n}")) for n in range(3))
    done = await run(root, "--json", "--max-turns", "2", "hi", replies=replies)
    assert (done.status, kinds(done)[-1]) == (3, "turn.failed")
    assert "--max-turns" in events(done)[-1]["error"]["message"]


async def test_warnings_are_items_after_the_start_of_the_thread(root: Path) -> None:
    done = await run(root, "--json", "hi", replies=(reply(says("done")),), config={"no_such_setting": 1})
    assert kinds(done)[:2] == ["thread.started", "item.completed error"]
    assert "no_such_setting" in completed(done)[0]["message"]
    assert kinds(done)[-1] == "turn.completed"


async def test_an_sdk_judges_the_final_message_itself(root: Path) -> None:
    schema = root / "schema.json"
    schema.write_text('{"type": "object", "required": ["a"]}')
    options = ("--output-schema", str(schema), "--skip-git-repo-check", "hi")
    done = await run(root, "--experimental-json", *options, replies=(reply(says("{}")),))
    assert (done.status, kinds(done)[-2:]) == (0, ["item.completed error", "turn.completed"])
    assert "does not match the schema" in completed(done)[-1]["message"]
    done = await run(root, "--json", "--output-schema", str(schema), "hi", replies=(reply(says("{}")),))
    assert (done.status, kinds(done)[-1]) == (1, "turn.failed")


def test_an_sdk_works_in_a_git_repository_only_unless_it_says_otherwise(root: Path) -> None:
    with pytest.raises(InvalidCommandLine, match=r"is in no git repository"):
        options_of(root, "--experimental-json", "hi")
    assert options_of(root, "--json", "hi").prompt == ("hi",)
    for option in ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"):
        assert options_of(root, "--experimental-json", option, "hi").prompt == ("hi",)
    (root / "workspace" / ".git").mkdir()
    (root / "workspace" / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert options_of(root, "--experimental-json", "hi").prompt == ("hi",)


async def test_the_usage_of_a_turn_counts_the_requests_of_that_turn(root: Path) -> None:
    first = await run(root, "--json", "one", replies=(reply(says("first")),))
    thread = events(first)[0]["thread_id"]
    headers = (("x-codex-primary-used-percent", "1.0"),)  # limits come before the answer
    again = replace(reply(says("second")), headers=headers)
    for words in (["resume", thread], ["fork", thread]):
        done = await run(root, "--json", *words, "two", replies=(again,))
        assert events(done)[-1]["usage"] == events(first)[-1]["usage"]


async def test_resume_and_fork_are_commands_behind_any_options(root: Path) -> None:
    thread = await begun(root)
    model = ScriptedModel([reply(says("second")), reply(says("third")), reply(says("fourth"))])
    done = await run(root, "--json", "resume", thread, "two", replies=model)
    assert (done.status, events(done)[0]["thread_id"]) == (0, thread)
    assert (await run(root, "resume", "--last", "three", replies=model)).stdout == "third\n"
    copy = await run(root, "--json", "fork", thread, stdin="four", replies=model)
    assert (copy.status, events(copy)[0]["thread_id"] != thread) == (0, True)
    assert [request.texts()[-1] for request in model.requests] == ["two", "three", "four"]
    assert all("one" in request.texts() for request in model.requests)


async def test_a_thread_is_copied_without_a_word(root: Path) -> None:
    thread = await begun(root)
    done = await run(root, "fork", thread, replies=())
    assert done.status == 0
    again = await run(root, "resume", done.stdout.strip(), "two", replies=(reply(says("second")),))
    assert (done.stdout.strip() != thread, again.stdout) == (True, "second\n")


async def test_a_review_is_a_command(root: Path) -> None:
    model = ScriptedModel([reply(says("all is well")), reply(says("so is this"))])
    done = await run(root, "review", "--uncommitted", replies=model)
    assert (done.status, done.stdout) == (0, "all is well\n"), done.stderr
    done = await run(root, "--json", "review", "look", "at", "names", replies=model)
    assert (done.status, completed(done)[-1]["text"]) == (0, "so is this")
    assert "look at names" in model.requests[1].texts()[-1]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["resume"], "expected the id of a thread, or --last"),
        (["resume", "the", "work"], "expected the id of a thread, or --last, got 'the'"),
        (["fork", "x"], "got 'x'"),
        (["review"], "expected --uncommitted"),
        (["review", "--base", "main", "words"], "and not both"),
        (["review", "--uncommitted", "--title", "t"], "--title"),
        (["--json", "--notifications", "hi"], "--notifications"),
    ],
)
def test_a_command_that_lacks_something_says_what_was_expected(
    root: Path, arguments: list[str], problem: str
) -> None:
    with pytest.raises(InvalidCommandLine, match=problem):
        options_of(root, *arguments)


def test_words_in_quotes_and_behind_dashes_are_a_prompt(root: Path) -> None:
    assert options_of(root, "review this change").prompt == ("review this change",)
    assert options_of(root, "--", "resume", "the", "work").prompt == ("resume the work",)


async def test_a_pattern_that_backtracks_without_end_ends_in_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_match, "MOST_SECONDS", 1)
    schema = root / "schema.json"
    schema.write_text('{"type": "string", "pattern": "^(a+)+$"}')
    message = json.dumps("a" * 40 + "!")
    done = await run(root, "--output-schema", str(schema), "hi", replies=(reply(says(message)),))
    assert (done.status, done.stdout) == (1, f"{message}\n")
    assert "a pattern may backtrack without end" in done.stderr


async def test_other_work_goes_on_while_a_message_is_held_against_its_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_match, "MOST_SECONDS", 1)
    found: list[str | None] = []

    async def slow() -> None:
        found.append(await schema_match.schema_mismatch({"pattern": "^(a+)+$"}, json.dumps("a" * 40 + "!")))

    async with anyio.create_task_group() as group:
        group.start_soon(slow)
        found.append(await schema_match.schema_mismatch({"type": "string"}, '"b"'))
    assert found[0] is None
    assert found[1] is not None


def test_a_pipe_without_a_writer_is_no_schema(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_files, "READ_WITHIN", 0.1)
    os.mkfifo(root / "pipe")
    with pytest.raises(InvalidCommandLine, match=r"nothing came through the pipe"):
        options_of(root, "--output-schema", str(root / "pipe"), "hi")


def test_a_schema_may_come_through_a_pipe_of_the_shell(root: Path) -> None:
    writer = subprocess.Popen(["echo", '{"type": "object"}'], stdout=subprocess.PIPE)
    with writer:
        assert writer.stdout is not None
        path = f"/dev/fd/{writer.stdout.fileno()}"
        schema = options_of(root, "--output-schema", path, "hi").output_schema
    assert schema is not None
    assert schema.schema == {"type": "object"}
