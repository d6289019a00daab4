"""Files that codex 0.58, 0.169 and 0.171 recorded (tests/data) are shown alike by every API, with their commands. Only
compactions are not: an editor is not shown them.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from app_server_protocol.encoding import Json
from app_server_protocol.engine.legacy import COMPACTED
from tests.server.conversations.test_one_thread_three_apis import INITIALIZE
from tests.support.client import Client
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

DATA = Path(__file__).parents[2] / "data"
OF_058 = "01a1fc42-4317-7560-83f3-f16344e5fd73"


class Shown(NamedTuple):
    """An item as every API can show it."""

    kind: str
    text: str
    outcome: str = ""


class File(NamedTuple):
    folder: str
    """File or folder in `DATA`."""
    thread: str
    commands: tuple[Shown, ...]


ONE = Shown("command", "echo one; exit 3", "3: one\n")
FILES = {
    "0.58": File(
        "codex-0.58-rollout.jsonl", OF_058, (Shown("command", "echo from-codex", "0: from-codex\n"),)
    ),
    "0.169": File("codex-0.169", "01a222c3-4989-7600-add0-15407b701dcb", (ONE,)),
    "0.171": File("codex-0.171", "01a222c2-4283-7da2-9e2c-974bc77a79bc", (ONE,)),
    "0.171, older form": File(
        "codex-0.171", "01a222cc-852e-7a11-a99e-cfece6843117", (Shown("command", "echo one", "0: one\n"),)
    ),
}


def stored_in(w: World, file: File) -> None:
    day = w.home / "sessions" / "2026" / "11" / "28"
    if file.folder.endswith(".jsonl"):
        day.mkdir(parents=True)
        shutil.copy(DATA / file.folder, day / f"rollout-2026-11-28T15-24-46-{file.thread}.jsonl")
    else:
        shutil.copytree(DATA / file.folder, day)


def of_thread_api(turns: Sequence[Json]) -> Iterator[Shown]:
    for item in (item for turn in turns for item in turn["items"]):
        match item:
            case {"type": "userMessage", "content": content}:
                yield Shown("user", "".join(part.get("text", "") for part in content))
            case {"type": "agentMessage", "text": text}:
                yield Shown("agent", text)
            case {"type": "commandExecution", "command": command} as ran:
                line = command.split(" -lc ")[-1].split(" -c ")[-1].strip("'\"")
                yield Shown("command", line, f"{ran['exitCode']}: {ran['aggregatedOutput']}")
            case {"type": "fileChange", "changes": changes, "status": status}:
                yield Shown("patch", ",".join(Path(each["path"]).name for each in changes), status)
            case {"type": "mcpToolCall", "tool": tool}:
                yield Shown("mcp", tool)
            case _:
                pass


def of_conversation_api(events: Sequence[Json]) -> Iterator[Shown]:
    begun: dict[str, Json] = {}
    for event in events:
        match event:
            case {"type": "user_message", "message": text}:
                yield Shown("user", text)
            case {"type": "agent_message", "message": text} if text != COMPACTED:
                yield Shown("agent", text)
            case {"type": "exec_command_begin" | "patch_apply_begin" | "mcp_tool_call_begin", "call_id": id}:
                begun[id] = event
            case {"type": "exec_command_end", "call_id": id} as ran:
                command = begun.pop(id)["command"][-1]
                yield Shown("command", command, f"{ran['exit_code']}: {ran['aggregated_output']}")
            case {"type": "patch_apply_end", "call_id": id, "success": success}:
                names = ",".join(Path(each).name for each in begun.pop(id)["changes"])
                yield Shown("patch", names, "completed" if success else "failed")
            case {"type": "mcp_tool_call_end", "call_id": id}:
                yield Shown("mcp", begun.pop(id)["invocation"]["tool"])
            case _:
                pass
    assert not begun


def of_editor(updates: Sequence[Json]) -> Iterator[Shown]:
    """Yield what the editor is shown. A call is shown when it has ended."""
    open_calls: dict[str, Json] = {}
    for update in updates:
        match update:
            case {"sessionUpdate": "user_message_chunk", "content": {"text": text}}:
                yield Shown("user", text)
            case {"sessionUpdate": "agent_message_chunk", "content": {"text": text}}:
                yield Shown("agent", text)
            case {"sessionUpdate": "tool_call" | "tool_call_update", "toolCallId": id}:
                call = open_calls[id] = {**open_calls.get(id, {}), **update}
                if call["status"] in ("completed", "failed"):
                    yield from of_call(open_calls.pop(id))
            case _:
                pass
    assert not open_calls


def of_call(call: Json) -> Iterator[Shown]:
    match call:
        case {"kind": "edit", "status": status, "locations": places}:
            yield Shown("patch", ",".join(Path(each["path"]).name for each in places), status)
        case {
            "name": "shell" | "exec_command",
            "title": line,
            "rawOutput": {"exit_code": code},
            "content": parts,
        }:
            text = parts[0]["content"]["text"].removeprefix("```console\n").removesuffix("```")
            yield Shown("command", line, f"{code}: {text}")
        case {"rawInput": {"tool": tool}}:
            yield Shown("mcp", tool)
        case _:
            pass


async def by_editor(w: World, editor: Client, thread: str) -> list[Shown]:
    await editor.call("initialize", INITIALIZE)
    await editor.call("session/load", {"sessionId": thread, "cwd": str(w.workspace), "mcpServers": []})
    updates = [m["params"]["update"] for m in editor.received() if m.get("method") == "session/update"]
    return list(of_editor(updates))


async def by_old_client(w: World, old: Client, thread: str) -> list[Shown]:
    where = {"cwd": str(w.workspace), "model": "scripted", "modelProvider": "scripted"}
    resumed = await old.resume(conversationId=thread, overrides=where)
    return list(of_conversation_api(resumed["initialMessages"]))


@pytest.mark.parametrize("first", ["editor", "old client"])
@pytest.mark.parametrize("name", FILES)
async def test_a_stored_file_is_shown_alike_by_every_api(world: MakeWorld, name: str, first: str) -> None:
    """The client that comes first opens the conversation, and the others join it."""
    file = FILES[name]
    thread = file.thread
    async with world() as w, w.another() as old, w.another(acp=True) as editor:
        assert w.in_process is not None
        w.in_process.conversations.outlasts_clients = True
        stored_in(w, file)
        params = {"threadId": thread, "includeTurns": True}
        read = (await w.client.call("thread/read", params))["thread"]["turns"]
        shown = list(of_thread_api(read))
        assert tuple(each for each in shown if each.kind == "command") == file.commands
        assert [each for each in shown if each.kind == "user"]
        pages = {"threadId": thread, "sortDirection": "asc", "itemsView": "full"}
        assert (await w.client.call("thread/turns/list", pages))["data"] == read
        if first == "editor":
            assert await by_editor(w, editor, thread) == shown
        assert await by_old_client(w, old, thread) == shown
        if first != "editor":
            assert await by_editor(w, editor, thread) == shown
        opened = await w.client.call("thread/resume", {"threadId": thread})
        assert opened["thread"]["turns"] == read
