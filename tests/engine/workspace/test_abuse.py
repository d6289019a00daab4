"""Clients that do not read, MCP servers that misbehave each in its own way, and patches that write outside, with nobody
asked.
"""

import json
import os
import socket
import sys
from pathlib import Path

import anyio
import pytest

from tests.support.client import Refused
from tests.support.places import Place, Served, conversing
from tests.support.program import SCRIPT
from tests.support.scripted_model import (
    Reply,
    ScriptedModel,
    begins_to_say,
    calls,
    patches,
    reply,
    says,
    script,
    word,
)

pytestmark = [pytest.mark.process, pytest.mark.faults]

WORDS = [f"word-{n:05} {'x' * 200} " for n in range(60_000)]
MIB = 1 << 20
ROOM = 80 * MIB
"""Allowed growth of the memory, in bytes: for full queues and for what the allocator keeps. The stream is far larger as
events.
"""


async def settled(server: Served) -> int:
    """Return the server's memory once it no longer changes, in bytes."""
    before, now = -1, server.memory()
    with anyio.fail_after(60):
        while now != before:
            await anyio.sleep(0.5)
            before, now = now, server.memory()
    return now


def in_one_piece(answer: Reply) -> Reply:
    """Return the same events as one body: many thousands of them are built at once."""
    lines = (
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        for event in answer.events
        if isinstance(event, dict)
    )
    return Reply(body="".join(lines).encode())


def told(server: Served, conversation: str, kind: str) -> str:
    return "".join(event["delta"] for event in server.client.events(kind, conversation))


async def test_a_stream_waits_for_a_sleeping_client_and_arrives_whole(tmp_path: Path) -> None:
    text = "".join(WORDS)
    flood = in_one_piece(reply(begins_to_say(), *map(word, WORDS), says(text)))
    model = ScriptedModel([reply(says("before")), flood, reply(says("after"))])
    async with conversing(Place(tmp_path), model) as server:
        conversation = await server.open()
        # The memory that a first turn needs does not belong to the flood.
        assert (await server.client.turn(conversation, "first")).last_message == "before"
        before = server.memory()
        server.client.stop_reading()
        await server.client.send(
            "sendUserMessage",
            {"conversationId": conversation, "items": [{"type": "text", "data": {"text": "go"}}]},
        )
        asleep = await settled(server)
        server.client.read_on()
        turn = await server.client.rest_of_turn(conversation)
        assert turn.last_message == text
        assert told(server, conversation, "agent_message_delta") == text
        assert told(server, conversation, "agent_message_content_delta") == text
        assert asleep - before < ROOM, f"{(asleep - before) / MIB:.0f} MiB"
        assert (await server.client.turn(conversation, "more")).last_message == "after"


async def test_a_command_that_floods_a_sleeping_client_ends_in_bounded_memory(tmp_path: Path) -> None:
    flood = "head -c 300000000 /dev/zero; echo; echo the end"
    model = ScriptedModel([reply(script(flood, timeout_ms=60_000)), reply(says("done"))])
    async with conversing(Place(tmp_path), model) as server:
        conversation = await server.open()
        before = server.memory()
        server.client.stop_reading()
        await server.client.send(
            "sendUserMessage",
            {"conversationId": conversation, "items": [{"type": "text", "data": {"text": "go"}}]},
        )
        asleep = await settled(server)
        server.client.read_on()
        turn = await server.client.rest_of_turn(conversation)
        assert turn.last_message == "done"
        (end,) = turn.of("exec_command_end")
        assert end["exit_code"] == 0
        assert end["stdout"].endswith("the end\n")
        assert asleep - before < 3 * ROOM, f"{(asleep - before) / MIB:.0f} MiB"


async def test_limits_are_set_by_the_environment_and_errors_name_them(tmp_path: Path) -> None:
    small = {"CONVERSATIONS": "2", "LINE_BYTES": "70000", "OUTPUT_BYTES": "2000"}
    place = Place(tmp_path, environment={f"APP_SERVER_MAX_{name}": value for name, value in small.items()})
    model = ScriptedModel([reply(script("seq 1 100000")), reply(says("done"))])
    async with conversing(place, model) as server:
        conversation, _ = await server.open(), await server.open()
        with pytest.raises(Refused) as refused:
            await server.open()
        assert refused.value.code == -32001
        assert refused.value.data == {"kind": "overloaded", "retryable": True}
        await server.wire.write(b'{"id":"long","method":"' + b"x" * 80_000 + b'"}\n')
        too_long = await server.client.anywhere(lambda m: m.get("id") is None and "error" in m)
        assert too_long["error"]["data"] == {"kind": "line_too_long"}
        turn = await server.client.turn(conversation)
        (end,) = turn.of("exec_command_end")
        assert len(end["stdout"]) < 2100
        assert end["stdout"].startswith("1\n2\n")
        assert end["stdout"].endswith("100000\n")
        server.client.log[:] = [e for e in server.client.log if e.message.get("id", "") is not None]


async def test_a_limit_that_is_none_stops_the_start(tmp_path: Path) -> None:
    place = Place(tmp_path, environment={"APP_SERVER_MAX_REQUESTS": "lots"})
    done = await anyio.run_process((SCRIPT,), check=False, env=place.variables())
    assert done.returncode == 2
    assert b"APP_SERVER_MAX_REQUESTS expects a number" in done.stderr
    assert done.stdout == b""


FAKE = Path(__file__).parents[1] / "mcp" / "fake_server.py"
NEVER_START = ("crash-start", "silent", "init-error", "hang-list", "crash-list")
FAIL_WHEN_CALLED = ("crash-call", "hang-call", "bad-result", "error", "wrong-id")
WORK = ("garbage", "stderr-flood", "server-requests", "deaf", "daemon", "double", "huge", "good")


def table(mode: str, seconds: float) -> str:
    """Return a table of an MCP server. Only a tool that has to time out may have a short time."""
    arguments = json.dumps(["-I", "-S", str(FAKE), mode])
    return (
        f'[mcp_servers.{mode}]\ncommand = "{sys.executable}"\nargs = {arguments}\n'
        'default_tools_approval_mode = "approve"\n'
        f"startup_timeout_sec = {seconds}\ntool_timeout_sec = {2 if mode in FAIL_WHEN_CALLED else 60}\n"
    )


async def test_faulty_servers_cost_only_themselves(tmp_path: Path) -> None:
    slow = dict.fromkeys(("silent", "hang-list"), 2.0)
    every = (*NEVER_START, *FAIL_WHEN_CALLED, *WORK)
    place = Place(tmp_path, tables="".join(table(mode, slow.get(mode, 30)) for mode in every))
    called = (*FAIL_WHEN_CALLED, *WORK)
    model = ScriptedModel(
        [
            reply(*(calls(f"mcp__{mode}__echo", {"text": "hi"}, mode) for mode in called)),
            reply(says("done")),
        ]
    )
    async with conversing(place, model) as server:
        conversation = await server.open()
        before = server.memory()
        turn = await server.client.turn(conversation)
        assert turn.last_message == "done"
        assert server.memory() - before < 200 << 20
        failed = "\n".join(event["message"] for event in server.client.events("error"))
        assert all(f"`{mode}`" in failed for mode in NEVER_START), failed
        offered = {name.split("__")[1] for name in model.requests[0].tools if name.startswith("mcp__")}
        assert offered == set(called)
        ends = {event["call_id"]: event["result"] for event in turn.of("mcp_tool_call_end")}
        assert {mode for mode, result in ends.items() if "Err" in result} == set(FAIL_WHEN_CALLED)
        outputs = model.requests[1].outputs()
        assert all(len(outputs[mode]) < 1 << 20 for mode in called)


ABUSES = {
    "traversal": "*** Add File: ../outside/new\n+x",
    "traversal through a file": "*** Add File: kept/../../outside/new\n+x",
    "an absolute path": "*** Add File: {outside}/new\n+x",
    "a sibling of the same name": "*** Add File: {workspace}-evil\n+x",
    "an update outside": "*** Update File: ../outside/file\n@@\n-kept\n+evil",
    "a deletion outside": "*** Delete File: ../outside/file",
    "a move outside": "*** Update File: kept\n*** Move to: ../outside/new\n@@\n-kept\n+evil",
    "one inside, one outside": "*** Update File: kept\n@@\n-kept\n+evil\n*** Add File: ../outside/new\n+x",
    "the server's home": "*** Add File: {home}/planted\n+x",
    "a link to a file": "*** Update File: link\n@@\n-kept\n+evil",
    "a link to a folder": "*** Add File: folder-link/new\n+x",
    "a dangling link": "*** Add File: dangling\n+x",
    "a chain of links": "*** Add File: chain/new\n+x",
    "a deletion beyond a link": "*** Delete File: folder-link/file",
    "a hook": "*** Add File: .git/hooks/pre-commit\n+x",
    "a hook by a move": "*** Update File: kept\n*** Move to: .git/hooks/pre-commit\n@@\n-kept\n+evil",
    "git's settings": "*** Update File: .git/config\n@@\n-[core]\n+[core] fsmonitor = x",
    "our own settings": "*** Add File: .codex/config.toml\n+[mcp_servers.x]",
    "context that is missing": "*** Update File: kept\n@@\n-nothing\n+evil",
    "a second hunk that fails": "*** Update File: kept\n@@\n-kept\n+evil\n@@\n-nothing\n+evil",
    "a second file that fails": "*** Delete File: kept\n*** Update File: absent\n@@\n-a\n+b",
    "a folder": "*** Delete File: folder",
    "a file as a folder": "*** Add File: kept/new\n+x",
    "a pipe": "*** Update File: pipe\n@@\n-a\n+b",
    "a link to a pipe": "*** Update File: pipe-link\n@@\n-a\n+b",
    "a socket": "*** Update File: socket\n@@\n-a\n+b",
    "a device": "*** Update File: /dev/null\n@@\n-a\n+b",
    "an endless device": "*** Update File: /dev/zero\n@@\n-a\n+b",
    "a process": "*** Update File: /proc/self/environ\n@@\n-a\n+b",
    "a NUL": "*** Add File: a\0b\n+x",
    "a long name": "*** Add File: " + "n" * 300 + "\n+x",
    "dots": "*** Add File: ..\n+x",
    "no operation": "*** Chmod File: kept",
    "an addition and a deletion": "*** Add File: new\n+x\n*** Delete File: new",
}


def furnish(place: Place) -> None:
    outside, inside = place.root / "outside", place.workspace
    for folder in (outside, inside / ".git" / "hooks", inside / "folder"):
        folder.mkdir(parents=True)
    for file in (outside / "file", inside / "kept", inside / "folder" / "file"):
        file.write_text("kept\n")
    (inside / ".git" / "config").write_text("[core]\n")
    (inside / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    os.mkfifo(inside / "pipe")
    with socket.socket(socket.AF_UNIX) as one:
        before = os.getcwd()
        os.chdir(inside)  # the path of a socket must be short
        try:
            one.bind("socket")
        finally:
            os.chdir(before)
    links = {
        "link": "../outside/file",
        "folder-link": "../outside",
        "dangling": "../outside/new",
        "first": "../outside",
        "chain": "first",
        "pipe-link": "pipe",
    }
    for name, target in links.items():
        (inside / name).symlink_to(target)


def tree(root: Path) -> dict[str, str]:
    """Return every file with its content, and every link with its target."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.startswith(("home", "user", "server.log")):
            continue
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        else:
            found[name] = path.read_text() if path.is_file() else "no file"
    return found


@pytest.mark.parametrize("approval", ["never", "on-request"])
async def test_no_patch_leaves_its_place(tmp_path: Path, approval: str) -> None:
    place = Place(tmp_path, approval=approval, sandbox="workspace-write")
    place.tables = "[sandbox_workspace_write]\nexclude_tmpdir_env_var = true\nexclude_slash_tmp = true\n"
    furnish(place)
    names = {
        "outside": str(tmp_path / "outside"),
        "workspace": str(place.workspace),
        "home": str(place.home),
    }
    calls = []
    for n, abuse in enumerate(ABUSES.values()):
        text = abuse.replace("{outside}", names["outside"])
        text = text.replace("{workspace}", names["workspace"]).replace("{home}", names["home"])
        calls.append(patches(f"*** Begin Patch\n{text}\n*** End Patch", f"abuse-{n}"))
    good = "*** Begin Patch\n*** Add File: good\n+good\n*** End Patch"
    model = ScriptedModel([reply(*calls, patches(good, "good")), reply(says("done"))])
    before = tree(tmp_path)
    async with conversing(place, model) as server:
        server.client.decide("applyPatchApproval", "denied")
        server.client.decide("execCommandApproval", "denied")
        conversation = await server.open()
        assert (await server.client.turn(conversation)).last_message == "done"
        asked = [m for m in server.client.received() if m.get("method") == "applyPatchApproval"]
        assert bool(asked) == (approval == "on-request")
    after = tree(tmp_path)
    assert after.pop("workspace/good") == "good\n"
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == set()
    assert not (place.home / "planted").exists()
    outputs = model.requests[1].outputs()
    assert len(outputs) == len(ABUSES) + 1
