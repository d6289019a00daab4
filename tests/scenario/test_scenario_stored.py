"""What outlives a conversation: resuming, forking, listing, describing, archiving."""

import itertools
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app_server.core.assembling import EngineServices
from app_server.core.config.load import load_config
from app_server.core.config.types import CliOverrides, Config, RequestOverrides
from app_server.core.engine import Engine
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.ghost import Snapshots
from app_server.core.git.run_git import Git
from app_server.core.http.lazy_http import LazyHttp
from app_server.core.lazy import Lazy
from app_server.core.mcp.interfaces import McpRuntime, OnState
from app_server.core.mcp.launch import LauncherSpawner
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.model_client import ModelClient
from app_server.core.model.prompt import ClientIdentity
from app_server.core.opening import Fork, Opened, ProcessEnvironment
from app_server.core.rollout.disk import REAL_DISK
from app_server.core.rollout.rollout_names import journal_path
from app_server.core.session.commands import Close
from app_server.core.session.services import TurnCompleted
from app_server.core.session.session_servers import Elicitations
from app_server.core.skills.skill_catalog import SkillCatalog
from app_server.core.telemetry.telemetry_events import NO_TELEMETRY, ConversationTelemetry
from protocol.ids import ConversationId
from protocol.structs import Json
from tests.support.client import Refused
from tests.support.scripted_model import Hold, begins_to_say, reply, says, script, word
from tests.support.world import MakeWorld, World

NOBODY = "01890000-0000-7000-8000-000000000000"


async def test_a_conversation_goes_on_in_the_next_server(world: MakeWorld) -> None:
    async with world(reply(script("echo hi")), reply(says("one"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "first")
    async with world(reply(says("two"))) as w:
        resumed = await w.client.call("resumeConversation", {"conversationId": conversation})
        assert resumed["conversationId"] == conversation
        told = [(m["type"], m["message"]) for m in resumed["initialMessages"] if "message" in m]
        assert told == [("user_message", "first"), ("agent_message", "one")]
        configured = w.client.received()[-2]
        assert configured["method"] == "sessionConfigured", "it comes before the answer"
        assert configured["params"]["initialMessages"] == resumed["initialMessages"]
        await w.client.listen(conversation)
        await w.client.turn(conversation, "second")
        assert len(w.rollouts()) == 1
    request = w.model.requests[0]
    assert request.texts() == ["first", "second"]
    assert request.texts("assistant") == ["one"]
    assert list(request.outputs()) == ["c1"]


@pytest.mark.parametrize("by", ["path", "conversationId", "history"])
async def test_a_conversation_can_be_named_in_three_ways(world: MakeWorld, by: str) -> None:
    async with world(reply(says("one")), reply(says("two"))) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        await w.client.listen(opened["conversationId"])
        await w.client.turn(opened["conversationId"], "first")
        history = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "given"}]}]
        params: Json = {
            "path": opened["rolloutPath"],
            "conversationId": opened["conversationId"],
            "history": history,
        }
        resumed = await w.client.call("resumeConversation", {by: params[by]})
        await w.client.listen(resumed["conversationId"])
        await w.client.turn(resumed["conversationId"], "second")
        assert (resumed["conversationId"] == opened["conversationId"]) is (by != "history")
    assert w.model.requests[1].texts() == ["given" if by == "history" else "first", "second"]


async def test_a_conversation_that_is_open_here_is_taken_over(world: MakeWorld) -> None:
    """Also while a turn of it runs: that one is interrupted, and the file has one writer."""
    hold = Hold()
    async with world(reply(hold), reply(says("two"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "first")
        await hold.reached.wait()
        await w.client.call("resumeConversation", {"conversationId": conversation})
        await w.client.listen(conversation)
        turn = await w.client.turn(conversation, "second")
        assert turn.last_message == "two"
    assert w.model.requests[1].texts() == ["first", "second"]


async def test_who_listens_hears_that_a_resume_ended_a_turn(world: MakeWorld) -> None:
    async with world(reply(begins_to_say(), word("I am"), Hold()), reply(says("two"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "first")
        await w.client.expect("agent_message_delta")
        await w.client.call("resumeConversation", {"conversationId": conversation})
        await w.client.listen(conversation)
        turn = await w.client.turn(conversation, "second")
        assert turn.last_message == "two"
        told = [m["method"].removeprefix("codex/event/") for m in w.client.received() if "method" in m]
    assert told.count("turn_aborted") == 1
    assert told.index("turn_aborted") < told.index("sessionConfigured")
    assert "shutdown_complete" not in told


async def test_settings_of_a_resumed_conversation_can_be_given(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "first")
        params = {"conversationId": conversation, "overrides": {"model": "another", "cwd": str(w.root)}}
        assert (await w.client.call("resumeConversation", params))["model"] == "another"
        await w.client.listen(conversation)
        await w.client.turn(conversation, "second")
    assert w.model.requests[1].body["model"] == "another"


@pytest.mark.isolated
async def test_a_call_that_was_cut_off_is_answered_when_the_conversation_goes_on(world: MakeWorld) -> None:
    async with world(reply(script("echo begun; sleep 1000"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "first")
        await w.client.expect("exec_command_output_delta")
        await w.client.leave()
    async with world(reply(says("two"))) as w:
        await w.client.call("resumeConversation", {"conversationId": conversation})
        await w.client.listen(conversation)
        await w.client.turn(conversation, "second")
    assert w.model.requests[0].texts() == ["first", "second"]
    assert "aborted" in w.model.requests[0].outputs()["c1"]


async def test_conversations_are_listed_newest_first_and_by_pages(world: MakeWorld) -> None:
    async with world(*(reply(says("ok")) for _ in range(3))) as w:
        ids = []
        for n in range(3):
            ids.append(await w.open())
            await w.client.turn(ids[-1], f"about {n}")
        listed: list[Json] = []
        cursor = None
        for _ in range(2):
            page = await w.client.call("listConversations", {"pageSize": 2, "cursor": cursor})
            listed += page["items"]
            cursor = page["nextCursor"]
        assert sorted(item["conversationId"] for item in listed) == sorted(ids)
        assert {item["preview"] for item in listed} == {"about 0", "about 1", "about 2"}
        other = await w.client.call("listConversations", {"modelProviders": ["another"]})
        assert other["items"] == []
        lost = await w.client.call("listConversations", {"cursor": "not-a-cursor", "pageSize": 1})
        assert lost["items"] == listed[:1], "what is no cursor is the beginning"


async def test_a_conversation_is_described_by_id_and_by_path(world: MakeWorld) -> None:
    async with world(reply(says("ok")), git=True) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation, path = opened["conversationId"], opened["rolloutPath"]
        await w.client.listen(conversation)
        await w.client.turn(conversation, "what is this?")
        by_id = await w.client.call("getConversationSummary", {"conversationId": conversation})
        by_path = await w.client.call("getConversationSummary", {"rolloutPath": path})
        assert by_id == by_path
        summary = by_id["summary"]
        assert (summary["preview"], summary["path"]) == ("what is this?", path)
        assert (summary["cwd"], summary["modelProvider"]) == (str(w.workspace), "scripted")
        assert summary["gitInfo"]["branch"] == "main"


async def test_an_archived_conversation_is_ended_and_moved(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation, path = opened["conversationId"], opened["rolloutPath"]
        await w.client.listen(conversation)
        await w.client.turn(conversation)
        content = Path(path).read_text()
        params = {"conversationId": conversation, "rolloutPath": path}
        await w.client.call("archiveConversation", params)
        (archived,) = (w.home / "archived_sessions").glob("*.jsonl")
        assert archived.read_text().startswith(content)
        assert not Path(path).exists()
        assert (await w.client.call("listConversations", {}))["items"] == []
        with pytest.raises(Refused, match="conversation not found"):
            await w.client.say(conversation)


@pytest.mark.parametrize("path", ["/etc/passwd", "../../../etc/passwd", "sessions", ""])
async def test_a_path_that_is_not_the_conversations_own_is_not_archived(world: MakeWorld, path: str) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        with pytest.raises(Refused):
            await w.client.call("archiveConversation", {"conversationId": conversation, "rolloutPath": path})
        assert (await w.client.turn(conversation)).last_message == "ok", "it is still open"


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "either path, conversation id or non empty history"),
        ({"history": []}, "either path, conversation id or non empty history"),
        ({"conversationId": NOBODY}, "no rollout found for"),
        ({"conversationId": "../../etc/passwd"}, "conversationId"),
        ({"path": "/etc/passwd"}, "."),
        ({"path": "/dev/full"}, "."),
        ({"path": "/no/such/file.jsonl"}, "."),
    ],
)
async def test_what_cannot_be_resumed_is_an_error_that_tells_no_content(
    world: MakeWorld, params: Json, words: str
) -> None:
    async with world() as w:
        with pytest.raises(Refused, match=words) as refused:
            await w.client.call("resumeConversation", params)
        assert "root:" not in refused.value.message
        assert await w.client.call("getUserAgent")


async def test_a_damaged_line_costs_only_itself(world: MakeWorld) -> None:
    async with world(reply(says("one"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "first")
        (path,) = w.rollouts()
    lines = path.read_text().splitlines()
    stored = path.read_bytes()
    path.write_bytes(stored + b'{"timestamp": "2025-01-01T00:00:00Z", "type": "respon')
    async with world(reply(says("two"))) as w:
        await w.client.call("resumeConversation", {"conversationId": conversation})
        await w.client.listen(conversation)
        await w.client.turn(conversation, "second")
        after = [line for line in path.read_text().splitlines() if _is_json(line)]
        # What was torn stays where it is; the invariants look at the rest.
        path.write_text("\n".join(after) + "\n")
    assert w.model.requests[0].texts() == ["first", "second"]
    assert after[: len(lines)] == lines


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


FORKED = "01900000-0000-7000-8000-00000000000{}"


class Alone:
    """The engine's ports, for conversations without turns."""

    def __init__(self, runner: CommandRunner) -> None:
        self.runner = runner

    def of(self, config: Config, telemetry: ConversationTelemetry) -> ModelClient:
        identity = ClientIdentity(originator="tests", user_agent="tests/1")
        return ModelClient(config.provider, LazyHttp({}), env={}, identity=identity, rng=lambda: 0.5)

    def originator(self) -> str:
        return "tests"

    def elicitation(self) -> bool:
        return False

    def mcp(self, config: Config, elicitations: Elicitations, on_state: OnState) -> McpManager:
        around = McpRuntime(
            environment={},
            home=str(config.home),
            cwd=str(config.cwd),
            spawner=LauncherSpawner(self.runner),
            version="1",
            elicit=None,
        )
        return McpManager(config.mcp_servers, lambda: around)

    async def telemetry(self, config: Config, conversation_id: ConversationId) -> ConversationTelemetry:
        return NO_TELEMETRY

    def turn_completed(self, config: Config, conversation_id: ConversationId) -> TurnCompleted:
        return lambda *_: None


def no_skills() -> SkillCatalog:
    raise AssertionError("a fork asks for no skills")


async def fork(world: World, path: Path) -> Opened:
    """Forked and let go of."""
    ids = itertools.count(1)
    around = ProcessEnvironment(
        home=world.home,
        environment=world.environment,
        version="1",
        shell_path="/bin/sh",
        now=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        clock=time.monotonic,
        wall_clock=time.time,
        jitter=lambda: 0.5,
        disk=REAL_DISK,
        new_conversation_id=lambda: ConversationId(FORKED.format(next(ids))),
        new_id=lambda: str(next(ids)),
    )
    config = load_config(
        world.home,
        cwd=world.workspace,
        cli=CliOverrides(),
        request=RequestOverrides(),
        env=world.environment,
    )
    runner = CommandRunner(python=sys.executable, home=str(world.home), tmpdir=None, environment={})
    alone = Alone(runner)
    services = EngineServices(around, runner, alone, Snapshots(Git(world.home)), alone, Lazy(no_skills))
    opened = await Engine(services).open(config, Fork(path), lambda: "0")
    opened.session.do(Close())
    await opened.session.run()
    return opened


async def test_a_fork_has_the_history_under_an_id_of_its_own_and_leaves_the_other_alone(
    world: MakeWorld,
) -> None:
    async with world(reply(script("echo hi")), reply(says("one"))) as w:
        await w.client.turn(await w.open(), "first")
    (path,) = w.rollouts()
    before = path.read_bytes()
    async with world(reply(says("two"))) as w:
        forked = await fork(w, path)
        assert forked.session.facts.rollout_path != path
        listed = await w.client.call("listConversations", {})
        assert {item["preview"] for item in listed["items"]} == {"first"}
        assert len(listed["items"]) == 2

        resumed = await w.client.call("resumeConversation", {"conversationId": FORKED.format(1)})
        told = [(m["type"], m["message"]) for m in resumed["initialMessages"] if "message" in m]
        assert told == [("user_message", "first"), ("agent_message", "one")]
        await w.client.listen(resumed["conversationId"])
        await w.client.turn(resumed["conversationId"], "second")
    request = w.model.requests[0]
    assert request.texts() == ["first", "second"]
    assert request.texts("assistant") == ["one"]
    assert list(request.outputs()) == ["c1"]
    assert path.read_bytes() == before


async def test_a_fork_has_what_a_crash_left_beside_the_file(world: MakeWorld) -> None:
    async with world(reply(says("one"))) as w:
        await w.client.turn(await w.open(), "first")
    (path,) = w.rollouts()
    item = '{"type":"message","role":"assistant","content":[{"type":"output_text","text":"told"}]}'
    head = f'{{"timestamp":"2026-01-01T00:00:00.000Z","type":"response_item","after":{path.stat().st_size},"payload":'
    journal_path(path).write_text(f"{head}{item}}}\n")
    async with world(reply(says("two"))) as w:
        forked = await fork(w, path)
        await w.client.call("resumeConversation", {"path": str(forked.session.facts.rollout_path)})
        await w.client.listen(forked.session.id)
        await w.client.turn(forked.session.id, "second")
        journal_path(path).unlink()
    assert w.model.requests[0].texts("assistant") == ["one", "told"]


async def test_what_is_no_rollout_cannot_be_forked_and_leaves_nothing(world: MakeWorld) -> None:
    async with world(files={"notes.txt": "secret words"}) as w:
        with pytest.raises(Exception, match="not a rollout") as refused:
            await fork(w, w.workspace / "notes.txt")
        assert "secret" not in str(refused.value)
        assert not w.rollouts()
