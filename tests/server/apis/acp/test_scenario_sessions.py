"""The Agent Client Protocol over the engine: turns, permission, cancelling, stored sessions, options, commands."""

import json
from pathlib import Path

import pytest
import tomli

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.editor import EVERYTHING, Editor, diffs, loaded, opened
from tests.support.scripted_model import (
    Hold,
    begins_to_say,
    patches,
    reply,
    runs,
    says,
    script,
    word,
)
from tests.support.thread_client import notified
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

ASKS: Json = {"approval_policy": "untrusted"}


async def test_commands_are_announced_with_the_session_and_never_before_its_id(world: MakeWorld) -> None:
    async with world(acp=True) as w:
        editor = Editor(w)
        await editor.start()
        await editor.session()
        update = await editor.update("available_commands_update")
        names = [each["name"] for each in update["availableCommands"]]
        assert {"compact", "review", "status"} <= set(names)
        assert not any(name.startswith("/") for name in names)


async def test_a_command_is_one_call_with_its_output(world: MakeWorld) -> None:
    async with world(reply(script("echo out; exit 3")), reply(says("done")), acp=True) as w:
        editor, session = await opened(w)
        assert await editor.ends(session) == "end_turn"
        (call,) = editor.calls().values()
        assert call["seen"] == ["pending", "in_progress", "failed"]
        assert (call["kind"], call["title"], call["rawOutput"]) == (
            "execute",
            "echo out; exit 3",
            {"exit_code": 3},
        )
        texts = [each["content"]["text"] for each in call["content"]]
        assert texts == ["```console\nout\n```", "Exit code: 3"]


async def test_clients_that_show_terminals_get_the_output_as_it_comes(world: MakeWorld) -> None:
    async with world(reply(script("echo out")), reply(says("done")), acp=True) as w:
        editor, session = await opened(w, {"_meta": {"terminal_output": True}})
        await editor.ends(session)
        metas = [each["_meta"] for each in editor.updates() if "_meta" in each]
        assert [next(iter(meta)) for meta in metas] == ["terminal_info", "terminal_output", "terminal_exit"]
        assert metas[1]["terminal_output"]["data"] == "out\n"
        assert metas[2]["terminal_exit"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("option", "end", "made", "status"),
    [
        ("allow_once", "end_turn", True, "completed"),
        ("decline", "end_turn", False, "failed"),
        ("cancel", "cancelled", False, "failed"),
        ("no such option", "end_turn", False, "failed"),
    ],
)
async def test_permission_is_asked(world: MakeWorld, option: str, end: str, made: bool, status: str) -> None:
    async with world(reply(script("echo > made")), reply(says("done")), config=ASKS, acp=True) as w:
        editor, session = await opened(w)
        editor.permit(option)
        assert await editor.ends(session) == end
        assert (w.workspace / "made").exists() is made
        (call,) = editor.calls().values()
        assert (call["seen"][0], call["seen"][-1]) == ("pending", status)


async def test_the_reason_and_the_whole_command_are_shown(world: MakeWorld) -> None:
    line = "true " + "x" * 200
    asks = runs("sh", "-c", line, with_escalated_permissions=True, justification="because of the network")
    async with world(
        reply(asks),
        reply(says("no")),
        config={"approval_policy": "on-request", "sandbox_mode": "read-only"},
        acp=True,
    ) as w:
        editor, session = await opened(w)
        editor.permit("decline")
        assert await editor.ends(session) == "end_turn"
        call = (await editor.asked())["params"]["toolCall"]
        text = "\n".join(each["content"]["text"] for each in call["content"])
        assert "because of the network" in text
        assert line in text
        assert call["rawInput"]["justification"] == "because of the network"


async def test_a_patch_shows_whole_texts_and_where_it_changes_them(world: MakeWorld) -> None:
    text = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** Update File: old.txt\n@@\n keep\n-a\n+b\n*** End Patch"
    async with world(
        reply(patches(text)), reply(says("done")), files={"old.txt": "1\n2\nkeep\na\n5\n6\n"}, acp=True
    ) as w:
        editor, session = await opened(w)
        await editor.ends(session)
        (call,) = editor.calls().values()
        assert (call["kind"], call["title"]) == ("edit", "Edit 2 files")
        assert diffs(call) == {
            str(w.workspace / "new.txt"): (None, "one\n"),
            str(w.workspace / "old.txt"): ("1\n2\nkeep\na\n5\n6\n", "1\n2\nkeep\nb\n5\n6\n"),
        }
        assert {Path(each["path"]).name: each["line"] for each in call["locations"]} == {
            "new.txt": 1,
            "old.txt": 4,
        }


async def test_a_second_prompt_joins_the_turn_and_both_are_answered_at_its_end(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold, says("a")), reply(says("b")), acp=True) as w:
        editor, session = await opened(w)
        first = await editor.prompt(session, "one")
        await hold.reached.wait()
        second = await editor.prompt(session, "two")
        steered = await w.client.call(
            "_session/steering", {"sessionId": session, "prompt": [{"type": "text", "text": "three"}]}
        )
        assert steered == {"outcome": "injected"}
        hold.release()
        for prompt in (first, second):
            assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "end_turn"
        assert w.model.requests[1].texts() == ["one", "two", "three"]


async def test_resuming_tells_nothing(world: MakeWorld) -> None:
    async with world(reply(says("hello")), acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session, "please")
    async with world(acp=True) as w:
        editor = Editor(w)
        await editor.start()
        await w.client.call("session/resume", editor.opening(sessionId=session))
        await editor.update("available_commands_update")
        assert [each["sessionUpdate"] for each in editor.updates()] == ["available_commands_update"]


async def test_sessions_are_listed_and_deleted(world: MakeWorld) -> None:
    async with world(reply(says("hello")), acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session, "remember the milk")
        (listed,) = (await w.client.call("session/list", {}))["sessions"]
        assert (listed["sessionId"], listed["cwd"], listed["title"]) == (
            session,
            str(w.workspace),
            "remember the milk",
        )
        elsewhere = await w.client.call("session/list", {"cwd": "/elsewhere"})
        assert elsewhere["sessions"] == []
        for _ in range(2):
            assert await w.client.call("session/delete", {"sessionId": session}) == {}
        assert (await w.client.call("session/list", {}))["sessions"] == []
        for none in ("../../../etc", "", f"{session}/.."):
            with pytest.raises(Refused, match="session"):
                await w.client.call("session/delete", {"sessionId": none})


async def test_closing_cancels_the_prompt(world: MakeWorld) -> None:
    async with world(reply(begins_to_say(), word("a"), Hold()), acp=True) as w:
        editor, session = await opened(w)
        prompt = await editor.prompt(session)
        await editor.update("agent_message_chunk")
        assert await w.client.call("session/close", {"sessionId": session}) == {}
        assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "cancelled"
        again = await w.client.ask("session/close", {"sessionId": session})
        assert again["error"]["code"] == -32002


async def test_options_are_chosen_and_come_back(world: MakeWorld) -> None:
    tables = "[models.gpt-6-sol]\n"  # the provider has no list of its own
    async with world(reply(says("one")), tables=tables, acp=True) as w:
        editor, session = await opened(w)
        for id, value in (("model", "gpt-6-sol"), ("reasoning_effort", "high"), ("mode", "read-only")):
            answer = await w.client.call(
                "session/set_config_option", {"sessionId": session, "configId": id, "value": value}
            )
            assert {each["id"]: each["currentValue"] for each in answer["configOptions"]}[id] == value
        await editor.ends(session)
        body = w.model.requests[0].body
        assert (body["model"], body["reasoning"]["effort"]) == ("gpt-6-sol", "high")
    async with world(acp=True) as w:
        editor, answer = await loaded(w, session)
        now = {each["id"]: each["currentValue"] for each in answer["configOptions"]}
        assert now == {"mode": "read-only", "model": "gpt-6-sol", "reasoning_effort": "high"}


async def test_a_mode_that_is_none_of_ours_is_offered_as_configured(world: MakeWorld) -> None:
    config = {"approval_policy": "never", "sandbox_mode": "read-only"}
    async with world(config=config, acp=True) as w:
        editor = Editor(w)
        await editor.start()
        made = await w.client.call("session/new", editor.opening())
        modes = made["modes"]
        assert modes["currentModeId"] == modes["availableModes"][0]["id"] == "configured"
        await w.client.call("session/set_mode", {"sessionId": made["sessionId"], "modeId": "workspace-write"})
        options = (await editor.update("config_option_update"))["configOptions"]
        assert options[0]["currentValue"] == "workspace-write"
        assert (await editor.update("current_mode_update"))["currentModeId"] == "workspace-write"


async def test_the_mode_of_a_permission_profile_has_its_name(world: MakeWorld) -> None:
    tables = '[permissions.careful]\nextends = ":workspace"\n'
    async with world(config={"default_permissions": "careful"}, tables=tables, acp=True) as w:
        editor = Editor(w)
        await editor.start()
        modes = (await w.client.call("session/new", editor.opening()))["modes"]
        assert modes["currentModeId"] == "configured"
        assert modes["availableModes"][0]["name"] == "careful"


async def test_a_prompt_of_the_user_is_a_command(world: MakeWorld) -> None:
    files = {
        "../home/prompts/tidy.md": "---\ndescription: Tidy\nargument-hint: FILE\n---\nTidy $1 ($ARGUMENTS)."
    }
    async with world(reply(says("ok")), reply(says("ok")), files=files, acp=True) as w:
        editor, session = await opened(w)
        update = await editor.update("available_commands_update")
        assert {"name": "tidy", "description": "Tidy", "input": {"hint": "FILE"}} in update[
            "availableCommands"
        ]
        await editor.ends(session, "/tidy main.py now")
        await editor.ends(session, "/etc/hosts is what?")
        assert w.model.requests[1].texts() == ["Tidy main.py (main.py now).", "/etc/hosts is what?"]


async def test_what_the_server_says_by_itself_asks_no_model(world: MakeWorld) -> None:
    async with world(acp=True) as w:
        editor, session = await opened(w)
        for command in ("/status", "/mcp", "/review-branch --evil"):
            assert await editor.ends(session, command) == "end_turn"
        assert session in editor.text()
        assert w.model.requests == []


async def test_compaction_is_shown(world: MakeWorld) -> None:
    async with world(reply(says("story")), reply(says("SUMMARY")), acp=True) as w:
        editor, session = await opened(w, EVERYTHING)
        await editor.ends(session)
        assert await editor.ends(session, "/compact") == "end_turn"
        assert [each["status"] for each in editor.updates("compaction_update")] == [
            "in_progress",
            "completed",
        ]


UPDATE = "*** Begin Patch\n*** Update File: open.txt\n@@\n-{0}\n+patched\n*** Add File: new.txt\n+one\n*** End Patch"


@pytest.mark.parametrize("allowed", [True, False])
async def test_unsaved_text_is_patched_through_the_editor_once_allowed(
    world: MakeWorld, allowed: bool
) -> None:
    replies = reply(patches(UPDATE.format("unsaved"))), reply(says("done"))
    config = {"approval_policy": "on-request", "sandbox_mode": "read-only"}
    async with world(*replies, config=config, files={"open.txt": "saved\n"}, acp=True) as w:
        editor, session = await opened(w, EVERYTHING)
        editor.permit("allow_once" if allowed else "decline")
        w.client.decide("fs/read_text_file", {"content": "unsaved\nrest\n"})
        w.client.decide("fs/write_text_file", {})
        assert await editor.ends(session) == "end_turn"
        (call,) = editor.calls().values()
        path = str(w.workspace / "open.txt")
        assert diffs(call)[path] == ("unsaved\nrest\n", "patched\nrest\n")
        written = notified(w, "fs/write_text_file")
        assert [(each["path"], each["content"]) for each in written] == [(path, "patched\nrest\n")] * allowed
        assert (w.workspace / "open.txt").read_text() == "saved\n"
        assert (w.workspace / "new.txt").exists() is allowed


async def test_the_editor_is_not_asked_for_a_file_outside_before_the_user_is(world: MakeWorld) -> None:
    patch = "*** Begin Patch\n*** Update File: ../outside.txt\n@@\n-old\n+new\n*** End Patch"
    config = {"approval_policy": "on-request", "sandbox_mode": "workspace-write"}
    table = "[sandbox_workspace_write]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true\n"
    replies = reply(patches(patch)), reply(says("done"))
    async with world(*replies, config=config, tables=table, acp=True) as w:
        (w.root / "outside.txt").write_text("old\n")
        editor, session = await opened(w, EVERYTHING)
        editor.permit("decline")
        assert await editor.ends(session) == "end_turn"
        methods = [m["method"] for m in w.client.received() if "method" in m]
        assert "session/request_permission" in methods
        assert "fs/read_text_file" not in methods


async def test_an_editor_that_fails_is_done_without(world: MakeWorld) -> None:
    replies = reply(patches(UPDATE.format("unsaved"))), reply(says("done"))
    async with world(*replies, files={"open.txt": "saved\n"}, acp=True) as w:
        editor = Editor(w, EVERYTHING)
        await editor.start()
        w.client.decide("fs/read_text_file", {"content": "unsaved\n"})

        def refuse(request: Json) -> Json | None:
            refusals.append(request["id"])
            return None

        refusals: list[int] = []
        w.client.decide("fs/write_text_file", refuse)
        prompt = await editor.prompt(await editor.session())
        await w.client.expect("fs/write_text_file")
        await w.client.write({"id": refusals[0], "error": {"code": -32603, "message": "no"}})
        assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "end_turn"
        assert (w.workspace / "open.txt").read_text() == "patched\n"


async def test_a_client_that_announced_no_files_is_asked_for_none(world: MakeWorld) -> None:
    replies = reply(patches(UPDATE.format("saved"))), reply(says("done"))
    async with world(*replies, files={"open.txt": "saved\n"}, acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session)
        methods = {m["method"] for m in w.client.received() if "method" in m}
        assert methods == {"session/update"}


async def test_a_mode_holds_from_the_next_command_on(world: MakeWorld) -> None:
    hold = Hold()
    replies = reply(begins_to_say(), word("a"), hold, says("a"), script("echo > made")), reply(says("done"))
    async with world(*replies, acp=True) as w:
        editor, session = await opened(w)
        prompt = await editor.prompt(session)
        await hold.reached.wait()
        await w.client.call("session/set_mode", {"sessionId": session, "modeId": "read-only"})
        hold.release()
        assert (await w.client.answer_to(prompt))["result"]["stopReason"] == "end_turn"
        (call,) = editor.calls().values()
        assert call["seen"][-1] == "failed"
        assert not (w.workspace / "made").exists()


async def test_a_prompt_that_was_written_meanwhile_is_a_command(world: MakeWorld) -> None:
    async with world(reply(says("ok")), acp=True) as w:
        editor, session = await opened(w)
        w.write({"prompts/late.md": "Do it late."}, under=w.home)
        await editor.ends(session, "/late")
        assert w.model.requests[0].texts() == ["Do it late."]
        names = [
            each["name"] for each in editor.updates("available_commands_update")[-1]["availableCommands"]
        ]
        assert "late" in names


@pytest.mark.parametrize(
    ("why", "reason"), [("max_output_tokens", "max_tokens"), ("content_filter", "refusal")]
)
async def test_an_answer_that_was_cut_is_a_stop_reason(world: MakeWorld, why: str, reason: str) -> None:
    cut = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": why}}}
    async with world(reply(cut), acp=True) as w:
        editor, session = await opened(w)
        assert await editor.ends(session) == reason


async def test_a_session_that_codex_058_stored_is_listed_and_told(world: MakeWorld) -> None:
    id = "01a1fc42-4317-7560-83f3-f16344e5fd73"
    stored = Path(__file__).parents[3] / "data" / "codex-0.58-rollout.jsonl"
    name = f"../home/sessions/2026/11/21/rollout-2026-11-21T03-59-23-{id}.jsonl"
    async with world(files={name: stored.read_bytes()}, acp=True) as w:
        editor = Editor(w)
        await editor.start()
        (listed,) = (await w.client.call("session/list", {}))["sessions"]
        assert (listed["sessionId"], listed["title"]) == (id, "What does echo say?")
        await w.client.call("session/load", editor.opening(sessionId=id))
        (call,) = editor.calls().values()
        assert (call["title"], call["status"]) == ("echo from-codex", "completed")
        assert editor.text() == "I look first.It says from-codex.You are welcome."


async def test_hooks_are_listed_and_agreed_to(world: MakeWorld) -> None:
    def write(w: World) -> None:
        handlers = [{"type": "command", "command": each} for each in ("guard `x`", "other")]
        text = json.dumps(
            {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [*handlers, {"type": "agent"}]}]}}
        )
        (w.home / "hooks.json").write_text(text)

    async with world(acp=True, before=write) as w:
        editor, session = await opened(w)

        async def said(command: str) -> str:
            before = editor.text()
            assert await editor.ends(session, command) == "end_turn"
            return editor.text().removeprefix(before)

        # Consent is for what was shown, so the first command only shows it.
        shown = await said("/hooks trust all")
        assert "1. PreToolUse Bash: does not run, you have not agreed to it" in shown
        assert "```\nguard `x`\n```" in shown
        assert "3. PreToolUse Bash: does not run, hooks of this type are not supported" in shown
        assert await said("/hooks trust 2") == "From the next turn on:\n- runs: other\n"
        assert await said("/hooks off 1") == "From the next turn on:\n- is switched off: guard `x`\n"
        for wrong in ("/hooks trust", "/hooks trust 4", "/hooks trust x", "/hooks delete 1"):
            assert "Expected `/hooks`" in await said(wrong)
        assert "2. PreToolUse Bash: runs" in await said("/hooks")
        assert w.model.requests == []
        state = tomli.loads((w.home / "config.toml").read_text())["hooks"]["state"]
        assert next(iter(state.values()))["trusted_hash"].startswith("sha256:")
