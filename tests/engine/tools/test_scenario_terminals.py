"""Commands that run on between calls and turns, as a client and the model see them."""

import os
import sys
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import Hold, calls, failure, reply, says
from tests.support.thread_client import items, say, start, told_of, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

UNIFIED = "[features]\nunified_exec = true\n"


def opens(cmd: str, call_id: str = "c1") -> Json:
    return calls(
        "exec_command", {"cmd": cmd, "shell": "/bin/sh", "login": False, "yield_time_ms": 250}, call_id
    )


def types(chars: str, call_id: str, wait: int = 60_000) -> Json:
    return calls("write_stdin", {"session_id": 0, "chars": chars, "yield_time_ms": wait}, call_id)


async def test_a_session_is_opened_typed_into_and_ended(world: MakeWorld) -> None:
    script = [
        reply(opens("read line; echo said:$line")),
        reply(types("hello\n", "c2")),
        reply(says("it has ended")),
    ]
    async with world(*script, tables=UNIFIED) as w:
        turn = await w.client.turn(await w.open())
        [end] = turn.of("exec_command_end")
        assert (end["call_id"], end["exit_code"]) == ("c1", 0)
        assert "said:hello" in end["aggregated_output"]
    assert "session ID 0" in w.model.requests[1].outputs()["c1"]
    assert "said:hello" in w.model.requests[2].outputs()["c2"]
    assert w.model.requests[0].tools[:2] == ["exec_command", "write_stdin"]


async def test_a_session_may_end_with_the_conversation(world: MakeWorld) -> None:
    async with world(reply(opens("sleep 1000")), reply(says("it goes on")), tables=UNIFIED) as w:
        turn = await w.client.turn(await w.open())
    assert turn.kinds().count("exec_command_begin") == 1
    assert turn.of("exec_command_end") == []


async def test_an_id_that_comes_again_while_its_command_goes_on(world: MakeWorld) -> None:
    """Each item has its own end, and the model's history has the ids that the model chose."""
    script = [
        reply(opens("read line; echo said:$line")),
        reply(opens("echo second")),
        reply(types("hello\n", "c2")),
        reply(says("both have ended")),
    ]
    async with world(*script, tables=UNIFIED) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        outputs = items(w, kind="commandExecution")
        assert len({item["id"] for item in outputs}) == 2
        assert [item["aggregatedOutput"] for item in outputs] == ["second\r\n", "hello\r\nsaid:hello\r\n"]
    sent = [item["call_id"] for item in w.model.requests[-1].input if item["type"] == "function_call"]
    assert sent == ["c1", "c1", "c2"]


async def test_an_interrupt_ends_what_goes_on(world: MakeWorld) -> None:
    hold = Hold()
    script = [reply(opens("sleep 1000")), reply(hold), reply(types("", "c2", 250)), reply(says("gone"))]
    async with world(*script, tables=UNIFIED) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await hold.reached.wait()
        await w.client.interrupt(conversation)
        await w.client.turn(conversation)
    assert "there is no session 0" in w.model.requests[-1].outputs()["c2"]


async def test_what_the_model_may_not_run_is_asked_about(world: MakeWorld) -> None:
    script = [reply(opens("echo > made")), reply(says("as you like"))]
    async with world(*script, tables=UNIFIED, config={"approval_policy": "untrusted"}) as w:
        w.client.decide("execCommandApproval", "denied")
        turn = await w.client.turn(await w.open())
        assert [event["command"][-1] for event in turn.of("exec_approval_request")] == ["echo > made"]
        assert not (w.workspace / "made").exists()
    assert w.model.requests[1].outputs()["c1"] == "exec command rejected by user"


async def test_a_compaction_that_does_not_fit_leaves_the_oldest_out(world: MakeWorld) -> None:
    too_long = failure(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
    script = [
        reply(says("one")),
        reply(says("two")),
        too_long,
        reply(says("the summary")),
        reply(says("three")),
    ]
    async with world(*script) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "first")
        await w.client.turn(conversation, "second")
        await w.client.operate(conversation, {"type": "compact"})
        await w.client.turn(conversation, "third")
    assert len(w.model.requests[3].input) == len(w.model.requests[2].input) - 1
    assert w.model.requests[4].texts() == ["first", "second", "the summary", "third"]


TERMINALS = "thread/backgroundTerminals"


def looks(call_id: str, chars: str = "", session: int = 0) -> Json:
    return calls("write_stdin", {"session_id": session, "chars": chars, "yield_time_ms": 60_000}, call_id)


async def listed(w: World, thread: str, **params: Json) -> Json:
    return await w.client.call(f"{TERMINALS}/list", {"threadId": thread, **params})


async def test_output_and_end_are_told_when_they_happen(world: MakeWorld) -> None:
    script = [
        reply(opens("echo up; cat gate; exit 3")),
        reply(says("it goes on")),
        reply(looks("c2")),
        reply(says("it has ended")),
    ]
    async with world(
        *script, tables=UNIFIED, capabilities=EXPERIMENTAL, before=lambda w: w.fifo("gate")
    ) as w:
        thread = await start(w.client)
        first = await say(w.client, thread)
        [running] = (await listed(w, thread))["data"]
        assert (running["itemId"], running["processId"], running["command"]) == (
            "c1",
            "0",
            "echo up; cat gate; exit 3",
        )
        await w.open_gate("gate")
        end = await told_of(w.client, "commandExecution")
        assert (end["turnId"], end["item"]["id"], end["item"]["exitCode"]) == (first, "c1", 3)
        assert "go" in end["item"]["aggregatedOutput"]
        assert (await listed(w, thread))["data"] == []
        await say(w.client, thread)
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        items = [item for each in read["thread"]["turns"] for item in each["items"]]
        assert [item["exitCode"] for item in items if item["type"] == "commandExecution"] == [3]
    received = [m for m in w.client.received() if m.get("method", "").startswith("item/")]
    ends = [m for m in received if m["method"] == "item/completed" and m["params"]["item"]["id"] == "c1"]
    begins = [m for m in received if m["method"] == "item/started" and m["params"]["item"]["id"] == "c1"]
    deltas = [m["params"]["delta"] for m in received if m["method"].endswith("outputDelta")]
    assert ("".join(deltas), len(ends)) == (end["item"]["aggregatedOutput"], 1)
    assert [m["params"]["item"]["processId"] for m in begins] == ["0"]
    seen = w.model.requests[3].outputs()["c2"]
    assert "Process exited with code 3" in seen
    assert "go" in seen, "the model is told what it has not seen"


async def test_what_the_model_types_is_told(world: MakeWorld) -> None:
    script = [
        reply(opens("read line; echo said:$line")),
        reply(looks("c2", "hello\n")),
        reply(says("it has ended")),
    ]
    async with world(*script, tables=UNIFIED, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        done = await say(w.client, thread)
        [typed] = [
            m["params"] for m in w.client.received() if m.get("method", "").endswith("terminalInteraction")
        ]
        assert typed == {
            "threadId": thread,
            "turnId": done,
            "itemId": "c1",
            "processId": "0",
            "stdin": "hello\n",
        }


async def test_terminals_are_listed_by_pages_and_ended(world: MakeWorld) -> None:
    script = [*(reply(opens(f"echo {n}; sleep 1000", f"c{n}")) for n in range(3)), reply(says("they go on"))]
    async with world(*script, tables=UNIFIED, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        page = await listed(w, thread, limit=2)
        assert ([each["processId"] for each in page["data"]], page["nextCursor"]) == (["0", "1"], "1")
        rest = await listed(w, thread, cursor="1")
        assert ([each["processId"] for each in rest["data"]], rest["nextCursor"]) == (["2"], None)
        end: Json = {"threadId": thread, "processId": "1"}
        assert await w.client.call(f"{TERMINALS}/terminate", end) == {"terminated": True}
        told = await told_of(w.client, "commandExecution")
        assert (told["item"]["id"], told["item"]["exitCode"]) == ("c1", 137)
        assert await w.client.call(f"{TERMINALS}/terminate", end) == {"terminated": False}
        assert await w.client.call(f"{TERMINALS}/clean", {"threadId": thread}) == {}
        assert {(await told_of(w.client, "commandExecution"))["item"]["id"] for _ in range(2)} == {"c0", "c2"}
        assert (await listed(w, thread))["data"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
@pytest.mark.parametrize("sandbox", ["danger-full-access", "workspace-write"])
async def test_what_a_terminal_uses_is_listed(world: MakeWorld, sandbox: str) -> None:
    command = "echo up; cat gate; exit 3"
    script = [reply(opens(command)), reply(says("it goes on"))]
    config = {"sandbox_mode": sandbox}

    def gate(w: World) -> None:
        w.fifo("gate")

    async with world(*script, tables=UNIFIED, capabilities=EXPERIMENTAL, config=config, before=gate) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        if not any(m.get("method", "").endswith("outputDelta") for m in w.client.received()):
            await w.client.expect("item/commandExecution/outputDelta")  # it has started
        [running] = (await listed(w, thread))["data"]
        process = Path(f"/proc/{running['osPid']}")
        assert command in (process / "cmdline").read_text()
        assert os.stat(process / "cwd").st_ino == os.stat(w.workspace).st_ino
        assert running["rssKb"] > 0
        assert running["cpuPercent"] >= 0
        assert await w.client.call(f"{TERMINALS}/clean", {"threadId": thread}) == {}
        await told_of(w.client, "commandExecution")


async def test_wrong_numbers_are_refused(world: MakeWorld) -> None:
    async with world(capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        for method, params, text in (
            ("list", {"threadId": thread, "cursor": "x"}, "invalid cursor: "),
            (
                "terminate",
                {"threadId": thread, "processId": "-1"},
                "invalid background terminal process id: ",
            ),
            ("clean", {"threadId": "0" * 8 + "-0000-7000-8000-000000000000"}, "thread not found: "),
        ):
            with pytest.raises(Refused, match=text):
                await w.client.call(f"{TERMINALS}/{method}", params)


async def test_an_interrupt_tells_the_end_once(world: MakeWorld) -> None:
    hold = Hold()
    script = [reply(opens("sleep 1000")), reply(hold)]
    async with world(*script, tables=UNIFIED, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread)
        await hold.reached.wait()
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        told = await told_of(w.client, "commandExecution")
        assert (told["item"]["id"], told["item"]["status"]) == ("c1", "failed")
        await w.client.expect("turn/completed")
        assert (await listed(w, thread))["data"] == []
    assert len(items(w, kind="commandExecution")) == 1


async def test_the_conversation_api_is_told_outside_of_turns(world: MakeWorld) -> None:
    script = [reply(opens("cat gate")), reply(says("it goes on"))]
    async with world(*script, tables=UNIFIED, before=lambda w: w.fifo("gate")) as w:
        conversation = await w.open()
        await w.client.turn(conversation)
        await w.open_gate("gate")
        end = await w.client.expect("exec_command_end")
        assert (end["params"]["id"], end["params"]["msg"]["exit_code"]) == ("", 0)
