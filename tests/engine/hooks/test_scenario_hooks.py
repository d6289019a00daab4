"""Hooks of turns: what they read, forbid, ask, change and add, at each of their moments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app_server.engine.hooks.run_hooks import shell_line
from app_server_protocol.encoding import Json
from tests.cli.exec.test_exec_command import run
from tests.engine.hooks.hook_scripts import HomeHooks
from tests.support.editor import opened
from tests.support.scripted_model import calls, reply, says, script
from tests.support.thread_client import ended, items, notified, say, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld

pytestmark = pytest.mark.scenario

ASYNC: Json = {"async": True}
FULL: Json = {"approvalPolicy": "on-request", "sandbox": "danger-full-access"}
NEVER: Json = {"approvalPolicy": "never", "sandbox": "danger-full-access"}
MAKE = script("echo made > made.txt")
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"


@pytest.fixture
def hooks(tmp_path: Path) -> HomeHooks:
    return HomeHooks(tmp_path)


def answer(event: str, **own: Json) -> str:
    """Return a script that prints an answer."""
    return f"cat <<'END'\n{json.dumps({'hookSpecificOutput': {'hookEventName': event, **own}})}\nEND"


async def test_each_moment_of_a_turn_has_its_hooks(world: MakeWorld, hooks: HomeHooks) -> None:
    moments = ("SessionStart", "UserPromptSubmit", "PreModelRequest", "PostModelRequest", "PreToolUse")
    for event in (*moments, "PostToolUse", "Stop", "SessionEnd"):
        hooks.add(event, "exit 0")
    call = script("echo made > made.txt; echo out")
    async with world(reply(call), reply(says("done")), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        id = await say(w.client, thread, "go")
        common = {
            "session_id": thread,
            "cwd": str(w.workspace),
            "model": "scripted",
            "permission_mode": "default",
        }
        started = notified(w, "hook/started")
        completed = notified(w, "hook/completed")
    [begun] = hooks.read("SessionStart")
    assert begun == {
        **common,
        "transcript_path": begun["transcript_path"],
        "hook_event_name": "SessionStart",
    } | {"source": "startup"}
    assert Path(begun["transcript_path"]).exists()
    [prompt] = hooks.read("UserPromptSubmit")
    assert (prompt["prompt"], prompt["turn_id"]) == ("go", id)
    [before], [after] = hooks.read("PreToolUse"), hooks.read("PostToolUse")
    assert (before["tool_name"], before["tool_input"]) == (
        "Bash",
        {"command": "echo made > made.txt; echo out"},
    )
    assert before["tool_use_id"] == after["tool_use_id"] == "c1"
    assert after["tool_response"] == "out\n"
    [stop] = hooks.read("Stop")
    assert (stop["stop_hook_active"], stop["last_assistant_message"]) == (False, "done")
    assert [each["hook_event_name"] for each in hooks.read("PostModelRequest")] == ["PostModelRequest"] * 2
    assert hooks.read("PostModelRequest")[0]["status"] == "completed"
    assert [each["reason"] for each in hooks.read("SessionEnd")] == ["other"]
    events = [each["run"]["eventName"] for each in started if each["turnId"] is not None]
    assert events[:3] == ["sessionStart", "userPromptSubmit", "preModelRequest"]
    assert events[-3:] == ["preModelRequest", "postModelRequest", "stop"]
    # The call runs while the stream of its reply is still read.
    assert sorted(events[3:-3]) == ["postModelRequest", "postToolUse", "preToolUse"]
    assert {each["run"]["id"] for each in started} == {each["run"]["id"] for each in completed}
    assert len(started) == len(completed)
    run = next(each["run"] for each in completed if each["run"]["eventName"] == "preToolUse")
    assert run["id"] == f"pre-tool-use:2:{hooks.home}/hooks.json:c1"
    assert (run["status"], run["scope"], run["executionMode"]) == ("completed", "turn", "sync")


@pytest.mark.parametrize(
    ("guard", "reason"),
    [
        ("echo 'not here' >&2; exit 2", "not here"),
        (answer("PreToolUse", permissionDecision="deny", permissionDecisionReason="not here"), "not here"),
        ('echo \'{"decision": "block", "reason": "not here"}\'', "not here"),
    ],
)
async def test_a_denied_command_is_an_item_that_was_declined(
    world: MakeWorld, hooks: HomeHooks, guard: str, reason: str
) -> None:
    hooks.add("PreToolUse", guard, matcher="Bash")
    async with world(reply(MAKE), reply(says("well")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, **FULL))
        assert not (w.workspace / "made.txt").exists()
        [item] = items(w, kind="commandExecution")
    assert (item["status"], item["exitCode"]) == ("declined", None)
    told = f"Command blocked by PreToolUse hook: {reason}. Command: echo made > made.txt"
    assert w.model.requests[1].outputs()["c1"] == told
    [ran] = notified(w, "hook/completed")
    assert ran["run"]["status"] == "blocked"
    assert ran["run"]["entries"] == [{"kind": "feedback", "text": reason}]


async def test_v1_shows_a_denied_command_as_one_that_did_not_run(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "exit 2")
    async with world(reply(MAKE), reply(says("well")), tables=hooks.tables()) as w:
        played = await w.client.turn(await w.open())
        assert not (w.workspace / "made.txt").exists()
    assert [end["exit_code"] for end in played.of("exec_command_end")] == [-1]
    assert played.last_message == "well"


@pytest.mark.parametrize(
    "call", [calls("apply_patch", {"input": PATCH}), script(f"apply_patch <<'E'\n{PATCH}\nE")]
)
async def test_a_patch_is_a_patch_even_inside_of_a_command(
    world: MakeWorld, hooks: HomeHooks, call: Json
) -> None:
    hooks.add("PreToolUse", "exit 2", matcher="Edit")
    hooks.add("PreToolUse", "exit 0", matcher="Bash")
    config: Json = {"include_apply_patch_tool": True}
    async with world(reply(call), reply(says("well")), tables=hooks.tables(), config=config) as w:
        await say(w.client, await start(w.client, **FULL))
        assert not (w.workspace / "new.txt").exists()
        [item] = items(w, kind="fileChange")
    assert item["status"] == "declined"
    [seen] = hooks.read("PreToolUse")
    assert (seen["tool_name"], seen["tool_input"]["command"].strip()) == ("apply_patch", PATCH)


@pytest.mark.parametrize("how", ["a folder that the script enters", "the folder of the call"])
async def test_a_guard_of_files_sees_paths_from_the_folder_of_the_turn(
    world: MakeWorld, hooks: HomeHooks, how: str
) -> None:
    """Else `cd migrations` would hide the folder from it."""
    line = f"apply_patch <<'E'\n{PATCH}\nE"
    call = (
        script(line, workdir="migrations")
        if how == "the folder of the call"
        else script(f"cd migrations && {line}")
    )
    hooks.add(
        "PreToolUse",
        f"tail -n 1 {hooks.log} | grep -q 'File: migrations/' && exit 2; exit 0",
        matcher="Write",
    )
    async with world(
        reply(call), reply(says("well")), tables=hooks.tables(), files={"migrations/1": "x"}
    ) as w:
        await say(w.client, await start(w.client, **FULL))
        assert not (w.workspace / "migrations/new.txt").exists()
        [item] = items(w, kind="fileChange")
    assert item["status"] == "declined"
    assert item["changes"][0]["path"].endswith("migrations/new.txt")


async def test_a_guard_of_commands_sees_another_folder(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", answer("PreToolUse", updatedInput={"command": "echo other > other.txt"}))
    call = script("echo made > made.txt", workdir="sub")
    async with world(reply(call), reply(says("well")), tables=hooks.tables(), files={"sub/f": "1"}) as w:
        await say(w.client, await start(w.client, **FULL))
        assert (w.workspace / "sub/other.txt").exists()
    assert hooks.read("PreToolUse")[0]["tool_input"] == {
        "command": "echo made > made.txt",
        "workdir": f"{w.workspace}/sub",
    }


async def test_another_input_does_not_change_the_folder_of_a_call(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", answer("PreToolUse", updatedInput={"command": "true", "workdir": "/"}))
    async with world(reply(MAKE), reply(says("well")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, **FULL))
    assert "does not fit into the call" in w.model.requests[1].outputs()["c1"]


async def test_another_input_is_what_runs_and_what_is_shown(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", answer("PreToolUse", updatedInput={"command": "echo other > other.txt"}))
    async with world(reply(MAKE), reply(says("done")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, **FULL))
        assert (w.workspace / "other.txt").read_text() == "other\n"
        assert not (w.workspace / "made.txt").exists()
        [item] = items(w, kind="commandExecution")
    assert item["command"].endswith("'echo other > other.txt'")


async def test_another_input_is_judged_anew_by_the_other_hooks_and_by_rules(
    world: MakeWorld, hooks: HomeHooks
) -> None:
    wanted = {"command": "rm -rf sub"}
    hooks.add("PreToolUse", answer("PreToolUse", updatedInput=wanted, permissionDecision="allow"))
    guard = f"if tail -n 2 {hooks.log} | grep -q 'rm -rf'; then echo 'no rm' >&2; exit 2; fi"
    hooks.add("PreToolUse", guard)
    async with world(reply(MAKE), reply(says("well")), tables=hooks.tables(), files={"sub/f": "1"}) as w:
        await say(w.client, await start(w.client, **FULL))
        assert (w.workspace / "sub/f").exists()
    assert "blocked by PreToolUse hook: no rm" in w.model.requests[1].outputs()["c1"]


@pytest.mark.parametrize("decision", ["accept", "decline"])
async def test_ask_is_a_question_to_the_user(world: MakeWorld, hooks: HomeHooks, decision: str) -> None:
    hooks.add("PreToolUse", answer("PreToolUse", permissionDecision="ask", permissionDecisionReason="sure?"))
    async with world(reply(MAKE), reply(says("done")), tables=hooks.tables()) as w:
        w.client.decide("item/commandExecution/requestApproval", decision)
        await say(w.client, await start(w.client, **FULL))
        asked = await w.client.anywhere("item/commandExecution/requestApproval")
        assert (w.workspace / "made.txt").exists() is (decision == "accept")
        [item] = items(w, kind="commandExecution")
    assert "sure?" in asked["params"]["reason"]
    assert item["status"] == ("completed" if decision == "accept" else "declined")


async def test_where_nobody_may_be_asked_ask_is_no(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", answer("PreToolUse", permissionDecision="ask", permissionDecisionReason="sure?"))
    async with world(reply(MAKE), reply(says("done")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, **NEVER))
        assert not (w.workspace / "made.txt").exists()
    assert "sure?" in w.model.requests[1].outputs()["c1"]


@pytest.mark.parametrize(
    ("setting", "asked"), [("", False), ('may_approve = "none"', True), ('may_approve = "all"', False)]
)
async def test_allow_answers_the_question_of_the_call_if_the_hook_may_approve(
    world: MakeWorld, hooks: HomeHooks, setting: str, asked: bool
) -> None:
    hooks.add("PreToolUse", answer("PreToolUse", permissionDecision="allow"))
    config: Json = {"approval_policy": "untrusted"}
    calls_of_both = reply(MAKE), reply(script("echo again >> made.txt", "c2")), reply(says("done"))
    async with world(*calls_of_both, tables=hooks.tables(f"[hooks]\n{setting}"), config=config) as w:
        w.client.decide("item/commandExecution/requestApproval", "decline", "decline")
        await say(w.client, await start(w.client, approvalPolicy="untrusted", sandbox="danger-full-access"))
        assert (w.workspace / "made.txt").exists() is not asked
        questions = [
            each for each in w.client.log if each.message.get("method", "").endswith("requestApproval")
        ]
    assert len(questions) == (2 if asked else 0)


async def test_allow_does_not_run_what_a_rule_forbids(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", answer("PreToolUse", permissionDecision="allow"))
    rules = hooks.home / "rules"
    rules.mkdir()
    (rules / "default.rules").write_text('prefix_rule(pattern=["touch"], decision="forbidden")\n')
    async with world(reply(script("touch made.txt")), reply(says("done")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, **FULL))
        assert not (w.workspace / "made.txt").exists()


async def test_a_permission_hook_answers_before_the_user_is_asked(world: MakeWorld, hooks: HomeHooks) -> None:
    decided = {"behavior": "deny", "message": "not today"}
    hooks.add("PermissionRequest", answer("PermissionRequest", decision=decided), matcher="Bash")
    more: Json = {"with_escalated_permissions": True, "justification": "to make it"}
    async with world(
        reply(script("echo made > made.txt", **more)), reply(says("done")), tables=hooks.tables()
    ) as w:
        await say(w.client, await start(w.client, approvalPolicy="on-request", sandbox="workspace-write"))
        assert not (w.workspace / "made.txt").exists()
        [item] = items(w, kind="commandExecution")
    assert item["status"] == "declined"
    assert w.model.requests[1].outputs()["c1"] == "blocked by PermissionRequest hook: not today"
    [seen] = hooks.read("PermissionRequest")
    assert seen["tool_input"] == {"command": "echo made > made.txt", "description": "to make it"}


async def test_a_blocked_prompt_is_shown_and_not_sent(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add(
        "UserPromptSubmit", "if grep -q password; then echo 'a secret' >&2; exit 2; fi < " + str(hooks.log)
    )
    async with world(reply(says("hello")), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        first = await turn(w.client, thread, "my password is x")
        assert (await ended(w.client, first))["status"] == "completed"
        assert w.model.requests == []
        hooks.log.write_text("")
        await say(w.client, thread, "hi")
        shown = [item["content"][0]["text"] for item in items(w, kind="userMessage")]
    assert shown == ["my password is x", "hi"]
    assert w.model.requests[0].texts() == ["hi"]
    assert any("a secret" in each["message"] for each in notified(w, "warning"))


async def test_context_is_a_developer_message(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("SessionStart", "echo 'use tabs'")
    hooks.add("UserPromptSubmit", answer("UserPromptSubmit", additionalContext="be brief"))
    hooks.add("PostToolUse", answer("PostToolUse", additionalContext="that was fast"))
    async with world(reply(MAKE), reply(says("done")), reply(says("more")), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        await say(w.client, thread)
        await say(w.client, thread)
    assert w.model.requests[0].texts("developer") == ["use tabs", "be brief"]
    assert w.model.requests[1].texts("developer")[-1] == "that was fast"
    assert len(hooks.read("SessionStart")) == 1


async def test_long_context_is_cut_and_the_whole_is_in_a_file(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("SessionStart", "yes word | head -n 10000", additionalContextLimit=10)
    async with world(reply(says("done")), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        await say(w.client, thread)
    [told] = w.model.requests[0].texts("developer")
    assert len(told) < 400
    path = Path(told.split("The whole text is in ")[1].rstrip("].").strip())
    assert path.read_text() == ("word\n" * 10000).strip()
    assert path.parent.name == thread


async def test_the_whole_of_a_context_is_removed_with_its_thread(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("SessionStart", "yes word | head -n 10000", additionalContextLimit=10)

    def kept() -> list[str]:
        return [path.parent.name for path in (hooks.home / "tmp/hook-contexts").glob("*/*.txt")]

    async with world(*(reply(says("done")) for _ in range(2)), tables=hooks.tables()) as w:
        thread, fleeting = await start(w.client, **FULL), await start(w.client, **FULL, ephemeral=True)
        for each in (thread, fleeting):
            await say(w.client, each)
        assert sorted(kept()) == sorted([thread, fleeting])
        await w.client.call("thread/delete", {"threadId": thread})
        assert kept() == [fleeting]
    assert not list((hooks.home / "tmp/hook-contexts").iterdir())


async def test_a_result_that_a_hook_objects_to_goes_to_the_model_with_the_reason(
    world: MakeWorld, hooks: HomeHooks
) -> None:
    hooks.add("PostToolUse", 'echo \'{"decision": "block", "reason": "run the tests"}\'')
    async with world(reply(MAKE), reply(says("done")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, **FULL))
    assert '"exit_code":0' in w.model.requests[1].outputs()["c1"]
    assert "run the tests" in w.model.requests[1].texts("developer")[-1]


async def test_a_stop_hook_makes_the_turn_go_on(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add(
        "Stop", f"[ -e {hooks.home}/once ] && exit 0; touch {hooks.home}/once; echo 'do <more>' >&2; exit 2"
    )
    async with world(reply(says("first")), reply(says("second", "msg-2")), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        await say(w.client, thread)
        [prompt] = items(w, kind="hookPrompt")
        run = f"stop:0:{hooks.home}/hooks.json"
        stored = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
    assert prompt["fragments"] == [{"text": "do <more>", "hookRunId": run}]
    assert (
        w.model.requests[1].texts()[-1] == f'<hook_prompt hook_run_id="{run}">do &lt;more&gt;</hook_prompt>'
    )
    assert [each["stop_hook_active"] for each in hooks.read("Stop")] == [False, True]
    kinds = [item["type"] for item in stored["thread"]["turns"][0]["items"]]
    assert kinds == ["userMessage", "agentMessage", "hookPrompt", "agentMessage"]


@pytest.mark.parametrize(
    ("setting", "requests"), [("", 4), ("max_stop_blocks = 1", 2), ("max_stop_blocks = 0", 1)]
)
async def test_a_stop_loop_ends(world: MakeWorld, hooks: HomeHooks, setting: str, requests: int) -> None:
    hooks.add("Stop", "echo 'never' >&2; exit 2")
    replies = [reply(says("again", f"msg-{n}")) for n in range(requests)]
    async with world(*replies, tables=hooks.tables(f"[hooks]\n{setting}")) as w:
        thread = await start(w.client, **FULL)
        id = await turn(w.client, thread)
        assert (await ended(w.client, id))["status"] == "completed"
    assert len(w.model.requests) == requests
    assert any("hooks.max_stop_blocks" in each["message"] for each in notified(w, "warning"))


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"])
async def test_continue_false_ends_the_turn_completed(world: MakeWorld, hooks: HomeHooks, event: str) -> None:
    hooks.add(event, 'echo \'{"continue": false, "stopReason": "enough for today"}\'')
    async with world(reply(MAKE), reply(says("done")), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        id = await turn(w.client, thread)
        assert (await ended(w.client, id))["status"] == "completed"
        ran = (w.workspace / "made.txt").exists()
    assert any(each["message"] == "enough for today" for each in notified(w, "warning"))
    expected = {"SessionStart": 0, "UserPromptSubmit": 0, "PreToolUse": 1, "PostToolUse": 1, "Stop": 2}
    assert len(w.model.requests) == expected[event]
    assert ran is (event in ("PostToolUse", "Stop"))
    assert [each["run"]["status"] for each in notified(w, "hook/completed")] == ["stopped"]


FAILURES: dict[str, tuple[str, Json]] = {
    "exit": ("exit 1", {}),
    "signal": ("kill -9 $$", {}),
    "time": ("sleep 100", {"timeout": 1}),
    "json": ("echo '{no'", {}),
    "size": ("yes | head -c 2000000", {}),
    "decision": ('echo \'{"decision": "perhaps"}\'', {}),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(
    ("on_failure", "policy", "ran", "questions"),
    [
        ("ask", "on-request", True, 1),
        ("ask", "never", False, 0),
        ("block", "on-request", False, 0),
        ("allow", "never", True, 0),
    ],
)
async def test_a_guard_that_fails(
    world: MakeWorld, hooks: HomeHooks, failure: str, on_failure: str, policy: str, ran: bool, questions: int
) -> None:
    text, more = FAILURES[failure]
    hooks.add("PreToolUse", text, **more)
    tables = hooks.tables(f'[hooks]\non_failure = "{on_failure}"\n')
    async with world(reply(MAKE), reply(says("done")), tables=tables) as w:
        w.client.decide("item/commandExecution/requestApproval", "accept")
        await say(w.client, await start(w.client, approvalPolicy=policy, sandbox="danger-full-access"))
        assert (w.workspace / "made.txt").exists() is ran
        asked = [each for each in w.client.log if each.message.get("method", "").endswith("requestApproval")]
    assert len(asked) == questions
    assert all("hook-0.sh" in each.message["params"]["reason"] for each in asked)
    [run] = [each["run"] for each in notified(w, "hook/completed")]
    assert run["status"] == "failed"
    assert run["entries"][0]["kind"] == "error"


async def test_a_handler_may_only_be_stricter_than_the_setting(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "exit 1", onFailure="allow")
    async with world(
        reply(MAKE), reply(says("done")), tables=hooks.tables('[hooks]\non_failure = "block"\n')
    ) as w:
        await say(w.client, await start(w.client, **FULL))
        assert not (w.workspace / "made.txt").exists()


async def test_a_hook_that_does_not_read_its_input_has_not_failed(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.command("PreToolUse", "/bin/true")
    long = script("echo made > made.txt; : " + "x" * 100_000)
    async with world(reply(long), reply(says("done")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, **FULL))
        assert (w.workspace / "made.txt").exists()
    [run] = [each["run"] for each in notified(w, "hook/completed")]
    assert run["status"] == "completed"


async def test_a_hook_may_be_written_for_the_users_shell(
    world: MakeWorld, hooks: HomeHooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `sh`, the condition would merely be false, and the guard agree to everything."""
    monkeypatch.setattr("app_server.engine.system_ports._shell", lambda _: "/bin/bash")
    hooks.command("PreToolUse", "if [[ $(cat) == *made.txt* ]]; then echo no >&2; exit 2; fi")
    read_first = hooks.home / "read_first.sh"
    read_first.write_text(f"touch {hooks.home}/read\n", encoding="utf-8")
    variables = {"BASH_ENV": str(read_first), "ENV": str(read_first)}
    async with world(reply(MAKE), reply(says("done")), tables=hooks.tables(), environment=variables) as w:
        await say(w.client, await start(w.client, **FULL))
        assert not (w.workspace / "made.txt").exists()
    assert not (hooks.home / "read").exists()


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("/bin/bash", ("/bin/bash", "-c", "x")),
        ("/usr/bin/zsh", ("/usr/bin/zsh", "-f", "-c", "x")),
        ("/usr/bin/fish", ("/bin/sh", "-c", "x")),
        ("/bin/sh", ("/bin/sh", "-c", "x")),
    ],
)
def test_no_shell_reads_a_file_of_the_user_before_a_hook(shell: str, line: tuple[str, ...]) -> None:
    assert shell_line(shell, "x") == line


@pytest.mark.parametrize(
    ("command", "plain"),
    [
        ("/bin/true", True),
        ("~/.codex/hooks/guard.sh --strict", True),
        (" python3 ~/guard.py a:b ", True),
        ("./guard.sh | tail -n 1", False),
        ("./guard.sh a=~/b", False),
        ("source ~/guard.sh", False),
        ("/bin/echo $HOME", False),
        ("/bin/echo *", False),
        ("/bin/true\n[[ a == a ]]", False),
        ("/bin/echo {a,b}", False),
        ("/bin/[[ a", False),
    ],
)
def test_a_program_with_plain_words_needs_no_shell_of_its_own(command: str, plain: bool) -> None:
    expected = ("/bin/sh" if plain else "/bin/bash", "-c", command)
    assert shell_line("/bin/bash", command) == expected


async def test_hooks_see_no_key_of_a_provider(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("Stop", f"env > {hooks.home}/env.txt")
    secret = {"OPENAI_API_KEY": "sk-secret", "MY_TOKEN": "t-secret", "PLAIN": "kept"}
    async with world(reply(says("done")), tables=hooks.tables(), environment=secret) as w:
        await say(w.client, await start(w.client, **FULL))
    seen = (hooks.home / "env.txt").read_text()
    assert "secret" not in seen
    assert "PLAIN=kept" in seen
    assert f"CODEX_HOME={hooks.home}" in seen
    assert f"CLAUDE_PROJECT_DIR={w.workspace}" in seen


async def test_an_interrupt_kills_the_hook(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "sleep 600")
    hooks.add("Interrupt", "exit 0")
    async with world(reply(MAKE), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        id = await turn(w.client, thread)
        await w.client.expect(
            lambda m: m.get("method") == "hook/started" and m["params"]["run"]["eventName"] == "preToolUse"
        )
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        assert (await ended(w.client, id))["status"] == "interrupted"
        assert not (w.workspace / "made.txt").exists()
    assert [each["reason"] for each in hooks.read("Interrupt")] == ["interrupted"]
    runs = [each["run"] for each in notified(w, "hook/completed")]
    assert [run["status"] for run in runs] == ["failed", "completed"]


async def test_words_of_an_interrupted_guard_do_not_reach_the_model(
    world: MakeWorld, hooks: HomeHooks
) -> None:
    hooks.add("UserPromptSubmit", f"[ -e {hooks.home}/go ] || sleep 600")
    async with world(reply(says("done")), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        id = await turn(w.client, thread, "secret words")
        await w.client.expect("hook/started")
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        await ended(w.client, id)
        (hooks.home / "go").touch()
        await say(w.client, thread, "hello")
    assert w.model.requests[0].texts() == ["hello"]
    assert any("Send it again" in each["message"] for each in notified(w, "warning"))


async def test_hooks_that_nobody_waits_for_decide_nothing(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "echo no >&2; exit 2", **ASYNC)
    async with world(reply(MAKE), reply(says("done")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, **FULL))
        assert (w.workspace / "made.txt").exists()
    [run] = [each["run"] for each in notified(w, "hook/completed")]
    assert (run["executionMode"], run["status"]) == ("async", "completed")


async def test_a_compaction_that_the_user_asked_for_can_be_blocked(
    world: MakeWorld, hooks: HomeHooks
) -> None:
    hooks.add("PreCompact", "echo 'keep it' >&2; exit 2", matcher="manual")
    async with world(reply(says("one")), tables=hooks.tables()) as w:
        thread = await start(w.client, **FULL)
        await say(w.client, thread)
        await w.client.call("thread/compact/start", {"threadId": thread})
        while len(notified(w, "turn/completed")) < 2:
            await w.client.expect("turn/completed")
    assert len(w.model.requests) == 1
    assert any("keep it" in each["message"] for each in notified(w, "warning"))


async def test_a_compaction_begins_the_session_again(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("SessionStart", "echo 'use tabs'")
    hooks.add("PostCompact", "exit 0")
    async with world(
        reply(says("one")), reply(says("sum")), reply(says("two", "m2")), tables=hooks.tables()
    ) as w:
        thread = await start(w.client, **FULL)
        await say(w.client, thread)
        await w.client.call("thread/compact/start", {"threadId": thread})
        await w.client.expect(lambda m: m.get("method") == "turn/completed")
        await say(w.client, thread)
    assert [each["source"] for each in hooks.read("SessionStart")] == ["startup", "compact"]
    assert [each["trigger"] for each in hooks.read("PostCompact")] == ["manual"]
    assert w.model.requests[-1].texts("developer") == ["use tabs"]


async def test_reviews_have_the_same_guards(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "exit 2")
    target: Json = {"type": "custom", "instructions": "look"}
    async with world(reply(MAKE), reply(says("fine")), tables=hooks.tables(), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, **FULL)
        await w.client.call("review/start", {"threadId": thread, "target": target, "delivery": "inline"})
        await w.client.expect("turn/completed")
        assert not (w.workspace / "made.txt").exists()


async def test_hooks_that_nobody_agreed_to_do_not_run_and_one_warning_says_so(
    world: MakeWorld, hooks: HomeHooks
) -> None:
    hooks.add("PreToolUse", "exit 2")
    hooks.tables()
    async with world(reply(MAKE), reply(says("done")), reply(says("more"))) as w:
        thread = await start(w.client, **FULL)
        await say(w.client, thread)
        await say(w.client, thread)
        assert (w.workspace / "made.txt").exists()
    assert len([each for each in notified(w, "warning") if "hook" in each["message"]]) == 1
    assert notified(w, "hook/started") == []


TOOL: Json = {
    "type": "function",
    "name": "lookup",
    "description": "Looks a ticket up.",
    "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
}


async def test_a_tool_of_the_client_has_its_own_name_and_is_an_item_too(
    world: MakeWorld, hooks: HomeHooks
) -> None:
    hooks.add("PreToolUse", "echo no >&2; exit 2", matcher="lookup")
    call = calls("lookup", {"id": "7"}, "d1")
    async with world(reply(call), reply(says("ok")), tables=hooks.tables(), capabilities=EXPERIMENTAL) as w:
        await say(w.client, await start(w.client, dynamicTools=[TOOL], **FULL))
        [item] = items(w, kind="dynamicToolCall")
    assert (item["status"], item["success"]) == ("failed", False)
    assert w.model.requests[1].outputs()["d1"] == "Tool call blocked by PreToolUse hook: no. Tool: lookup"
    [seen] = hooks.read("PreToolUse")
    assert (seen["tool_name"], seen["tool_input"]) == ("lookup", {"id": "7"})


PLAN = calls("update_plan", {"plan": [{"step": "look", "status": "pending"}]}, "p1")


@pytest.mark.parametrize(("answer_given", "runs"), [("Yes", True), ("No", False), ("maybe", False)])
async def test_a_call_without_a_question_of_its_own_is_asked_about_in_another_form(
    world: MakeWorld, hooks: HomeHooks, answer_given: str, runs: bool
) -> None:
    hooks.add("PreToolUse", "exit 1", matcher="update_plan")
    async with world(reply(PLAN), reply(says("ok")), tables=hooks.tables(), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, **FULL)
        id = await turn(w.client, thread)
        asked = await w.client.expect("item/tool/requestUserInput")
        [question] = asked["params"]["questions"]
        assert "hook-0.sh" in question["question"]
        await w.client.answer(asked, {"answers": {question["id"]: {"answers": [answer_given]}}})
        await ended(w.client, id)
        assert bool(notified(w, "turn/plan/updated")) is runs


async def test_where_that_form_is_not_known_the_answer_is_no(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "exit 1", matcher="update_plan")
    config: Json = {"approval_policy": "on-request"}
    async with world(reply(PLAN), reply(says("ok")), tables=hooks.tables(), config=config) as w:
        played = await w.client.turn(await w.open())
    assert played.of("plan_update") == []
    assert "did not say yes" in w.model.requests[1].outputs()["p1"]
    assert any("exit code 1" in each["message"] for each in w.client.events("background_event"))


async def test_a_broken_prompt_guard_asks_whether_to_send(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("UserPromptSubmit", "exit 1")
    async with world(reply(says("ok")), tables=hooks.tables(), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, **FULL)
        for given, requests in (("No", 0), ("Yes", 1)):
            id = await turn(w.client, thread, given)
            asked = await w.client.expect("item/tool/requestUserInput")
            [question] = asked["params"]["questions"]
            await w.client.answer(asked, {"answers": {question["id"]: {"answers": [given]}}})
            await ended(w.client, id)
            assert len(w.model.requests) == requests
    assert w.model.requests[0].texts() == ["Yes"]


async def test_an_editor_sees_a_denied_call_as_a_failed_one(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "echo 'not here' >&2; exit 2")
    async with world(reply(MAKE), reply(says("ok")), tables=hooks.tables(), acp=True) as w:
        editor, session = await opened(w)
        assert await editor.ends(session) == "end_turn"
        assert not (w.workspace / "made.txt").exists()
        states = [update.get("status") for update in editor.updates() if update.get("toolCallId")]
    assert states[-1] == "failed"
    assert "not here" in w.model.requests[1].outputs()["c1"]


@pytest.mark.parametrize("guard", ["exit 1", "exit 2"])
async def test_exec_runs_hooks_and_asks_nobody(tmp_path: Path, hooks: HomeHooks, guard: str) -> None:
    hooks.add("PreToolUse", f"echo 'not here' >&2; {guard}")
    (tmp_path / "workspace").mkdir(exist_ok=True)
    done = await run(tmp_path, "go", replies=(reply(MAKE), reply(says("ok"))), tables=hooks.tables())
    assert not (tmp_path / "workspace/made.txt").exists()
    assert "ok" in done.stdout
    assert len(hooks.read("PreToolUse")) == 1
