"""A fork: a conversation of its own that begins where a stored one stands. No request makes one yet."""

import itertools
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app_server.core.config.load import load_config
from app_server.core.config.types import CliOverrides, Config, RequestOverrides
from app_server.core.engine import Engine
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.snapshot import Git
from app_server.core.http.lazy_http import LazyHttp
from app_server.core.lazy import Lazy
from app_server.core.mcp.interfaces import McpRuntime, OnState
from app_server.core.mcp.launch import LauncherSpawner
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.model_client import ModelClient
from app_server.core.model.prompt import ClientIdentity
from app_server.core.opening import Fork, Opened, ProcessEnvironment
from app_server.core.rollout.rollout_names import journal_path
from app_server.core.session.services import TurnCompleted
from app_server.core.session.session_servers import Elicitations
from app_server.core.skills.skill_catalog import SkillCatalog
from app_server.core.telemetry.telemetry_events import NO_TELEMETRY, ConversationTelemetry
from protocol.ids import ConversationId
from protocol.ops import ShutdownOp
from tests.support.scripted_model import reply, says, script
from tests.support.world import MakeWorld, World

FORKED = "01900000-0000-7000-8000-00000000000{}"


class Alone:
    """The engine's ports, for conversations without turns."""

    def __init__(self, runner: CommandRunner) -> None:
        self.runner = runner

    def of(self, config: Config, telemetry: ConversationTelemetry) -> ModelClient:
        identity = ClientIdentity(originator="tests", user_agent="tests/1")
        return ModelClient(config.provider, LazyHttp({}), env={}, identity=identity)

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
        return McpManager(config.mcp_servers, around)

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
    engine = Engine(around, runner, alone, Git(world.home), alone, Lazy(no_skills))
    opened = await engine.open(config, Fork(path))
    opened.session.submit("0", ShutdownOp())
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
        assert forked.rollout_path != path
        assert [m.type for m in forked.initial_messages if m.type != "token_count"] == [
            "user_message",
            "agent_message",
        ]

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
        await w.client.call("resumeConversation", {"path": str(forked.rollout_path)})
        await w.client.listen(forked.conversation_id)
        await w.client.turn(forked.conversation_id, "second")
        journal_path(path).unlink()
    assert w.model.requests[0].texts("assistant") == ["one", "told"]


async def test_what_is_no_rollout_cannot_be_forked_and_leaves_nothing(world: MakeWorld) -> None:
    async with world(files={"notes.txt": "secret words"}) as w:
        with pytest.raises(Exception, match="not a rollout") as refused:
            await fork(w, w.workspace / "notes.txt")
        assert "secret" not in str(refused.value)
        assert not w.rollouts()
