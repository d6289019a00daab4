"""A faulty server costs its own tools, one message, bounded time and bounded memory, and leaves nothing behind."""

import json
import os
import signal
import sys
import tracemalloc
from pathlib import Path

import anyio
import pytest

from app_server.engine.config.mcp_server_settings import McpServerConfig, McpStdioTransport
from app_server.engine.mcp.mcp_errors import MAX_DEFINITION_BYTES, MAX_PAGES, MAX_TOOLS_PER_SERVER, RESTARTS
from app_server.engine.mcp.runtime_interface import ElicitationRequest, ElicitationResult
from app_server.engine.mcp.tool_catalog import SERVER_NAME
from app_server_protocol.encoding import Json
from tests.engine.mcp.conftest import USER, Rig, both_eras, fake, gone
from tests.support.waiting import until

ECHO = "mcp__fake__echo"


def content(text: str) -> str:
    """Return the text that the model gets from a result with this text."""
    return f'[{{"text":"{text}","type":"text"}}]'


CALL_FAILED = "tool call error: tool call failed for `fake/echo`\n\nCaused by:\n    "


async def test_a_tool_is_offered_and_works(rig: Rig) -> None:
    async with rig.fake("normal") as mcp:
        tool = mcp.tools()[ECHO]
        assert (tool.server, tool.tool, tool.description) == ("fake", "echo", "Echo a text.")
        assert tool.input_schema == {"type": "object", "properties": {"text": {"type": "string"}}}
        outcome = await mcp.requests.call(ECHO, {"text": "hello"})
        assert outcome.payload().content == content("hello")
        assert not outcome.is_error
        (handshake,) = rig.received("initialize")
        assert handshake["params"]["capabilities"] == {"roots": {}}
        assert rig.received("notifications/initialized")
    assert await gone(rig.pids())
    assert rig.told == []


async def test_nothing_is_called_that_is_not_offered(rig: Rig) -> None:
    async with rig.fake("normal") as mcp:
        assert (await mcp.requests.call("mcp__fake__other", {})).error == "unsupported call: mcp__fake__other"
        assert "mcp__fake__other" not in mcp.tools()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [([1], "sequence"), ("x", "string 'x'"), (True, "boolean `true`"), (5, "integer `5`")],
)
async def test_arguments_that_are_no_map_do_not_reach_the_server(
    rig: Rig, arguments: Json, kind: str
) -> None:
    async with rig.fake("normal") as mcp:
        outcome = await mcp.requests.call(ECHO, arguments)
        assert outcome.error == f"{CALL_FAILED}invalid type: {kind}, expected a map"
        assert rig.received("tools/call") == []


async def test_arguments_that_are_nested_too_deeply_are_refused(rig: Rig) -> None:
    deep: Json = {}
    for _ in range(900):
        deep = {"a": [deep]}
    async with rig.fake("normal") as mcp:
        assert "nested too deeply" in ((await mcp.requests.call(ECHO, deep)).error or "")
        assert not (await mcp.requests.call(ECHO, {"text": "x"})).is_error


REFUSED = "MCP client for `fake` failed to start: handshaking with MCP server failed: "
START_FAULTS = {
    "crash-start": "MCP client for `fake` failed to start: handshaking with MCP server failed: "
    "connection closed: initialize response",
    "init-error": f"{REFUSED}Mcp error: -5: not today",
    "init-exit": f"{REFUSED}Mcp error: -5: not today",
    "init-silent": f"{REFUSED}Mcp error: -5: not today",
    "other-versions": f"{REFUSED}it speaks only 2027-01-01, 2028-01-01; "
    "this client speaks 2026-07-28 and revisions up to 2025-06-18",
    "no-version": "MCP client for `fake` failed to start: handshaking with MCP server failed: "
    "its answer to initialize names no protocol version",
    "crash-list": "MCP client for `fake` failed to start: tools/list failed: Transport closed",
    "list-error": "MCP client for `fake` failed to start: tools/list failed: Mcp error: -5: no list",
    "list-no-array": "MCP client for `fake` failed to start: tools/list failed: Unexpected response type",
    "silent": "MCP client for `fake` timed out after 1 seconds. Add or adjust `startup_timeout_sec` in your "
    "config.toml:\n[mcp_servers.fake]\nstartup_timeout_sec = XX",
    "hang-list": "MCP client for `fake` timed out after 1 seconds. Add or adjust `startup_timeout_sec` in your "
    "config.toml:\n[mcp_servers.fake]\nstartup_timeout_sec = XX",
}


@pytest.mark.parametrize("mode", START_FAULTS)
async def test_a_server_that_does_not_start_causes_one_message(rig: Rig, mode: str) -> None:
    limit = 1.0 if mode in ("silent", "hang-list", "init-silent") else 5.0
    other = fake("normal", rig.folder / "other", name="other")
    async with rig.opened(fake(mode, rig.log, startup_timeout_sec=limit), other) as mcp:
        assert [failure.message for failure in rig.told] == [START_FAULTS[mode]]
        assert mcp.failures() == tuple(rig.told)
        assert list(mcp.tools()) == ["mcp__other__echo"]
        assert not (await mcp.requests.call("mcp__other__echo", {"text": "x"})).is_error
    assert await gone(rig.pids())


async def test_a_program_that_cannot_be_started_causes_one_message(rig: Rig) -> None:
    def table(name: str, command: str, **more: Json) -> McpServerConfig:
        return McpServerConfig(name=name, transport=McpStdioTransport(command=command, **more))

    tables = [
        table("absent", "no-such-program-here"),
        table("folder", "/etc"),
        table("nowhere", sys.executable, cwd="/does/not/exist"),
        table("relative", sys.executable, cwd="tools"),
        table("program", "./server"),
        table("nul", sys.executable, args=("a\0b",)),
        table("bad name", sys.executable),
    ]
    async with rig.opened(*tables) as mcp:
        assert {failure.server: failure.message for failure in mcp.failures()} == {
            "absent": "MCP client for `absent` failed to start: No such file or directory (os error 2)",
            "folder": "MCP client for `folder` failed to start: Permission denied (os error 13)",
            "nowhere": "MCP client for `nowhere` failed to start: No such file or directory (os error 2)",
            "relative": "MCP client for `relative` failed to start: its `cwd` is relative: name an absolute path, "
            'or `cwd = "workspace"`',
            "program": "MCP client for `program` failed to start: its `command` is relative: name an absolute path, "
            'or set `cwd = "workspace"`',
            "nul": "MCP client for `nul` failed to start: its table holds a value that no program can be given",
            "bad name": "MCP client for `bad name` failed to start: invalid server name 'bad name': "
            f"must match pattern {SERVER_NAME.pattern}",
        }


@both_eras
@pytest.mark.parametrize(
    "mode",
    ["garbage", "garbage-mid", "server-requests", "old-protocol", "stderr-flood", "same-cursor", "huge-line"],
)
async def test_noise_is_passed_over(rig: Rig, mode: str, modern: bool) -> None:
    async with rig.fake(mode, modern=modern) as mcp:
        assert (await mcp.requests.call(ECHO, {"text": "heard"})).payload().content == content("heard")


@both_eras
async def test_requests_of_the_server_are_refused_or_answered(rig: Rig, modern: bool) -> None:
    async with rig.fake("server-requests", modern=modern) as mcp:
        await mcp.requests.call(ECHO, {})
        answers = {note["received"]["id"]: note["received"] for note in rig.notes() if _is_answer(note)}
        assert {key: answer["error"]["code"] for key, answer in answers.items() if "error" in answer} == {
            "s0": -32601, "s4": -32601,
        }  # fmt: skip
        place = rig.folder / "workspace"
        assert answers["s1"]["result"] == {"roots": [{"uri": place.as_uri(), "name": "workspace"}]}
        assert answers["s2"]["result"] == {}
        assert answers["s3"]["result"] == {"action": "decline"}


def _is_answer(note: dict[str, Json]) -> bool:
    return "received" in note and "method" not in note["received"]


CALL_FAULTS = {
    "crash-call": "tools/call failed: Transport closed",
    "bad-result": "tools/call failed: Unexpected response type",
    "null-result": "tools/call failed: Unexpected response type",
    "broken-answer": "tools/call failed: its answer cannot be read",
    "deep-answer": "tools/call failed: its answer cannot be read",
    "error": 'tools/call failed: Mcp error: -1: boom-7({"a":1})',
}


@both_eras
@pytest.mark.parametrize("mode", CALL_FAULTS)
async def test_a_call_that_fails_says_why(rig: Rig, mode: str, modern: bool) -> None:
    async with rig.fake(mode, modern=modern) as mcp:
        assert (await mcp.requests.call(ECHO, {"text": "x"})).error == CALL_FAILED + CALL_FAULTS[mode]
    assert await gone(rig.pids())


@both_eras
@pytest.mark.parametrize("mode", ["hang-call", "half-message", "wrong-id", "string-id"])
async def test_a_call_without_its_own_answer_is_given_up_and_cancelled(
    rig: Rig, mode: str, modern: bool
) -> None:
    async with rig.fake(mode, modern=modern, tool_timeout_sec=0.5) as mcp:
        outcome = await mcp.requests.call(ECHO, {"text": "x"})
        assert outcome.error == (
            f"{CALL_FAILED}0: timed out awaiting tools/call after 500ms\n    1: deadline has elapsed"
        )
        (call,) = rig.received("tools/call")
        await until(lambda: bool(rig.received("notifications/cancelled")))
        assert rig.received("notifications/cancelled")[0]["params"]["requestId"] == call["id"]


@both_eras
async def test_a_call_that_is_interrupted_is_cancelled_at_the_server(rig: Rig, modern: bool) -> None:
    async with rig.fake("hang-call", modern=modern) as mcp:
        async with anyio.create_task_group() as group:
            group.start_soon(mcp.requests.call, ECHO, {})
            await until(lambda: bool(rig.received("tools/call")))
            group.cancel_scope.cancel()
        await until(lambda: bool(rig.received("notifications/cancelled")))


@both_eras
async def test_the_first_answer_is_the_answer(rig: Rig, modern: bool) -> None:
    async with rig.fake("double", modern=modern) as mcp:
        for _ in range(3):
            assert (await mcp.requests.call(ECHO, {})).payload().content == content("first")


@both_eras
async def test_a_server_that_died_is_started_again_each_time(rig: Rig, modern: bool) -> None:
    async with rig.fake("crash-once", modern=modern) as mcp:
        assert (await mcp.requests.call(ECHO, {"text": "x"})).is_error
        for n in range(RESTARTS + 2):
            assert (await mcp.requests.call(ECHO, {"text": f"{n}"})).payload().content == content(f"{n}")
            os.kill(rig.pids()[-1], signal.SIGKILL)
            await until(lambda: mcp.servers["fake"]._client is None)
        assert len(rig.pids()) == RESTARTS + 3
        assert rig.told == []


@both_eras
async def test_a_server_that_dies_again_and_again_is_given_up(rig: Rig, modern: bool) -> None:
    async with rig.fake("crash-call", modern=modern) as mcp:
        for _ in range(RESTARTS + 3):
            assert (await mcp.requests.call(ECHO, {})).is_error
        assert len(rig.pids()) == RESTARTS + 1


@both_eras
async def test_calls_at_the_same_time_share_one_restart(rig: Rig, modern: bool) -> None:
    async with rig.fake("crash-once", modern=modern) as mcp:
        await mcp.requests.call(ECHO, {})
        outputs = []

        async def call(text: str) -> None:
            outputs.append((await mcp.requests.call(ECHO, {"text": text})).payload().content)

        async with anyio.create_task_group() as group:
            for text in "abc":
                group.start_soon(call, text)
        assert sorted(outputs) == [content(text) for text in "abc"]
        assert len(rig.pids()) == 2


@both_eras
async def test_an_enormous_result_is_cut_at_bounded_cost(rig: Rig, modern: bool) -> None:
    async with rig.fake("huge", modern=modern, tool_timeout_sec=30) as mcp:
        tracemalloc.start()
        try:
            outcome = await mcp.requests.call(ECHO, {})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        given = outcome.payload().content
        assert given.startswith('[{"text":"aaaa')
        assert "cut here: the answer had 50000" in given
        assert len(given) < 2_000_000
        assert peak < 100_000_000


@both_eras
@pytest.mark.parametrize("mode", ["notifies", "asks-and-never-reads"])
async def test_a_flood_during_a_call_costs_little_memory_and_not_the_call(
    rig: Rig, mode: str, modern: bool
) -> None:
    async with rig.fake(mode, modern=modern, tool_timeout_sec=30) as mcp:
        tracemalloc.start()
        try:
            outcome = await mcp.requests.call(ECHO, {"text": "through"})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert outcome.payload().content == content("through")
        assert peak < 5_000_000


@both_eras
async def test_pages_that_never_end_are_cut(rig: Rig, modern: bool) -> None:
    async with rig.fake("endless-pages", modern=modern) as mcp:
        assert len(mcp.tools()) == MAX_PAGES


async def test_names_are_made_fit(rig: Rig) -> None:
    async with rig.opened(fake("names", rig.log), reserved=["mcp__fake__shell", "shell"]) as mcp:
        tools = mcp.tools()
        assert len(tools) == 6
        assert sorted(tool.tool for tool in tools.values()) == sorted(
            ["echo", "a" * 200, "bad name!", "bad.name!", "ünïcode", "shell"]
        )
        assert "mcp__fake__shell" not in tools
        assert list(tools) == sorted(tools)


@both_eras
async def test_a_bad_schema_omits_only_its_tool(rig: Rig, modern: bool) -> None:
    async with rig.fake("bad-schema", modern=modern) as mcp:
        assert list(mcp.tools()) == [ECHO]
        assert len(mcp.notices()) == 4
        assert "`first`" in mcp.notices()[0]


async def test_too_many_tools_and_words_are_cut(rig: Rig) -> None:
    async with rig.opened(
        *(fake("many", rig.folder / name, name=name) for name in ("one", "two", "three"))
    ) as mcp:
        tools = mcp.tools()
        assert len([tool for tool in tools.values() if tool.server == "one"]) == MAX_TOOLS_PER_SERVER
        assert (
            sum(len(json.dumps([t.description, t.input_schema])) for t in tools.values())
            < MAX_DEFINITION_BYTES * 1.1
        )
        assert any("left out" in notice for notice in mcp.notices())
    async with rig.fake("long-description") as mcp:
        assert len(mcp.tools()[ECHO].description) < 10_000


async def test_the_table_picks_and_takes_away(rig: Rig) -> None:
    settings: dict[str, Json] = {
        "enabled_tools": frozenset({"echo", "one"}),
        "disabled_tools": frozenset({"one"}),
    }
    off = fake("normal", rig.folder / "off", name="off", enabled=False)
    async with rig.opened(fake("filters", rig.log, **settings), off) as mcp:
        assert list(mcp.tools()) == [ECHO]
        assert not (rig.folder / "off").exists()


async def test_a_server_sees_nothing_of_the_users_secrets(rig: Rig) -> None:
    rig.user |= {"OPENAI_API_KEY": "sk-secret", "MY_SECRET": "secret", "WANTED": "w"}
    async with rig.fake("normal", env={"GIVEN": "g"}):
        (start,) = [note for note in rig.notes() if "env" in note]
    seen = {key: value for key, value in start["env"].items() if key not in ("LC_CTYPE", "PWD", "SHLVL", "_")}
    assert seen == {**USER, "GIVEN": "g"}
    assert start["cwd"] == str(rig.folder / "mcp" / "fake"), "a folder of its own, outside of the workspace"


@both_eras
async def test_an_mcp_server_that_ignores_its_end_is_killed(rig: Rig, modern: bool) -> None:
    async with rig.fake("deaf", modern=modern) as mcp:
        assert not (await mcp.requests.call(ECHO, {})).is_error
    assert await gone(rig.pids())


@both_eras
async def test_what_a_server_daemonised_ends_with_it(rig: Rig, modern: bool) -> None:
    async with rig.fake("daemon", modern=modern) as mcp:
        assert not (await mcp.requests.call(ECHO, {})).is_error
        assert len(rig.pids()) == 2
    assert await gone(rig.pids())


@pytest.mark.parametrize("mode", ["normal", "deaf", "daemon"])
async def test_nothing_survives_when_this_process_is_killed(rig: Rig, mode: str) -> None:
    script = (
        "import os,sys,anyio\n"
        "from tests.engine.mcp.conftest import Rig\n"
        "from pathlib import Path\n"
        "async def main():\n"
        "    async with Rig(Path(sys.argv[1])).fake(sys.argv[2]):\n"
        "        os.write(1, b'up')\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    root = Path(__file__).parents[3]
    with anyio.fail_after(20):
        argv = [sys.executable, "-c", script, str(rig.folder), mode]
        async with await anyio.open_process(argv, cwd=root, stderr=None) as process:
            assert process.stdout is not None
            assert await process.stdout.receive() == b"up"
            process.kill()
    assert rig.pids()
    assert await gone(rig.pids())


async def test_a_question_to_the_user_is_put_and_its_answer_given(rig: Rig) -> None:
    asked: list[ElicitationRequest] = []

    async def answer(request: ElicitationRequest) -> ElicitationResult:
        asked.append(request)
        await anyio.sleep(0.6)  # longer than the call's limit: the user's time does not count for the tool
        return ElicitationResult("accept", {"n": 3})

    rig.elicit = answer
    async with rig.fake("elicit", tool_timeout_sec=0.4) as mcp:
        outcome = await mcp.requests.call(ECHO, {})
        (handshake,) = rig.received("initialize")
        assert handshake["params"]["capabilities"] == {"elicitation": {}, "roots": {}}
    assert outcome.result is not None
    assert json.loads(json.loads(outcome.payload().content)[0]["text"]) == {
        "action": "accept",
        "content": {"n": 3},
    }
    assert [(request.server, request.message) for request in asked] == [("fake", "How many?")]


async def test_a_change_of_what_a_tool_claims_changes_its_digest(rig: Rig) -> None:
    digests = []
    for mode in ("normal", "normal", "long-description"):
        async with rig.fake(mode) as mcp:
            digests.append(mcp.tools()[ECHO].digest)
    assert digests[0] == digests[1] != digests[2]


async def test_without_servers_there_is_nothing_to_wait_for(rig: Rig) -> None:
    async with rig.opened() as mcp:
        assert not mcp.configured
        assert mcp.tools() == {}
