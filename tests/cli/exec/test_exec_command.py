"""`app-server exec`: its output and its exit status, as scripts see them."""

import io
import json
import os
import re
import signal
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import anyio
import pytest

from app_server.cli.exec.exec_options import ExecOptions, exec_options
from app_server.cli.exec.exec_report import TextReport
from app_server.cli.exec.exec_run import report_of, reported_status
from app_server.cli.parse_command import parse
from app_server.client import AppServer
from app_server.client.command_line import InvalidCommandLine
from app_server.client.turn_handle import TurnResult
from app_server_protocol.encoding import Json
from app_server_protocol.v2.items import AgentMessageThreadItem
from app_server_protocol.v2.turn import TurnStatus
from tests.engine.mcp.test_scenario_mcp import table as mcp_table
from tests.support.library import connector_to, serving_model
from tests.support.program import SCRIPT
from tests.support.scripted_model import Reply, ScriptedModel, calls, failure, reply, says, script
from tests.support.world import WHOLE_SCENARIO, user_environment

pytestmark = pytest.mark.scenario


@dataclass(slots=True)
class Done:
    status: int
    stdout: str
    stderr: str


def options_of(root: Path, *arguments: str, stdin: str = "") -> ExecOptions:
    """Return the options of a command line; its folder is `workspace` if it names none."""
    piped = root / "stdin"
    piped.write_bytes(os.fsencode(stdin))
    args = parse(["exec", "--cd", str(root / "workspace"), *arguments])
    with piped.open() as opened:
        return exec_options(args, opened, io.StringIO())


async def run(
    root: Path,
    *arguments: str,
    replies: tuple[Reply, ...] | ScriptedModel,
    stdin: str = "",
    config: Mapping[str, Json] = MappingProxyType({}),
    tables: str = "",
) -> Done:
    """Run the command with its server in this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    options = options_of(root, *arguments, stdin=stdin)
    report = report_of(options, stdout, stderr)
    model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(list(replies))
    with anyio.fail_after(WHOLE_SCENARIO):
        async with serving_model(model, root, config, tables) as environment:
            status = await reported_status(options, report, stderr, environment)
    return Done(status, stdout.getvalue(), stderr.getvalue())


@pytest.mark.process
def test_the_final_message_alone_is_on_stdout(tmp_path: Path) -> None:
    environment = user_environment(tmp_path)
    command = (SCRIPT, "exec", "--demo", "please", "check", "-o", "last.txt")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    message = "That did not work. Say `repair`, and I propose a patch."
    assert (done.returncode, done.stdout) == (0, f"{message}\n"), done.stderr
    assert re.search(r"\$ sh check.sh -> exit 1 in \d+ ms\n  failed: expected", done.stderr)
    assert (tmp_path / "last.txt").read_text() == message


@pytest.mark.process
async def test_what_the_command_line_says_counts_as_configured(root: Path) -> None:
    model, fence = ScriptedModel([reply(says("one"))]), "[app_server]\nclient_rights = false\n"
    async with serving_model(model, root, {"approval_policy": "untrusted"}, fence) as environment:
        command = (SCRIPT, "exec", "-s", "danger-full-access", "hi")
        done = await anyio.run_process(command, env=environment, cwd=root / "workspace", check=False)
    assert (done.returncode, done.stdout) == (0, b"one\n"), done.stderr
    assert b"sandbox danger-full-access, approvals never" in done.stderr


@pytest.mark.process
def test_ctrl_c_interrupts_the_turn_and_is_its_exit_status(tmp_path: Path) -> None:
    environment = user_environment(tmp_path)
    command = (SCRIPT, "exec", "--demo", "--notifications", "think")
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["method"] == "item/agentMessage/delta":
                process.send_signal(signal.SIGINT)
                break
        process.stdout.read()
        assert process.wait() == 130
    assert list(tmp_path.glob("app-server-demo-*")) == []


async def test_notifications_are_lines_of_json_and_the_prompt_may_come_from_stdin(root: Path) -> None:
    done = await run(root, "--notifications", "-", stdin="say hello", replies=(reply(says("hello")),))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    methods = [line["method"] for line in lines]
    assert (done.status, done.stderr) == (0, "")
    assert methods[:2] == ["thread/started", "turn/started"]
    assert methods[-1] == "turn/completed"
    items = [line["params"]["item"]["type"] for line in lines if line["method"] == "item/completed"]
    assert items == ["userMessage", "agentMessage"]


async def test_a_failed_turn_is_a_failed_command(root: Path) -> None:
    done = await run(root, "hi", replies=(failure(400, {"error": {"message": "no such model"}}),))
    assert (done.status, done.stdout) == (1, "")
    assert "no such model" in done.stderr


async def test_what_does_not_match_the_schema_fails(root: Path) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    path = root / "schema.json"
    path.write_text(json.dumps(schema))
    options = ("--output-schema", str(path), "hi")
    assert (await run(root, *options, replies=(reply(says('{"ok": true}')),))).status == 0
    done = await run(root, *options, replies=(reply(says('{"ok": "yes"}')),))
    assert done.status == 1
    assert "does not match the schema at $.ok" in done.stderr


async def test_a_stored_thread_is_gone_on_with(root: Path) -> None:
    nothing = await run(root, "--resume-last", "first", replies=())
    assert (nothing.status, nothing.stdout) == (1, "")
    assert f"no stored thread of {root / 'workspace'}" in nothing.stderr
    await run(root, "first", replies=(reply(says("one")),))
    done = await run(root, "--resume-last", "second", replies=(reply(says("two")),))
    assert done.stdout == "two\n"
    assert len(list((root / "home").glob("sessions/**/rollout-*.jsonl"))) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--cd", "nowhere", "hi"], "is not a folder"),
        (["-i", "none.png", "hi"], "No such file"),
        (["--output-schema", "none.json", "hi"], "none.json"),
        (["-i", ".", "hi"], "is not a PNG"),
        (["--output-schema", "/dev/null", "hi"], "is not JSON"),
        (["--output-schema", "{wrong}", "hi"], r"is not a JSON Schema: \$\.type: 'text' is not valid"),
        (["-o", "nowhere/last.txt", "hi"], "No such file"),
        (["-o", "/dev/full", "hi"], "No space left"),
        (["-o", "/", "hi"], "Is a directory"),
        (["caf\udce9"], "the prompt is not UTF-8"),
        ([], "expected a prompt"),
        (["-"], "expected a prompt"),
    ],
)
def test_a_command_line_that_cannot_be_used_says_what_was_expected(
    root: Path, arguments: list[str], problem: str
) -> None:
    (root / "wrong").write_text('{"type": "text"}')
    with pytest.raises(InvalidCommandLine, match=problem):
        options_of(root, *(each.format(wrong=root / "wrong") for each in arguments))


def test_a_limit_that_is_no_number_is_told_before_the_turn(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_SERVER_MAX_REQUESTS", "many")
    with pytest.raises(InvalidCommandLine, match="APP_SERVER_MAX_REQUESTS expects a number of at least 1"):
        options_of(root, "hi")


def test_what_is_piped_is_added_to_the_words(root: Path) -> None:
    words, block = "What is this?", "\n\n<stdin>\none\ntwo\n</stdin>"
    for arguments, piped, expected in (
        ([words], "one\ntwo\n", words + block),
        (["-", words], "one\ntwo\n", words + block),
        (["-"], "one\ntwo\n", "one\ntwo\n"),
        ([], "one\ntwo\n", "one\ntwo\n"),
        (["two", "words"], "", "two words"),
        ([words], " \n", words),
    ):
        assert options_of(root, *arguments, stdin=piped).prompt == (expected,)
    with pytest.raises(InvalidCommandLine, match="stdin is not UTF-8 at byte 3"):
        options_of(root, words, stdin="caf\udce9")
    with (
        open("/dev/zero") as endless,
        pytest.raises(InvalidCommandLine, match="stdin has more than 4194304 bytes"),
    ):
        exec_options(parse(["exec", "--cd", str(root), words]), endless, io.StringIO())


async def test_a_stored_thread_gives_no_rights(root: Path) -> None:
    """Its sandbox was meant for a user who approves everything."""
    outside = root / "outside"
    model = ScriptedModel([reply(says("one")), reply(script(f"touch {outside}")), reply(says("two"))])
    async with (
        serving_model(model, root, {"sandbox_mode": "read-only"}) as environment,
        AppServer.connect(connector_to("in_process", root, environment)) as server,
    ):
        thread = await server.start_thread(
            cwd=root / "workspace", sandbox="danger-full-access", approval_policy="untrusted"
        )
        await thread.run("first")
    done = await run(
        root, "--resume", thread.id, "go on", replies=model, config={"sandbox_mode": "read-only"}
    )
    assert (done.stdout, outside.exists()) == ("two\n", False)
    assert done.stderr.splitlines()[0].endswith(", sandbox read-only, approvals never")


async def test_a_stored_thread_has_the_sandbox_of_the_command_line(root: Path) -> None:
    await run(root, "first", replies=(reply(says("one")),), config={"sandbox_mode": "read-only"})
    options = ("--resume-last", "-s", "workspace-write", "second")
    done = await run(root, *options, replies=(reply(says("two")),), config={"sandbox_mode": "read-only"})
    assert done.stderr.splitlines()[0].endswith(", sandbox workspace-write, approvals never")


MISSING_SERVER = '[mcp_servers.tea]\ncommand = "/nowhere/tea"\n'


@pytest.mark.parametrize("json_lines", [False, True])
async def test_warnings_are_shown(root: Path, json_lines: bool) -> None:
    options = ("--notifications",) if json_lines else ()
    config: Mapping[str, Json] = {"modle": "x"}
    done = await run(root, *options, "hi", replies=(reply(says("a")),), config=config, tables=MISSING_SERVER)
    if json_lines:
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert (
            "modle" in next(line for line in lines if line["method"] == "configWarning")["params"]["summary"]
        )
        failed = [line["params"]["status"] for line in lines if line["method"].startswith("mcpServer/")]
        assert failed == ["failed"]
    else:
        assert "warning: " in done.stderr
        assert "modle" in done.stderr
        assert "warning: the MCP server tea did not start: " in done.stderr
    assert done.status == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-s", "read-only"), "MCP tool call requires approval, but approval policy is never"),
        (("-a", "on-request"), "user rejected MCP tool call"),
        (("-c", 'mcp_servers.notes.tools.change.approval_mode="approve"'), None),
    ],
)
async def test_a_tool_that_may_change_things_is_not_called_unasked(
    root: Path, options: tuple[str, ...], reason: str | None
) -> None:
    replies = (reply(calls("mcp__notes__change", {"text": "hello"}, "m1")), reply(says("a")))
    done = await run(root, *options, "hi", replies=replies, tables=mcp_table("notes"))
    expected = f"notes.change: failed: {reason}" if reason else "notes.change: completed"
    assert expected in done.stderr
    assert done.status == 0


async def test_that_nothing_can_be_stored_is_shown(root: Path) -> None:
    (root / "home" / "sessions").write_text("in the way")
    done = await run(root, "hi", replies=(reply(says("a")),))
    assert "warning: This conversation cannot be stored at the moment" in done.stderr
    assert (done.status, done.stdout) == (0, "a\n")


async def test_a_link_in_the_place_of_the_message_file_is_replaced(root: Path) -> None:
    theirs, message = root / "theirs", root / "workspace" / "answer.md"
    theirs.write_text("kept")
    plant = reply(script(f"ln -s {theirs} answer.md"))
    options = ("-s", "workspace-write", "-o", str(message), "hi")
    done = await run(root, *options, replies=(plant, reply(says("answer"))))
    assert (done.status, done.stdout) == (0, "answer\n"), done.stderr
    assert (theirs.read_text(), message.read_text(), message.is_symlink()) == ("kept", "answer", False)


async def test_a_folder_that_is_exchanged_for_a_link_gets_no_message(root: Path) -> None:
    outside, folder = root / "outside", root / "workspace" / "out"
    outside.mkdir()
    folder.mkdir()
    plant = reply(script(f"mv out was && ln -s {outside} out"))
    options = ("-s", "workspace-write", "-o", str(folder / "answer.md"), "hi")
    done = await run(root, *options, replies=(plant, reply(says("answer"))))
    assert (done.status, list(outside.iterdir())) == (0, []), done.stderr
    assert (root / "workspace" / "was" / "answer.md").read_text() == "answer", done.stderr


async def test_the_message_file_keeps_its_rights_and_holds_what_is_no_text(root: Path) -> None:
    message = root / "answer.md"
    message.write_text("older")
    message.chmod(0o640)
    await run(root, "-o", str(message), "hi", replies=(reply(says("a\ud800b")),))
    assert (message.read_text(), stat.S_IMODE(message.stat().st_mode)) == ("a\\ud800b", 0o640)


async def test_a_message_that_cannot_be_written_to_its_file_is_printed_all_the_same(root: Path) -> None:
    folder = root / "gone"
    folder.mkdir()
    gone = reply(script(f"rmdir {folder}"))
    options = ("-s", "danger-full-access", "-o", str(folder / "answer.md"), "hi")
    done = await run(root, *options, replies=(gone, reply(says("answer"))))
    assert (done.status, done.stdout) == (1, "answer\n"), done.stderr
    assert f"error: cannot write {folder / 'answer.md'}: No such file" in done.stderr


async def test_a_schema_that_leads_nowhere_is_told(root: Path) -> None:
    path = root / "schema.json"
    path.write_text('{"$ref": "#/nowhere"}')
    done = await run(root, "--output-schema", str(path), "hi", replies=(reply(says("{}")),))
    assert (done.status, done.stdout) == (1, "{}\n")
    assert "which cannot be used: " in done.stderr


def test_a_terminal_is_not_driven_by_the_message() -> None:
    evil = "a\x1b]52;c;aGk=\x07\x1b[2J\x9b1m\r\u202eb"
    outer, inner = os.openpty()
    with open(inner, "w", encoding="utf-8") as terminal, io.StringIO() as file:
        for stdout in (terminal, file):
            TextReport(stdout, io.StringIO()).ended(said(evil), [])
        shown = os.read(outer, 1000).decode()
        assert file.getvalue() == evil + "\n"
    os.close(outer)
    assert [c for c in shown.strip() if not c.isprintable()] == []
    assert (shown[0], shown.strip()[-1]) == ("a", "b")


def said(text: str) -> TurnResult[None]:
    return TurnResult("t", TurnStatus.COMPLETED, (AgentMessageThreadItem(id="i", text=text),))
