"""A real conversation as a telemetry collector sees it: every event of the catalogue, and no telemetry anywhere
else.
"""

import json

import pytest

from tests.support.scripted_model import (
    CREATED,
    Reply,
    begins_to_say,
    failure,
    patches,
    reply,
    says,
    script,
    word,
)
from tests.support.world import MakeWorld, World

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from tests.engine.telemetry.collector import Collector

pytestmark = [pytest.mark.process, pytest.mark.integration]

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"
CATALOGUE = {
    "codex.conversation_starts",
    "codex.user_prompt",
    "codex.api_request",
    "codex.sse_event",
    "codex.tool_decision",
    "codex.tool_result",
}


def table(endpoint: str, **more: str) -> str:
    extra = "".join(f"{key} = {value}\n" for key, value in more.items())
    return f'[otel]\n{extra}exporter = {{ otlp-http = {{ endpoint = "{endpoint}", protocol = "binary" }} }}\n'


async def converse(w: World) -> str:
    """Run a turn with a command that is known to be harmless, one that needs approval, and a patch."""
    w.client.decide("execCommandApproval", "approved")
    w.client.decide("applyPatchApproval", "approved_for_session")
    conversation = await w.open()
    await w.client.turn(conversation, "my private words")
    return conversation


REPLIES = (
    failure(503, {"error": {"message": "busy"}}),
    reply(
        begins_to_say(), word("I "), word("look"), says("I look"), script("echo out > made", "asked"), input=7
    ),
    reply(script("ls", "safe"), patches(PATCH, "patch")),
    reply(says("done")),
)
SETTINGS = {"approval_policy": "untrusted", "sandbox_mode": "danger-full-access"}


@pytest.mark.parametrize("transport", ["memory", "process"])
async def test_a_collector_finds_every_event(world: MakeWorld, transport: str) -> None:
    collector = Collector()
    with collector.running() as endpoint:
        async with world(
            *REPLIES,
            transport="process" if transport == "process" else "memory",
            tables=table(endpoint),
            config=SETTINGS,
            provider={"request_max_retries": 1},
        ) as w:
            conversation = await converse(w)
    assert {event["event.name"] for event in collector.events} == CATALOGUE
    assert {event["conversation.id"] for event in collector.events} == {conversation}
    (start,) = collector.named("codex.conversation_starts")
    assert start["approval_policy"] == "untrusted"
    assert start["sandbox_policy"] == "danger-full-access"
    (prompt,) = collector.named("codex.user_prompt")
    assert (prompt["prompt"], int(prompt["prompt_length"])) == ("[REDACTED]", len("my private words"))
    statuses = [int(event["http.response.status_code"]) for event in collector.named("codex.api_request")]
    assert statuses == [503, 200, 200, 200]
    kinds = [event["event.kind"] for event in collector.named("codex.sse_event")]
    assert kinds.count("response.output_text.delta") == 2
    assert kinds.count("response.completed") == 3
    completed = [e for e in collector.named("codex.sse_event") if e["event.kind"] == "response.completed"]
    assert int(completed[0]["input_token_count"]) == 7
    decisions = {
        event["call_id"]: (event["tool_name"], event["decision"], event["source"])
        for event in collector.named("codex.tool_decision")
    }
    assert decisions == {
        "asked": ("shell", "approved", "user"),
        "safe": ("shell", "approved", "config"),
        "patch": ("apply_patch", "approved_for_session", "user"),
    }
    results = {event["call_id"]: event for event in collector.named("codex.tool_result")}
    assert results.keys() == {"asked", "safe", "patch"}
    assert results["safe"]["success"] == "true"
    assert json.loads(results["safe"]["arguments"])["command"] == ["sh", "-c", "ls"]


async def test_a_patch_that_needs_no_question_and_an_abort_are_decisions(world: MakeWorld) -> None:
    collector = Collector()
    replies = reply(patches(PATCH, "patch")), reply(script("echo out > made", "aborted"))
    with collector.running() as endpoint:
        settings = {"approval_policy": "untrusted", "sandbox_mode": "workspace-write"}
        async with world(*replies, tables=table(endpoint), config=settings) as w:
            w.client.decide("applyPatchApproval", "denied")
            w.client.decide("execCommandApproval", "abort")
            await w.client.turn(await w.open(), until="turn_aborted")
    decisions = [(e["call_id"], e["decision"], e["source"]) for e in collector.named("codex.tool_decision")]
    assert decisions[-1] == ("aborted", "abort", "user")
    assert decisions[0][0] == "patch"


async def test_the_model_is_told_nothing_of_it(world: MakeWorld) -> None:
    collector = Collector()
    with collector.running() as endpoint:
        async with world(reply(says("hi")), tables=table(endpoint)) as w:
            await w.client.turn(await w.open())
            reported = w.model.requests[0]
    async with world(reply(says("hi"))) as w:
        await w.client.turn(await w.open())
        (plain,) = w.model.requests
    volatile = {"prompt_cache_key"}
    assert {k: v for k, v in reported.body.items() if k not in volatile} == {
        k: v for k, v in plain.body.items() if k not in volatile
    }
    assert reported.headers.keys() == plain.headers.keys()


async def test_a_stream_that_breaks_is_an_event(world: MakeWorld) -> None:
    collector = Collector()
    broken = Reply((CREATED, begins_to_say(), word("Hel")), cut=True)
    with collector.running() as endpoint:
        async with world(broken, tables=table(endpoint)) as w:
            turn = await w.client.turn(await w.open())
    (error,) = turn.of("error")
    failed = [e for e in collector.named("codex.sse_event") if "error.message" in e]
    assert [event["error.message"] for event in failed] == [error["message"]]
