"""One turn: the notifications to the client, the requests to the model, and their order."""

import base64
import gc
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import SessionEvent
from tests.support.client import text_item
from tests.support.scripted_model import Hold, begins_to_say, calls, done, reply, runs, says, script, word
from tests.support.world import MakeWorld, Transport, World

pytestmark = pytest.mark.scenario


@pytest.mark.parametrize("method", ["sendUserMessage", "sendUserTurn"])
async def test_an_empty_message_starts_no_request(world: MakeWorld, method: str) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        params = w.user_turn(conversation, items=[])
        await w.client.call(
            method, params if method == "sendUserTurn" else {"conversationId": conversation, "items": []}
        )
        done = await w.client.expect("task_complete")
        assert done["params"]["msg"]["last_agent_message"] is None
        assert w.client.events("task_started") == []
        assert w.model.requests == []
        assert (await w.client.turn(conversation, "hi")).last_message == "ok"
    assert w.model.requests[0].texts() == ["hi"]


async def test_saying_nothing_into_a_turn_changes_nothing(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(hold, script("true")), reply(says("ok"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "hi")
        await hold.reached.wait()
        await w.client.call("sendUserMessage", {"conversationId": conversation, "items": []})
        hold.release()
        await w.client.expect("task_complete")
    assert w.model.requests[1].texts() == ["hi"]


REASONS = {"model_supports_reasoning_summaries": True}
DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.parametrize("transport", ["memory", pytest.param("process", marks=pytest.mark.process)])
async def test_a_turn_streams_its_answer_and_ends(world: MakeWorld, transport: Transport) -> None:
    hello = reply(begins_to_say(), word("Hel"), word("lo"), says("Hello"))
    async with world(hello, transport=transport) as w:
        turn = await w.client.turn(await w.open(), "hi")
        assert turn.last_message == "Hello"
    asked = ("initialize", "newConversation", "addConversationListener", "sendUserMessage")
    messages = [
        entry.message for entry in w.client.log if "codex/event/" not in entry.message.get("method", "")
    ]
    assert [each.get("method", "a result") for each in messages] == [
        *(each for method in asked for each in (method, "a result"))
    ]
    said = ("message", "delta", "last_agent_message")
    told = [(each["type"], *[each[name] for name in said if name in each]) for each in turn.events]
    beside = (
        *("item_started", "item_completed", "agent_message_content_delta"),
        *("token_count", "background_event", "warning"),
    )
    assert [each for each in told if each[0] not in beside] == [
        ("task_started",),
        ("user_message", "hi"),
        ("agent_message_delta", "Hel"),
        ("agent_message_delta", "lo"),
        ("agent_message", "Hello"),
        ("task_complete", "Hello"),
    ]
    assert [request.texts() for request in w.model.requests] == [["hi"]]


async def test_operations_are_counted_from_zero_and_approvals_are_operations(world: MakeWorld) -> None:
    first = (reply(script("echo > a")), reply(says("one")))
    async with world(*first, reply(says("two")), config={"approval_policy": "untrusted"}) as w:
        w.client.decide("execCommandApproval", "approved")
        conversation = await w.open()
        await w.client.turn(conversation, "first")
        second = await w.client.turn(conversation, "second")
    assert {m["params"]["id"] for m in second.messages if m.get("method", "").startswith("codex/event")} == {
        "2"
    }


async def test_token_counts_add_up(world: MakeWorld) -> None:
    replies = reply(says("a"), input=100, cached=40, output=20), reply(says("b"), input=200, output=30)
    async with world(*replies, config={"model_context_window": 1000}) as w:
        conversation = await w.open()
        await w.client.turn(conversation)
        turn = await w.client.turn(conversation)
    info = turn.of("token_count")[-1]["info"]
    assert info["total_token_usage"]["total_tokens"] == 350
    assert info["last_token_usage"]["total_tokens"] == 230
    assert info["total_token_usage"]["cached_input_tokens"] == 40
    assert turn.of("task_started") == [{"type": "task_started", "model_context_window": 950}], (
        "a twentieth is kept for the answer"
    )


async def test_rate_limits_of_the_provider_reach_the_client(world: MakeWorld) -> None:
    headers = (
        ("x-codex-primary-used-percent", "12.5"),
        ("x-codex-primary-window-minutes", "300"),
        ("x-codex-primary-reset-at", "1704069000"),
    )
    async with world(reply(says("ok"), headers=headers)) as w:
        turn = await w.client.turn(await w.open())
    limits = turn.of("token_count")[-1]["rate_limits"]
    assert limits["primary"] == {"used_percent": 12.5, "window_minutes": 300, "resets_at": 1704069000}


async def test_reasoning_is_shown_as_it_comes(world: MakeWorld) -> None:
    item = {"type": "reasoning", "id": "rs-1", "summary": [{"type": "summary_text", "text": "**Plan**"}]}
    thinking = reply(
        {"type": "response.output_item.added", "item": {**item, "summary": []}},
        {"type": "response.reasoning_summary_text.delta", "delta": "**Pl", "summary_index": 0},
        {"type": "response.reasoning_summary_text.delta", "delta": "an**", "summary_index": 0},
        {"type": "response.reasoning_text.delta", "delta": "secret", "content_index": 0},
        done(
            {**item, "content": [{"type": "reasoning_text", "text": "secret"}], "encrypted_content": "blob"}
        ),
        says("done"),
    )
    async with world(thinking, reply(says("again"))) as w:
        conversation = await w.open()
        turn = await w.client.turn(conversation)
        await w.client.turn(conversation)
    assert "".join(each["delta"] for each in turn.of("agent_reasoning_delta")) == "**Plan**"
    assert [each["text"] for each in turn.of("agent_reasoning")] == ["**Plan**"]
    assert not [kind for kind in turn.kinds() if "raw" in kind], "raw reasoning is shown only if asked for"
    (sent_back,) = [item for item in w.model.requests[1].input if item["type"] == "reasoning"]
    assert sent_back["encrypted_content"] == "blob"


async def test_a_plan_is_shown_and_an_invalid_one_is_returned_to_the_model(world: MakeWorld) -> None:
    plan = {"explanation": "why", "plan": [{"step": "a", "status": "in_progress"}]}
    bad = calls("update_plan", {"plan": "nonsense"}, "p2")
    async with world(reply(calls("update_plan", plan, "p1")), reply(bad), reply(says("ok"))) as w:
        turn = await w.client.turn(await w.open())
    assert turn.of("plan_update") == [{"type": "plan_update", **plan}]
    outputs = w.model.requests[2].outputs()
    assert outputs["p1"] == "Plan updated"
    assert "failed to parse" in outputs["p2"]


async def test_calls_of_one_reply_run_in_the_models_order(world: MakeWorld) -> None:
    """The order does not depend on the durations: the second call finds what the first one has left."""
    first = script("echo first > made; sleep 0.2; echo end >> made", "c1")
    second = script("cat made; rm made", "c2")
    third = script("ls made 2>/dev/null || echo gone", "c3")
    async with world(reply(first, second, third), reply(says("done"))) as w:
        turn = await w.client.turn(await w.open())
    spans = [
        (e["type"], e["call_id"])
        for e in turn.events
        if e["type"] in ("exec_command_begin", "exec_command_end")
    ]
    assert spans == [
        (f"exec_command_{what}", call) for call in ("c1", "c2", "c3") for what in ("begin", "end")
    ]
    assert [e["aggregated_output"] for e in turn.of("exec_command_end")] == ["", "first\nend\n", "gone\n"]
    kinds = [(item["type"], item.get("call_id")) for item in w.model.requests[1].input if "call_id" in item]
    assert kinds == [
        (kind, call) for call in ("c1", "c2", "c3") for kind in ("function_call", "function_call_output")
    ]


async def test_calls_that_make_no_sense_are_answered_and_the_turn_goes_on(world: MakeWorld) -> None:
    nonsense = (
        calls("no_such_tool", {}, "t1"),
        calls("shell", "{not json", "t2"),
        calls("shell", {"command": "ls"}, "t3"),
        calls("shell", {"command": []}, "t4"),
        calls("shell", {"command": ["true"], "timeout_ms": -1}, "t5"),
        calls("shell", {"command": ["true"], "workdir": "/no/such/folder"}, "t6"),
        calls("shell", {"command": ["/no/such/program"]}, "t7"),
    )
    async with world(reply(*nonsense), reply(says("ok"))) as w:
        turn = await w.client.turn(await w.open())
    assert turn.last_message == "ok"
    outputs = w.model.requests[1].outputs()
    assert list(outputs) == ["t1", "t2", "t3", "t4", "t5", "t6", "t7"]
    assert all(outputs.values())
    assert "no_such_tool" in outputs["t1"]


async def test_output_and_exit_code_reach_client_and_model(world: MakeWorld) -> None:
    call = script("echo out; echo err >&2; printf '\\377'; exit 3")
    async with world(reply(call), reply(says("ok"))) as w:
        turn = await w.client.turn(await w.open())
    (end,) = turn.of("exec_command_end")
    assert (end["exit_code"], end["stderr"]) == (3, "err\n")
    assert end["stdout"].startswith("out\n")
    shown = b"".join(base64.b64decode(e["chunk"]) for e in turn.of("exec_command_output_delta"))
    assert sorted(shown) == sorted(b"out\nerr\n\xff")
    assert "err" in w.model.requests[1].outputs()["c1"]


async def test_a_command_that_takes_too_long_is_ended(world: MakeWorld) -> None:
    call = script("echo begun; sleep 1000", timeout_ms=300)
    async with world(reply(call), reply(says("ok"))) as w:
        turn = await w.client.turn(await w.open())
    (end,) = turn.of("exec_command_end")
    assert (end["exit_code"], end["stdout"]) == (124, "begun\n")
    assert "timed out" in w.model.requests[1].outputs()["c1"]


async def test_images_are_sent_and_files_that_are_none_are_named(world: MakeWorld) -> None:
    async with world(reply(says("seen")), files={"dot.png": DOT, "notes.txt": "text"}) as w:
        items: list[Json] = [
            text_item("look"),
            {"type": "image", "data": {"image_url": "data:image/png;base64,AAAA"}},
            {"type": "localImage", "data": {"path": str(w.workspace / "dot.png")}},
            {"type": "localImage", "data": {"path": str(w.workspace / "missing.png")}},
        ]
        turn = await w.client.turn(await w.open(), items=items)
    assert turn.last_message == "seen"
    content = w.model.requests[0].input[-1]["content"]
    images = [part["image_url"] for part in content if part["type"] == "input_image"]
    assert images[0] == "data:image/png;base64,AAAA"
    assert base64.b64decode(images[1].partition(",")[2]).startswith(b"\x89PNG")
    assert any("missing.png" in part.get("text", "") for part in content)


async def test_the_model_can_look_at_an_image(world: MakeWorld) -> None:
    looks = reply(
        calls("view_image", {"path": "dot.png"}, "v1"), calls("view_image", {"path": "no.png"}, "v2")
    )
    async with world(looks, reply(says("seen")), files={"dot.png": DOT}) as w:
        turn = await w.client.turn(await w.open())
    assert [Path(e["path"]).name for e in turn.of("view_image_tool_call")] == ["dot.png"]
    kinds = [
        part["type"] for item in w.model.requests[1].input if item.get("role") for part in item["content"]
    ]
    assert "input_image" in kinds
    assert "no.png" in w.model.requests[1].outputs()["v2"]


async def test_project_documents_are_part_of_the_opening(world: MakeWorld) -> None:
    files = {"AGENTS.md": "Use tabs.", "sub/AGENTS.md": "In sub, spaces."}
    async with world(reply(says("ok")), files=files, git=True) as w:
        w.write({"AGENTS.md": "From home."}, under=w.home)
        await w.client.turn(await w.client.open(cwd=str(w.workspace / "sub")))
    opening = str(w.model.requests[0].input)
    places = [opening.index(text) for text in ("From home.", "Use tabs.", "In sub, spaces.")]
    assert places == sorted(places)


async def test_settings_of_a_turn_persist_and_the_model_is_informed_of_changes(world: MakeWorld) -> None:
    replies = reply(runs("pwd")), reply(says("one")), reply(says("two"))
    async with world(*replies, files={"sub/a.txt": ""}, config=REASONS) as w:
        conversation = await w.open()
        over = {
            "cwd": str(w.workspace / "sub"),
            "model": "another",
            "effort": "high",
            "summary": "concise",
            "sandboxPolicy": {"mode": "read-only"},
        }
        await w.client.call("sendUserTurn", w.user_turn(conversation, "elsewhere", **over))
        await w.client.expect("task_complete")
        await w.client.turn(conversation, "still there?")
    assert str(w.workspace / "sub") in w.model.requests[1].outputs()["c1"]
    for request in w.model.requests:
        assert request.body["model"] == "another"
        assert request.body["reasoning"] == {"effort": "high", "summary": "concise"}
    last = str(w.model.requests[2].input)
    assert last.count("<environment_context>") == 1, "nothing changed between the turns"


async def test_what_changed_between_turns_is_told_once(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two")), reply(says("three"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "first")
        over = w.user_turn(conversation, "second", sandboxPolicy={"mode": "read-only"})
        await w.client.call("sendUserTurn", over)
        await w.client.expect("task_complete")
        await w.client.turn(conversation, "third")
    contexts = [
        [t for i in r.input if i.get("role") == "user" for t in [str(i)] if "environment_context" in t]
        for r in w.model.requests
    ]
    assert [len(each) for each in contexts] == [1, 2, 2]
    assert "read-only" in contexts[1][1]
    assert str(w.workspace) not in contexts[1][1], "only what changed"


async def test_settings_can_be_changed_without_a_turn(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=REASONS) as w:
        conversation = await w.open()
        await w.client.submit(
            conversation, {"type": "override_turn_context", "model": "another", "effort": "low"}
        )
        await w.client.turn(conversation)
    assert w.model.requests[0].body["model"] == "another"
    assert w.model.requests[0].body["reasoning"]["effort"] == "low"


def with_schema(w: World, schema: Json) -> Json:
    return {
        "type": "user_turn",
        "items": [{"type": "text", "text": "hi"}],
        "cwd": str(w.workspace),
        "approval_policy": "never",
        "sandbox_policy": {"mode": "read-only"},
        "model": "scripted",
        "summary": "auto",
        "final_output_json_schema": schema,
    }


async def test_an_output_schema_is_passed_on(world: MakeWorld) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    async with world(reply(says('{"a": "b"}'))) as w:
        conversation = await w.open()
        await w.client.operate(conversation, with_schema(w, schema))
    assert w.model.requests[0].body["text"]["format"]["schema"] == schema


async def test_what_is_no_schema_is_told_before_a_model_is_asked(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        turn = await w.client.operate(conversation, with_schema(w, {"properties": {"a": {"type": "text"}}}))
        (error,) = turn.of("error")
        assert "not a JSON Schema: $.properties.a.type: 'text' is not" in error["message"]
        assert w.model.requests == []
        assert (await w.client.turn(conversation)).last_message == "ok"


async def test_nothing_of_an_ended_turn_is_held(world: MakeWorld) -> None:
    """Otherwise the output of a command would stay in memory until the next turn."""
    async with world(reply(script("echo x")), reply(says("done"))) as w:
        before = {id(each) for each in gc.get_objects() if isinstance(each, SessionEvent)}
        await w.client.turn(await w.open())
        held = [
            each for each in gc.get_objects() if isinstance(each, SessionEvent) and id(each) not in before
        ]
        assert held == []
