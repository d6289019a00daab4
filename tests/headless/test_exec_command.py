"""`app-server exec`: what it prints, and its exit status, as scripts see them."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from app_server.client import AppServer
from app_server.command_line import parser
from app_server.headless.exec_options import ExecOptions, InvalidCommandLine, exec_options
from app_server.headless.exec_report import JsonReport, TextReport, TurnReport
from app_server.headless.exec_run import reported_status
from tests.support.library import connector_to, serving_model
from tests.support.scripted_model import Reply, ScriptedModel, failure, reply, says
from tests.support.world import PATH, SCRIPT, WHOLE_SCENARIO

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("home", "workspace", "user"):
        (tmp_path / folder).mkdir()
    return tmp_path


@dataclass(slots=True)
class Done:
    status: int
    stdout: str
    stderr: str


async def run(root: Path, *arguments: str, replies: tuple[Reply, ...], stdin: str = "") -> Done:
    """The command with its server in this process."""
    stdout, stderr = io.StringIO(), io.StringIO()
    options = exec_options(parser().parse_args(["exec", *arguments]), io.StringIO(stdin), root / "workspace")
    report: TurnReport = JsonReport(stdout) if options.json else TextReport(stdout, stderr)
    with anyio.fail_after(WHOLE_SCENARIO):
        async with serving_model(ScriptedModel(list(replies)), root, {}) as environment:

            def connect(_: ExecOptions) -> AbstractAsyncContextManager[AppServer]:
                return AppServer.connect(connector_to("in_process", root, environment))

            status = await reported_status(options, report, stderr, connect)
    return Done(status, stdout.getvalue(), stderr.getvalue())


@pytest.mark.process
def test_the_final_message_alone_is_on_stdout(tmp_path: Path) -> None:
    environment = {"PATH": PATH, "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    command = (SCRIPT, "exec", "--demo", "please", "check", "-o", "last.txt")
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    message = "That did not work. Say `repair`, and I propose a patch."
    assert (done.returncode, done.stdout) == (0, f"{message}\n"), done.stderr
    assert "$ sh check.sh\n  failed: expected" in done.stderr
    assert (tmp_path / "last.txt").read_text() == message


@pytest.mark.process
def test_ctrl_c_interrupts_the_turn_and_is_its_exit_status(tmp_path: Path) -> None:
    environment = {"PATH": PATH, "HOME": str(tmp_path), "LANG": "C.UTF-8", "TMPDIR": str(tmp_path)}
    command = (SCRIPT, "exec", "--demo", "--json", "think")
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
    done = await run(root, "--json", "-", stdin="say hello", replies=(reply(says("hello")),))
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
    assert "does not match the output schema at $.ok" in done.stderr


async def test_a_stored_thread_is_gone_on_with(root: Path) -> None:
    nothing = await run(root, "--resume-last", "first", replies=())
    assert (nothing.status, nothing.stdout) == (1, "")
    assert f"no stored thread of {root / 'workspace'}" in nothing.stderr
    await run(root, "first", replies=(reply(says("one")),))
    done = await run(root, "--resume-last", "second", replies=(reply(says("two")),))
    assert done.stdout == "two\n"
    assert len(list((root / "home").glob("sessions/**/rollout-*.jsonl"))) == 1


def test_nobody_is_asked_unless_the_command_line_says_so(tmp_path: Path) -> None:
    args = parser().parse_args(["exec", "hi", "-s", "read-only"])
    options = exec_options(args, stdin=open("/dev/null"), cwd=tmp_path)  # noqa: SIM115
    assert options.thread == {"cwd": tmp_path, "approval_policy": "never", "sandbox": "read-only"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--cd", "nowhere", "hi"], "is not a folder"),
        (["-i", "none.png", "hi"], "is not a file"),
        (["--output-schema", "none.json", "hi"], "none.json"),
        ([], "expected a prompt"),
    ],
)
def test_a_command_line_that_cannot_be_used_says_what_was_expected(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    args = parser().parse_args(["exec", *arguments])
    with pytest.raises(InvalidCommandLine, match=problem), open("/dev/null") as nothing:
        exec_options(args, nothing, tmp_path)
