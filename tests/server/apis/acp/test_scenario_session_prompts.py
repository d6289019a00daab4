"""Prompts of the Agent Client Protocol: blocks, cancelling at every moment, questions, errors, commands."""

import base64
import math
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from app_server.engine.system_ports import SystemPorts
from app_server.server.apis.acp.handlers import prompts
from app_server_protocol.encoding import Json
from tests.support.client import Matcher
from tests.support.editor import EVERYTHING, Editor, diffs, opened
from tests.support.full_disk import FullDisk
from tests.support.scripted_model import (
    Hold,
    Reply,
    begins_to_say,
    calls,
    failure,
    patches,
    reply,
    says,
    script,
    word,
)
from tests.support.thread_client import notified
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
SERVER = Path(__file__).parents[3] / "support" / "mcp_server.py"
ASKS: Json = {"approval_policy": "untrusted"}
CANCELLED = "cancelled"


def mcp_server(*args: str, name: str = "notes") -> Json:
    """Return an MCP server in the form in which a client names it for a session."""
    env = [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}]
    return {"name": name, "command": sys.executable, "args": [str(SERVER), *args], "env": env}


def update(kind: str, **fields: Json) -> Matcher:
    def matches(message: Json) -> bool:
        if message.get("method") != "session/update":
            return False
        told = message["params"]["update"]
        return bool(told["sessionUpdate"] == kind and told.items() >= fields.items())

    return matches


# --- blocks
async def test_blocks_of_every_kind_reach_the_model_in_their_order_as_one_message(world: MakeWorld) -> None:
    picture = base64.b64decode(PNG)
    async with world(reply(says("ok")), files={"shot.png": picture, "a b.py": "x = 1\n"}, acp=True) as w:
        editor, session = await opened(w)
        at = f"file://{w.workspace}"
        blocks: list[Json] = [
            {"type": "image", "mimeType": "image/png", "data": PNG},
            {"type": "text", "text": "compare"},
            {
                "type": "resource",
                "resource": {"uri": f"{at}/new.py", "text": "y = 2\n", "mimeType": "text/x-python"},
            },
            {
                "type": "resource_link",
                "uri": f"{at}/a%20b.py",
                "name": "a b.py",
                "title": "A",
                "_meta": {"k": 1},
            },
            {"type": "resource_link", "uri": f"{at}/shot.png", "name": "shot.png", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "mem://pic", "blob": PNG, "mimeType": "image/png"}},
            {
                "type": "resource",
                "resource": {"uri": "mem://zip", "blob": "AAAA", "mimeType": "application/zip"},
            },
            {"type": "image", "mimeType": "image/png", "data": "", "uri": f"{at}/shot.png"},
            {"type": "text", "text": "please", "annotations": {"audience": ["assistant"]}},
        ]
        assert await editor.ends(session, *blocks) == "end_turn"
        said = [item for item in w.model.requests[0].input if item.get("role") == "user"][-1]["content"]
        assert [part["type"].removeprefix("input_") for part in said] == [
            *("image", "text", "text", "text", "image", "image", "text", "image", "text")
        ]
        texts = [part["text"] for part in said if part["type"] == "input_text"]
        assert texts[0] == "compare"
        assert "new.py" in texts[1]
        assert "```py\ny = 2\n```" in texts[1]
        assert texts[2] == "[@a b.py](a b.py)"
        assert "mem://zip" in texts[3]
        assert "application/zip of 3 bytes" in texts[3]
        assert texts[4] == "please"
        assert editor.updates("session_info_update")[0]["title"] == "compare please"
        assert editor.updates("user_message_chunk") == []


async def test_a_block_that_is_not_supported_is_refused_and_begins_no_turn(world: MakeWorld) -> None:
    blocks: list[Json] = [
        {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
        {"type": "hologram"},
        {"type": "text"},
        {"type": "image", "mimeType": "text/html", "data": "AAAA"},
        {"type": "resource", "resource": {"uri": "mem://x"}},
        17,
        None,
    ]
    async with world(reply(says("ok")), acp=True) as w:
        editor, session = await opened(w)
        for block in blocks:
            error = (await editor.turn(session, "hi", block))["error"]
            assert error["code"] == -32602, block
        assert w.model.requests == []
        assert await editor.ends(session) == "end_turn"
        assert w.model.requests[0].texts() == ["hi"]


# --- cancelling
@dataclass(frozen=True)
class Moment:
    """Moment of a prompt at which the client acts, and the way to reach it."""

    reply: Reply
    until: str | Matcher
    words: str = "hi"
    config: Json = field(default_factory=dict)
    provider: Json = field(default_factory=dict)
    servers: tuple[Json, ...] = ()

    @asynccontextmanager
    async def reached(self, world: MakeWorld) -> AsyncIterator[tuple[World, Editor, str, int | str]]:
        """Reach the moment; yield the world, its editor, the session and its prompt. The editor answers only reads."""
        files = {"open.txt": "saved\n"}
        async with world(self.reply, config=self.config, provider=self.provider, files=files, acp=True) as w:
            editor, session = await opened(w, EVERYTHING, mcpServers=list(self.servers))
            if self.until == "fs/write_text_file":
                w.client.decide("fs/read_text_file", {"content": "unsaved\n"})
            prompt = await editor.prompt(session, self.words)
            await w.client.expect(self.until)
            yield w, editor, session, prompt
            assert not (w.workspace / "made").exists()
            assert (w.workspace / "open.txt").read_text() == "saved\n"


def moment(name: str) -> Moment:
    patch = "*** Begin Patch\n*** Update File: open.txt\n@@\n-unsaved\n+patched\n*** End Patch"
    match name:
        case "asked":
            return Moment(reply(script("echo > made")), "session/request_permission", config=ASKS)
        case "reading":
            return Moment(reply(patches(patch)), "fs/read_text_file")
        case "writing":
            return Moment(reply(patches(patch)), "fs/write_text_file")
        case "running":
            running = update("tool_call_update", status="in_progress")
            return Moment(reply(script("echo up; exec sleep 300")), running)
        case "calling":
            calling = update("tool_call", status="in_progress")
            return Moment(reply(calls("mcp__notes__hang", {})), calling, servers=(mcp_server(),))
        case "answering a form":
            return Moment(reply(calls("mcp__notes__ask", {})), "elicitation/create", servers=(mcp_server(),))
        case "speaking":
            return Moment(reply(begins_to_say(), word("a"), Hold()), update("agent_message_chunk"))
        case "retrying":
            cut = Reply(events=(begins_to_say(),), cut=True)
            return Moment(cut, update("notice"), provider={"stream_max_retries": 9})
        case _:
            compacting = update("compaction_update", status="in_progress")
            return Moment(reply(begins_to_say(), Hold()), compacting, words="/compact")


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("asked", "$/cancel_request"),
        ("reading", "session/cancel"),
        ("writing", "$/cancel_request"),
        ("running", "$/cancel_request"),
        ("calling", "session/cancel"),
        ("retrying", "session/cancel"),
        ("compacting", "$/cancel_request"),
    ],
)
async def test_a_prompt_can_be_cancelled_at_every_moment(world: MakeWorld, name: str, by: str) -> None:
    async with moment(name).reached(world) as (w, editor, session, prompt):
        if by == "session/cancel":
            await editor.cancel(session)
        else:
            await w.client.tell(by, {"requestId": prompt})
        assert (await w.client.answer_to(prompt))["result"]["stopReason"] == CANCELLED
        for call in editor.calls().values():
            assert call["status"] == "failed"
        w.model.replies[:] = [reply(says("next"))]
        assert await editor.ends(session, "go on") == "end_turn"


async def test_a_prompt_right_behind_a_cancel_is_not_cancelled_by_it(world: MakeWorld) -> None:
    async with world(reply(begins_to_say(), word("a"), Hold()), reply(says("second")), acp=True) as w:
        editor, session = await opened(w)
        first = await editor.prompt(session, "one")
        await editor.update("agent_message_chunk")
        await editor.cancel(session)
        second = await editor.prompt(session, "two")
        assert (await w.client.answer_to(first))["result"]["stopReason"] == CANCELLED
        assert (await w.client.answer_to(second))["result"]["stopReason"] == "end_turn"
        assert w.model.requests[-1].texts()[-1] == "two"


async def test_a_prompt_and_its_cancel_sent_together(world: MakeWorld) -> None:
    async with world(reply(says("never")), acp=True) as w:
        editor, session = await opened(w)
        prompt = await editor.prompt(session)
        await editor.cancel(session)
        assert (await w.client.answer_to(prompt))["result"]["stopReason"] == CANCELLED


@pytest.mark.parametrize(
    ("way", "early"), [("session/cancel", False), ("session/close", False), ("session/close", True)]
)
async def test_waiting_for_servers_that_start_slowly_can_be_given_up(
    world: MakeWorld, way: str, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be cancelled also before it began, while the prompt is prepared."""
    if early:
        monkeypatch.setattr(prompts, "_read_prompts", lambda *_: anyio.sleep(0.2))
    server = {"name": "slow", "command": "sleep", "args": ["300"], "env": []}
    async with world(acp=True) as w:
        editor, session = await opened(w, mcpServers=[server])
        prompt = await editor.prompt(session, "/mcp")
        if way == "session/close":
            await w.client.call("session/close", {"sessionId": session})
        else:
            await editor.cancel(session)
        assert (await w.client.answer_to(prompt))["result"]["stopReason"] == CANCELLED
        assert editor.text() == ""


async def test_other_requests_than_prompts_are_cancelled_with_their_own_error(world: MakeWorld) -> None:
    async with world(acp=True) as w:
        editor, _ = await opened(w)
        id = await w.client.send("session/new", editor.opening())
        await w.client.tell("$/cancel_request", {"requestId": id})
        answer = await w.client.answer_to(id)
        assert answer.get("error", {}).get("code") == -32800 or "result" in answer
        await w.client.tell("$/cancel_request", {"requestId": id})
        assert await editor.session()


# --- questions
async def test_a_yes_for_the_session_covers_the_same_command_only(world: MakeWorld) -> None:
    one, other = script("echo > made"), script("echo > other", "c3")
    replies = reply(one), reply(script("echo > made", "c2"), other), reply(says("done"))
    async with world(*replies, config=ASKS, acp=True) as w:
        editor, session = await opened(w)
        editor.permit("allow_for_session", "decline")
        assert await editor.ends(session) == "end_turn"
        asked = notified(w, "session/request_permission")
        assert [each["toolCall"]["toolCallId"] for each in asked] == ["c1", "c3"]
        kinds = [option["kind"] for option in asked[0]["options"]]
        assert kinds == ["allow_once", "allow_always", "reject_once"]
        assert [call["status"] for call in editor.calls().values()] == ["completed", "completed", "failed"]


async def test_a_server_asks_the_user_by_a_form(world: MakeWorld) -> None:
    answers: dict[str, Json] = {
        "accept {'project': 'web'}": {"action": "accept", "content": {"project": "web"}},
        "decline": {"action": "decline"},
        "cancel": {"action": "cancel"},
        "decline None": {"action": "later"},
    }
    ids = [f"m{n}" for n in range(len(answers))]
    replies = [each for id in ids for each in (reply(calls("mcp__notes__ask", {}, id)), reply(says("ok")))]
    async with world(*replies, acp=True) as w:
        editor, session = await opened(w, EVERYTHING, mcpServers=[mcp_server()])
        for id, (said, answer) in zip(ids, answers.items(), strict=True):
            w.client.decide("elicitation/create", answer)
            assert await editor.ends(session) == "end_turn"
            form = (await w.client.expect("elicitation/create"))["params"]
            assert form["message"] == "notes: Which project?"
            assert (form["sessionId"], form["mode"]) == (session, "form")
            assert form["requestedSchema"]["properties"] == {"project": {"type": "string"}}
            assert said in w.model.requests[-1].outputs()[id]


async def test_a_client_without_forms_is_sent_none(world: MakeWorld) -> None:
    replies = reply(calls("mcp__notes__ask", {}, "m1")), reply(says("ok"))
    async with world(*replies, acp=True) as w:
        editor, session = await opened(w, mcpServers=[mcp_server()])
        assert await editor.ends(session) == "end_turn"
        assert {m["method"] for m in w.client.received() if "method" in m} == {"session/update"}


# --- errors and warnings
@pytest.mark.parametrize(
    ("reply_", "code", "text"),
    [
        (failure(401, {"error": {"message": "no such key"}}), -32000, "401"),
        (failure(429, {"error": {"message": "slow down", "type": "usage_limit_reached"}}), -32603, "limit"),
        (Reply(events=(says("half"),), cut=True), -32603, "stream"),
    ],
)
async def test_the_reason_of_a_failure_is_in_the_error_and_in_no_message(
    world: MakeWorld, reply_: Reply, code: int, text: str
) -> None:
    async with world(reply_, reply(says("again")), acp=True) as w:
        editor, session = await opened(w)
        error = (await editor.turn(session))["error"]
        assert error["code"] == code
        assert text in error["message"]
        assert error["data"].keys() >= {"codexErrorInfo", "httpStatus"}
        assert text not in editor.text()
        assert await editor.ends(session) == "end_turn"


@pytest.mark.parametrize("notices", [True, False])
async def test_a_warning_is_a_notice_or_a_thought_and_never_part_of_the_answer(
    world: MakeWorld, notices: bool
) -> None:
    server = {"name": "broken", "command": "/no/such/program", "args": [], "env": []}
    async with world(reply(says("works")), acp=True) as w:
        editor, session = await opened(w, EVERYTHING if notices else None, mcpServers=[server])
        assert await editor.ends(session) == "end_turn"
        assert editor.text() == "works"
        told = [each["title"] for each in editor.updates("notice")]
        thoughts = editor.text("agent_thought_chunk")
        assert "broken" in (told[0] if notices else thoughts)
        assert (told == []) is not notices
        assert (thoughts == "") is notices


async def test_a_model_that_answers_late_is_a_notice_only(world: MakeWorld) -> None:
    replies = failure(503, {"error": {"message": "overloaded"}}, **{"retry-after": "0"}), reply(says("ok"))
    async with world(*replies, provider={"request_max_retries": 2}, acp=True) as w:
        editor, session = await opened(w)
        assert await editor.ends(session) == "end_turn"
        assert (editor.text(), editor.text("agent_thought_chunk")) == ("ok", "")


# --- patches
async def test_moved_and_deleted_files_have_their_kinds_and_both_sides(world: MakeWorld) -> None:
    moves = "*** Begin Patch\n*** Update File: old.txt\n*** Move to: sub/new.txt\n@@\n-a\n+b\n*** End Patch"
    deletes = "*** Begin Patch\n*** Delete File: gone.txt\n*** End Patch"
    replies = reply(patches(moves, "c1")), reply(patches(deletes, "c2")), reply(says("done"))
    async with world(*replies, files={"old.txt": "a\n", "gone.txt": "bye\n"}, acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session)
        moved, deleted = editor.calls().values()
        old, new, gone = (str(w.workspace / name) for name in ("old.txt", "sub/new.txt", "gone.txt"))
        assert diffs(moved) == {new: ("a\n", "b\n"), old: ("a\n", "")}
        assert [place["path"] for place in moved["locations"]] == [new]
        assert (deleted["kind"], diffs(deleted)) == ("delete", {gone: ("bye\n", "")})
        assert [moved["status"], deleted["status"]] == ["completed", "completed"]


# --- commands
async def test_a_review_is_a_call_and_its_findings_are_words(world: MakeWorld) -> None:
    commands = ("/review", "/review look at a.py", "/review-branch main", "/review-commit abc123")
    found = '{"findings": [], "overall_correctness": "patch is correct", "overall_explanation": "All fine.", '
    found += '"overall_confidence_score": 0.9}'
    async with world(*(reply(says(found)) for _ in commands), git=True, acp=True) as w:
        editor, session = await opened(w)
        for command in commands:
            assert await editor.ends(session, command) == "end_turn"
        for review in editor.calls().values():
            assert (review["kind"], review["seen"][-1]) == ("think", "completed")
            assert review["title"].startswith("Review: ")
        assert len(editor.calls()) == len(commands)
        assert editor.text().count("All fine.") == len(commands)


async def test_undo_is_a_command_where_snapshots_are_on(world: MakeWorld) -> None:
    replies = reply(script("echo changed > a.txt")), reply(says("done"))
    async with world(
        *replies, tables="[features]\nghost_commit = true", files={"a.txt": "before\n"}, git=True, acp=True
    ) as w:
        editor, session = await opened(w)
        names = [e["name"] for e in (await editor.update("available_commands_update"))["availableCommands"]]
        assert "undo" in names
        await editor.ends(session)
        assert (w.workspace / "a.txt").read_text() == "changed\n"
        assert await editor.ends(session, "/undo") == "end_turn"
        assert (w.workspace / "a.txt").read_text() == "before\n"
        assert "1 file restored: a.txt. Changed while a command ran, by it or by you: a.txt." in editor.text()
        for command, text in (("/redo", "changed\n"), ("/redo", "before\n"), ("/undo", "before\n")):
            assert await editor.ends(session, command) == "end_turn"
            assert (w.workspace / "a.txt").read_text() == text


CHANGE = "*** Begin Patch\n*** Update File: a.txt\n@@\n-before\n+after\n*** End Patch"
UNASKED: dict[str, Json] = {"approval_policy": "never", "sandbox_mode": "danger-full-access"}


async def test_rewind_asks_with_the_differences_and_takes_files_and_conversation_back(
    world: MakeWorld,
) -> None:
    replies = reply(says("hello")), reply(patches(CHANGE)), reply(says("done")), reply(says("again"))
    async with world(*replies, files={"a.txt": "before\n"}, config=UNASKED, acp=True) as w:
        editor, session = await opened(w)
        assert await editor.ends(session, "/rewind") == "end_turn"
        assert "no message to go back to" in editor.text()
        await editor.ends(session, "good morning")
        await editor.ends(session, "change it")
        assert await editor.ends(session, "/rewind") == "end_turn"
        assert "1. change it (1 file)\n2. good morning\n" in editor.text()
        editor.permit("decline", "both")
        assert await editor.ends(session, "/rewind 1") == "end_turn"
        assert (w.workspace / "a.txt").read_text() == "after\n"
        assert await editor.ends(session, "/rewind 1") == "end_turn"
        assert (w.workspace / "a.txt").read_text() == "before\n"
        assert "1 message left the conversation" in editor.text()
        assert "> change it" in editor.text()
        asked = notified(w, "session/request_permission")
        assert [[each["optionId"] for each in one["options"]] for one in asked] == [
            ["both", "files", "conversation", "decline"]
        ] * 2
        assert {"type": "diff", "oldText": "after\n", "newText": "before\n"}.items() <= asked[0]["toolCall"][
            "content"
        ][1].items()
        assert await editor.ends(session, "/rewind 7") == "end_turn"
        assert await editor.ends(session, "go on") == "end_turn"
        assert w.model.requests[-1].texts() == ["good morning", "go on"]
        assert await editor.ends(session, "/redo") == "end_turn"
        assert (w.workspace / "a.txt").read_text() == "after\n"
        assert await editor.ends(session, "/rewind") == "end_turn"
        assert "1. go on\n2. good morning\n" in editor.text()


@pytest.mark.parametrize(
    ("scope", "content", "asked"),
    [
        ("files", "before\n", ["good morning", "change it", "go on"]),
        ("conversation", "after\n", ["good morning", "go on"]),
    ],
)
async def test_rewind_takes_back_only_what_is_chosen(
    world: MakeWorld, scope: str, content: str, asked: list[str]
) -> None:
    replies = reply(says("hello")), reply(patches(CHANGE)), reply(says("done")), reply(says("again"))
    async with world(*replies, files={"a.txt": "before\n"}, config=UNASKED, acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session, "good morning")
        await editor.ends(session, "change it")
        editor.permit(scope)
        assert await editor.ends(session, "/rewind 1") == "end_turn"
        assert (w.workspace / "a.txt").read_text() == content
        assert await editor.ends(session, "go on") == "end_turn"
        assert w.model.requests[-1].texts() == asked


async def test_a_rewind_whose_conversation_cannot_be_stored_changes_nothing(world: MakeWorld) -> None:
    replies = reply(patches(CHANGE)), reply(says("done")), reply(says("hello")), reply(says("again"))
    full = FullDisk(math.inf)
    machine = SystemPorts(disk=full.disk())
    async with world(*replies, files={"a.txt": "before\n"}, config=UNASKED, acp=True, machine=machine) as w:
        editor, session = await opened(w)
        await editor.ends(session, "change it")
        full.room = 0
        await editor.ends(session, "good morning")
        editor.permit("both")
        assert await editor.ends(session, "/rewind 1") == "end_turn"
        assert "cannot go back" in editor.text()
        assert (w.workspace / "a.txt").read_text() == "after\n"
        full.room = math.inf
        assert await editor.ends(session, "go on") == "end_turn"
        assert w.model.requests[-1].texts() == ["change it", "good morning", "go on"]


async def test_a_session_that_cannot_store_that_it_goes_back_goes_on_as_it_was(world: MakeWorld) -> None:
    """No line waits, so that is known only when the conversation has ended and is opened again."""
    replies = reply(patches(CHANGE)), reply(says("done")), reply(says("again"))
    full = FullDisk(math.inf)
    machine = SystemPorts(disk=full.disk())
    async with world(*replies, files={"a.txt": "before\n"}, config=UNASKED, acp=True, machine=machine) as w:
        editor, session = await opened(w)
        await editor.ends(session, "change it")
        full.room = 0
        editor.permit("both")
        assert await editor.ends(session, "/rewind 1") == "end_turn"
        assert "a.txt: restore" in editor.text()
        assert "cannot go back" in editor.text()
        assert (w.workspace / "a.txt").read_text() == "before\n"
        full.room = math.inf
        assert await editor.ends(session, "go on") == "end_turn"
        assert w.model.requests[-1].texts() == ["change it", "go on"]


async def test_a_prompt_behind_a_rewind_goes_to_the_conversation_that_is_left(world: MakeWorld) -> None:
    replies = reply(says("hello")), reply(says("hello again")), reply(says("again"))
    async with world(*replies, config=UNASKED, acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session, "good morning")
        await editor.ends(session, "good evening")
        editor.permit("conversation")
        prompts = [await editor.prompt(session, text) for text in ("/rewind 1", "/status", "go on")]
        for prompt in prompts:
            assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "end_turn"
        assert await editor.ends(session, "/rewind") == "end_turn"
        assert "good morning" in editor.text()


async def test_init_asks_the_model_for_a_guide(world: MakeWorld) -> None:
    async with world(reply(says("written")), acp=True) as w:
        editor, session = await opened(w)
        assert await editor.ends(session, "/init") == "end_turn"
        assert "AGENTS.md" in w.model.requests[0].texts()[0]


async def test_words_do_not_overtake_a_prompt_that_looks_like_a_command(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two")), acp=True) as w:
        editor, session = await opened(w)
        prompts = [await editor.prompt(session, text) for text in ("/first of all", "then this")]
        for prompt in prompts:
            assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "end_turn"
        assert w.model.requests[-1].texts() == ["/first of all", "then this"]


async def test_a_command_waits_for_the_turn_that_runs(world: MakeWorld) -> None:
    hold = Hold()
    replies = reply(begins_to_say(), hold, says("story")), reply(says("SUMMARY")), reply(says("after"))
    async with world(*replies, acp=True) as w:
        editor, session = await opened(w)
        first = await editor.prompt(session)
        await hold.reached.wait()
        second = await editor.prompt(session, "/compact")
        third = await editor.prompt(session, "and then?")
        hold.release()
        for prompt in (first, second, third):
            assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "end_turn"


async def test_a_command_that_outlives_its_turn_says_nothing_until_the_next_one(world: MakeWorld) -> None:
    arguments = {"cmd": "echo up; cat gate", "shell": "/bin/sh", "login": False, "yield_time_ms": 250}
    wait = {"session_id": 0, "chars": "", "yield_time_ms": 60_000}
    replies = (
        reply(calls("exec_command", arguments)),
        reply(says("it goes on")),
        reply(calls("write_stdin", wait, "c2")),
        reply(says("it has ended")),
    )
    async with world(*replies, tables="[features]\nunified_exec = true", acp=True) as w:
        w.fifo("gate")
        editor, session = await opened(w)
        assert await editor.ends(session) == "end_turn"
        (call,) = editor.calls().values()
        assert call["seen"][-1] == "completed"
        assert "up\n" in call["content"][0]["content"]["text"]
        await w.open_gate("gate")
        await w.client.call("session/list", {})
        assert await editor.ends(session) == "end_turn"
        assert "has ended with exit code 0" in editor.text("agent_thought_chunk")
        assert len(editor.calls()) == 1


async def test_a_file_that_a_command_changed_is_patched_on_the_disk(world: MakeWorld) -> None:
    """The editor's text of the file is from before the command."""
    patch = "*** Begin Patch\n*** Update File: open.txt\n@@\n-generated\n+patched\n*** End Patch"
    stale = "*** Begin Patch\n*** Update File: other.txt\n@@\n-saved\n+patched\n*** End Patch"
    replies = (
        reply(script("echo generated > open.txt")),
        reply(patches(patch, "c2")),
        reply(patches(stale, "c3")),
    )
    files = {"open.txt": "saved\n", "other.txt": "saved\n"}
    async with world(*replies, reply(says("done")), files=files, acp=True) as w:
        editor, session = await opened(w, EVERYTHING)
        w.client.decide("fs/read_text_file", {"content": "quite another text\n"})
        assert await editor.ends(session) == "end_turn"
        assert (w.workspace / "open.txt").read_text() == "patched\n"
        assert (w.workspace / "other.txt").read_text() == "patched\n"
        methods = {m["method"] for m in w.client.received() if "method" in m}
        assert "fs/write_text_file" not in methods
