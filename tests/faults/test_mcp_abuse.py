"""A dozen MCP servers that misbehave each in its own way, all in one conversation: each costs its own tools and an
error, the turn goes on, and no process is left.
"""

import json
import sys
from pathlib import Path

from tests.faults.rig import Place, conversing
from tests.support.scripted_model import ScriptedModel, calls, reply, says

FAKE = Path(__file__).parents[1] / "unit" / "mcp" / "fake_server.py"
NEVER_START = ("crash-start", "silent", "init-error", "hang-list", "crash-list")
FAIL_WHEN_CALLED = ("crash-call", "hang-call", "bad-result", "error", "wrong-id")
WORK = ("garbage", "stderr-flood", "server-requests", "deaf", "daemon", "double", "huge", "good")


def table(mode: str, seconds: float) -> str:
    """A server of the configuration; only a tool that has to fail for its time may have a short one."""
    arguments = json.dumps(["-I", "-S", str(FAKE), mode])
    return (
        f'[mcp_servers.{mode}]\ncommand = "{sys.executable}"\nargs = {arguments}\n'
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
