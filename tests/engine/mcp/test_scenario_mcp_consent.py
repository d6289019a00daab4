"""Approval of MCP tool calls that may change things: the client that is asked, the text of the question, and the
meaning of an answer, in all APIs.
"""

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.engine.hooks.hook_scripts import HomeHooks
from tests.engine.mcp.test_scenario_mcp import SERVER, table
from tests.support.editor import EVERYTHING, opened
from tests.support.scripted_model import Reply, calls, reply, says
from tests.support.thread_client import notified, say, start
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

ELICITATION = "mcpServer/elicitation/request"
INQUIRY = "item/tool/requestUserInput"
ACCEPTS: Json = {"action": "accept", "content": {}}
ASKS = {"approval_policy": "on-request"}
REJECTED = "user rejected MCP tool call"
CANCELLED = "user cancelled MCP tool call"
NEVER = "MCP tool call requires approval, but approval policy is never"
NOBODY = "MCP tool call requires approval, and no client that is connected can be asked"


def changing(*ids: str, tool: str = "change") -> Sequence[Reply]:
    """Return replies that call a tool in each turn."""
    turns = ((reply(calls(f"mcp__notes__{tool}", {"text": "hello"}, id)), reply(says("ok"))) for id in ids)
    return [each for turn in turns for each in turn]


def outcomes(w: World) -> list[Json]:
    """Return the error of each call in its order, None for a call that succeeded."""
    items = [params["item"] for params in notified(w, "item/completed")]
    ended = [item for item in items if item["type"] == "mcpToolCall"]
    assert all((item["status"] == "completed") is (item["error"] is None) for item in ended)
    return [item["error"] and item["error"]["message"] for item in ended]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (ACCEPTS, None),
        ({"action": "accept", "content": None, "_meta": None}, None),
        ({"action": "decline"}, REJECTED),
        ({"action": "cancel"}, CANCELLED),
        ({"action": "approved"}, REJECTED),
        ({"decision": "accept"}, REJECTED),
        ({}, REJECTED),
        (["accept", {}], REJECTED),
    ],
)
async def test_a_tool_that_may_change_things_is_asked_about(
    world: MakeWorld, answer: Json, outcome: str | None
) -> None:
    async with world(*changing("m1"), tables=table("notes"), config=ASKS) as w:
        w.client.decide(ELICITATION, answer)
        id = await say(w.client, await start(w.client))
        (question,) = notified(w, ELICITATION)
        assert outcomes(w) == [outcome]
    assert question["turnId"] == id
    assert question["_meta"] == {
        "codex_approval_kind": "mcp_tool_call",
        "persist": ["session", "always"],
        "tool_name": "change",
        "tool_description": "Changes something",
        "tool_params": {"text": "hello"},
        "tool_params_display": [{"name": "text", "value": "hello", "display_name": "text"}],
    }
    assert (question["serverName"], question["mode"]) == ("notes", "form")
    assert question["message"] == 'Allow the notes MCP server to run tool "change"?'
    assert question["requestedSchema"] == {"type": "object", "properties": {}}
    assert (outcome or "hello") in w.model.requests[1].outputs()["m1"]


async def test_the_question_waits_for_approval_and_has_the_hints(world: MakeWorld) -> None:
    tables = table("notes", default_tools_approval_mode='"prompt"')
    async with world(*changing("m1", tool="echo"), tables=tables, config=ASKS) as w:
        w.client.decide(ELICITATION, ACCEPTS)
        await say(w.client, await start(w.client))
        (question,) = notified(w, ELICITATION)
        assert question["_meta"]["tool_annotations"] == {"readOnlyHint": True}
        flags = [each["status"].get("activeFlags") for each in notified(w, "thread/status/changed")]
        assert ["waitingOnApproval"] in flags
        begun = [params["item"] for params in notified(w, "item/started")]
        assert [item["readOnlyHint"] for item in begun if item["type"] == "mcpToolCall"] == [True]


@pytest.mark.parametrize(
    ("settings", "config", "outcome"),
    [
        ({}, {"approval_policy": "never", "sandbox_mode": "read-only"}, NEVER),
        ({}, {"approval_policy": "never", "sandbox_mode": "workspace-write"}, NEVER),
        ({}, {"approval_policy": "never", "sandbox_mode": "danger-full-access"}, None),
        ({"default_tools_approval_mode": '"approve"'}, ASKS, None),
        (
            {"default_tools_approval_mode": '"writes"'},
            {"approval_policy": "never", "sandbox_mode": "read-only"},
            NEVER,
        ),
        ({"tools.change.approval_mode": '"approve"'}, {"approval_policy": "never"}, None),
    ],
)
async def test_a_call_without_a_question(
    world: MakeWorld, settings: dict[str, str], config: Mapping[str, str], outcome: str | None
) -> None:
    """The client's own calls need no approval under any policy."""
    async with world(*changing("m1"), tables=table("notes", **settings), config=config) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        direct = {"threadId": thread, "server": "notes", "tool": "change", "arguments": {"text": "x"}}
        assert await w.client.call("mcpServer/tool/call", direct)
        assert not notified(w, ELICITATION)
        assert outcomes(w) == [outcome]


async def test_a_reader_is_not_asked_about(world: MakeWorld) -> None:
    async with world(*changing("m1", tool="echo"), tables=table("notes"), config=ASKS) as w:
        await say(w.client, await start(w.client))
        assert (outcomes(w), notified(w, ELICITATION)) == ([None], [])


async def test_a_yes_for_the_session_is_for_that_tool_in_that_thread(world: MakeWorld) -> None:
    tables = table("notes", env="{ HINTS = '{\"hinted_other\": null}' }")
    replies = [*changing("m1", "m2"), *changing("m3", tool="hinted_other"), *changing("m4")]
    async with world(*replies, tables=tables, config=ASKS) as w:
        answers = iter(
            [{**ACCEPTS, "_meta": {"persist": "session"}}, {"action": "decline"}, {"action": "decline"}]
        )
        w.client.decide(ELICITATION, lambda request: next(answers))
        thread = await start(w.client)
        for _ in range(3):
            await say(w.client, thread)
        await say(w.client, await start(w.client))
        assert outcomes(w) == [None, None, REJECTED, REJECTED]


async def test_a_yes_for_good_goes_into_the_settings(world: MakeWorld) -> None:
    async with world(*changing("m1", "m2"), tables=table("notes"), config=ASKS) as w:
        w.client.decide(ELICITATION, {**ACCEPTS, "_meta": {"persist": "always"}})
        for _ in range(2):
            await say(w.client, await start(w.client))
        assert outcomes(w) == [None, None]
        assert len(notified(w, ELICITATION)) == 1
        kept = tomllib.loads((w.home / "config.toml").read_text())["mcp_servers"]["notes"]
    assert kept["tools"] == {"change": {"approval_mode": "approve"}}


@pytest.mark.parametrize("of_request", [True, False])
async def test_a_yes_for_good_is_not_offered_where_the_settings_cannot_keep_it(
    world: MakeWorld, of_request: bool
) -> None:
    """Either the request defines the server under a name of the settings, or clients do not have the user's rights."""
    own: Json = {"command": sys.executable, "args": [str(SERVER)], "env": {"OWN": "1"}}
    tables = table("notes") + ("" if of_request else "[app_server]\nclient_rights = false\n")
    async with world(*changing("m1"), tables=tables, config=ASKS) as w:
        w.client.decide(ELICITATION, {**ACCEPTS, "_meta": {"persist": "always"}})
        before = (w.home / "config.toml").read_text()
        await say(
            w.client, await start(w.client, **({"config": {"mcp_servers.notes": own}} if of_request else {}))
        )
        (question,) = notified(w, ELICITATION)
        assert question["_meta"]["persist"] == ["session"]
        assert outcomes(w) == [None]
        assert (w.home / "config.toml").read_text() == before


@pytest.mark.parametrize("mode", ["prompt", "writes"])
@pytest.mark.parametrize("persist", ["session", "always"])
async def test_settings_that_name_the_calls_to_ask_about_have_each_asked_about(
    world: MakeWorld, mode: str, persist: str
) -> None:
    tables = table("notes", default_tools_approval_mode=f'"{mode}"')
    async with world(*changing("m1", "m2"), tables=tables, config=ASKS) as w:
        w.client.decide(ELICITATION, {**ACCEPTS, "_meta": {"persist": persist}})
        before = (w.home / "config.toml").read_text()
        thread = await start(w.client)
        for _ in range(2):
            await say(w.client, thread)
        questions = notified(w, ELICITATION)
        assert len(questions) == 2
        assert not any("persist" in each["_meta"] for each in questions)
        assert outcomes(w) == [None, None]
        assert (w.home / "config.toml").read_text() == before


async def test_all_ways_of_asking_offer_nothing_lasting_about_such_calls(world: MakeWorld) -> None:
    tables = table("notes", **{"tools.change.approval_mode": '"prompt"'})
    async with world(*changing("m1", "m2"), tables=tables, config=ASKS) as w:
        choose: Json = {"answers": ["Allow for this session"]}
        w.client.decide(
            INQUIRY, lambda request: {"answers": {request["params"]["questions"][0]["id"]: choose}}
        )
        thread = await start(w.client, config={"features.tool_call_mcp_elicitation": False})
        for _ in range(2):
            await say(w.client, thread)
        asked = [params["questions"][0] for params in notified(w, INQUIRY)]
        assert [[option["label"] for option in each["options"]] for each in asked] == 2 * [
            ["Allow", "Cancel"]
        ]
        assert outcomes(w) == [None, None]
    async with world(*changing("m1", "m2"), tables=tables, config=ASKS, acp=True) as w:
        editor, session = await opened(w)
        editor.permit("allow_once", "allow_for_session")
        assert [await editor.ends(session) for _ in range(2)] == ["end_turn", "end_turn"]
        asked = notified(w, "session/request_permission")
        assert [[option["kind"] for option in each["options"]] for each in asked] == 2 * [
            ["allow_once", "reject_once"]
        ]
    able: Json = {"elicitation": True}
    async with world(*changing("m1", "m2"), tables=tables, config=ASKS, capabilities=able) as w:
        w.client.decide("elicitationRequest", {**ACCEPTS, "_meta": {"persist": "session"}})
        conversation = await w.open()
        for _ in range(2):
            await w.client.turn(conversation)
        assert len(notified(w, "elicitationRequest")) == 2


@pytest.mark.parametrize(
    ("choice", "again", "outcome"),
    [
        (["Allow"], True, None),
        (["Allow for this session"], False, None),
        (["Cancel"], True, CANCELLED),
        (["Yes"], True, CANCELLED),
        ([], True, CANCELLED),
        (["Allow", "Cancel"], True, CANCELLED),
    ],
)
async def test_clients_may_be_asked_as_by_the_model(
    world: MakeWorld, choice: list[str], again: bool, outcome: str | None
) -> None:
    asked_so = {"features.tool_call_mcp_elicitation": False}
    async with world(*changing("m1", "m2"), tables=table("notes"), config=ASKS) as w:
        w.client.decide(
            INQUIRY,
            lambda request: {"answers": {request["params"]["questions"][0]["id"]: {"answers": choice}}},
        )
        thread = await start(w.client, config=asked_so)
        await say(w.client, thread)
        (params,) = notified(w, INQUIRY)
        (question,) = params["questions"]
        assert (params["itemId"], params["isBlocking"]) == ("m1", True)
        assert (question["id"], question["header"]) == (
            "mcp_tool_call_approval_m1",
            "Approve app tool call?",
        )
        assert (question["isOther"], question["isSecret"]) == (False, False)
        assert [option["label"] for option in question["options"]] == [
            "Allow",
            "Allow for this session",
            "Cancel",
        ]
        await say(w.client, thread)
        assert outcomes(w) == [outcome, outcome]
        assert len(notified(w, INQUIRY)) == 1 + again
        assert not notified(w, ELICITATION)


# --- hints, policies and APIs together
HINTED: dict[str, tuple[Json, bool]] = {
    "hinted_none": (None, True),
    "hinted_reader": ({"readOnlyHint": True}, False),
    "hinted_open_reader": ({"readOnlyHint": True, "openWorldHint": True}, False),
    "hinted_no_reader": ({"readOnlyHint": False}, True),
    "hinted_destructive": ({"destructiveHint": True}, True),
    "hinted_not_destructive": ({"destructiveHint": False}, True),
    "hinted_closed": ({"openWorldHint": False}, True),
    "hinted_harmless": ({"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}, False),
}
"""Hints by tool, and whether the user is asked about the tool."""

ASKING = {"v1": "elicitationRequest", "v2": ELICITATION, "acp": "session/request_permission"}


@pytest.mark.parametrize("policy", ["untrusted", "on-failure", "on-request", "never"])
@pytest.mark.parametrize("api", ASKING)
async def test_hints_decide_under_every_policy_in_every_api(world: MakeWorld, api: str, policy: str) -> None:
    hints = json.dumps({tool: given for tool, (given, _) in HINTED.items()})
    tables = table("notes", env=f"{{ HINTS = {json.dumps(hints)} }}")
    replies = [reply(*(calls(f"mcp__notes__{tool}", {}, tool) for tool in HINTED)), reply(says("ok"))]
    config = {"approval_policy": policy, "sandbox_mode": "read-only"}
    able: Json = {"elicitation": True} if api == "v1" else None
    async with world(*replies, tables=tables, config=config, capabilities=able, acp=api == "acp") as w:
        if api == "acp":
            editor, session = await opened(w)
            editor.permit(*["allow_once"] * len(HINTED))
            assert await editor.ends(session) == "end_turn"
            asked = {each["toolCall"]["toolCallId"] for each in notified(w, ASKING[api])}
        else:
            w.client.decide(ASKING[api], ACCEPTS)
            if api == "v1":
                await w.client.turn(await w.open())
            else:
                await say(w.client, await start(w.client))
            questions = [each["message"] for each in notified(w, ASKING[api])]
            asked = {tool for tool in HINTED if any(f'"{tool}"' in each for each in questions)}
        outputs = w.model.requests[1].outputs()
    expected = {tool for tool, (_, is_asked) in HINTED.items() if is_asked}
    assert asked == (set() if policy == "never" else expected)
    ran = {tool for tool in HINTED if f"{tool} ran" in outputs[tool]}
    refused = expected - ({"hinted_none"} if api == "v1" else set()) if policy == "never" else set()
    assert ran == HINTED.keys() - refused
    assert all(NEVER in outputs[tool] for tool in refused)


# --- the conversation API
async def test_the_conversation_api_asks_by_an_elicitation(world: MakeWorld) -> None:
    tables, able = table("notes"), {"elicitation": True}
    async with world(*changing("m1", "m2"), tables=tables, config=ASKS, capabilities=able) as w:
        answers = iter([ACCEPTS, {"action": "decline"}])
        w.client.decide("elicitationRequest", lambda request: next(answers))
        conversation = await w.open()
        ends = [(await w.client.turn(conversation)).of("mcp_tool_call_end")[0] for _ in range(2)]
        question = notified(w, "elicitationRequest")[0]
    assert (question["serverName"], question["message"]) == (
        "notes",
        'Allow the notes MCP server to run tool "change"?',
    )
    assert "Ok" in ends[0]["result"]
    assert ends[1]["result"] == {"Err": REJECTED}


async def test_a_call_is_refused_where_no_client_can_be_asked(world: MakeWorld) -> None:
    async with world(*changing("m1"), tables=table("notes"), config=ASKS) as w:
        turn = await w.client.turn(await w.open())
    (end,) = turn.of("mcp_tool_call_end")
    assert end["result"] == {"Err": NOBODY}
    assert NOBODY in w.model.requests[1].outputs()["m1"]


@pytest.mark.parametrize(
    ("settings", "runs"),
    [
        ({}, True),
        ({"default_tools_approval_mode": '"prompt"'}, False),
        ({"tools.change.approval_mode": '"writes"'}, False),
    ],
)
async def test_where_nobody_is_asked_old_clients_get_tools_without_hints(
    world: MakeWorld, settings: dict[str, str], runs: bool
) -> None:
    config = {"approval_policy": "never", "sandbox_mode": "read-only"}
    async with world(*changing("m1"), tables=table("notes", **settings), config=config) as w:
        turn = await w.client.turn(await w.open())
    (end,) = turn.of("mcp_tool_call_end")
    assert ("Ok" in end["result"]) is runs
    assert runs or end["result"] == {"Err": NEVER}


# --- editors over ACP
@pytest.mark.parametrize("forms", [True, False])
@pytest.mark.parametrize(
    ("option", "end", "made", "asked"),
    [
        ("allow_once", "end_turn", True, 2),
        ("allow_for_session", "end_turn", True, 1),
        ("decline", "end_turn", False, 2),
    ],
)
async def test_an_editor_is_asked_about_the_call(
    world: MakeWorld, forms: bool, option: str, end: str, made: bool, asked: int
) -> None:
    async with world(*changing("m1", "m2"), tables=table("notes"), config=ASKS, acp=True) as w:
        editor, session = await opened(w, *([EVERYTHING] if forms else []))
        editor.permit(option, option)
        assert [await editor.ends(session) for _ in range(2)] == [end, end]
        questions = notified(w, "session/request_permission")
        assert [each["toolCall"]["toolCallId"] for each in questions] == ["m1", "m2"][:asked]
        shown = questions[0]["toolCall"]
        assert shown["content"][0]["content"]["text"] == 'Allow the notes MCP server to run tool "change"?'
        assert shown["rawInput"]["arguments"] == {"text": "hello"}
        kinds = [each["kind"] for each in questions[0]["options"]]
        assert kinds == ["allow_once", "allow_always", "reject_once"]
        results = [str(call.get("rawOutput")) for call in editor.calls().values()]
        assert ["hello" in each for each in results] == [made, made]


async def test_an_editor_that_closes_the_question_ends_the_turn(world: MakeWorld) -> None:
    async with world(*changing("m1"), tables=table("notes"), config=ASKS, acp=True) as w:
        editor, session = await opened(w)
        w.client.decide("session/request_permission", {"outcome": {"outcome": "cancelled"}})
        assert await editor.ends(session) == "cancelled"


DENIED: Json = {"decision": {"behavior": "deny", "message": "not now"}}
ALLOWED: Json = {"decision": {"behavior": "allow"}}


@pytest.mark.parametrize(
    ("event", "own", "questions", "outcome"),
    [
        ("PreToolUse", {"permissionDecision": "allow"}, 0, None),
        ("PreToolUse", {"permissionDecision": "ask", "permissionDecisionReason": "sure?"}, 1, None),
        ("PermissionRequest", ALLOWED, 0, None),
        ("PermissionRequest", DENIED, 0, "blocked by PermissionRequest hook: not now"),
    ],
)
async def test_hooks_answer_the_question_or_want_it_asked(
    world: MakeWorld, tmp_path: Path, event: str, own: Json, questions: int, outcome: str | None
) -> None:
    hooks = HomeHooks(tmp_path)
    answer = json.dumps({"hookSpecificOutput": {"hookEventName": event, **own}})
    hooks.add(event, f"echo '{answer}'", matcher="mcp__notes__.*")
    tables = hooks.tables(table("notes"))
    async with world(*changing("m1"), tables=tables, config=ASKS) as w:
        w.client.decide(ELICITATION, ACCEPTS)
        await say(w.client, await start(w.client))
        asked = notified(w, ELICITATION)
        assert outcomes(w) == [outcome]
    assert len(asked) == questions
    assert all("sure?" in each["message"] for each in asked)
    [seen] = hooks.read(event)
    assert (seen["tool_name"], seen["tool_input"]["text"]) == ("mcp__notes__change", "hello")


async def test_a_call_that_a_hook_denies_fails_with_its_reason(world: MakeWorld, tmp_path: Path) -> None:
    hooks = HomeHooks(tmp_path)
    hooks.add("PreToolUse", "echo no >&2; exit 2")
    async with world(*changing("m1"), tables=hooks.tables(table("notes")), config=ASKS) as w:
        await say(w.client, await start(w.client))
        assert outcomes(w) == ["Tool call blocked by PreToolUse hook: no. Tool: mcp__notes__change"]
