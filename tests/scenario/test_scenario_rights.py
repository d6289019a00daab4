"""Rights that clients and stored threads name: paths are absolute, and nothing is guessed."""

from __future__ import annotations

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.scripted_model import reply, says, script
from tests.support.thread_client import ended, start
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.anyio

NO_TEMPORARY: Json = {"excludeTmpdirEnvVar": True, "excludeSlashTmp": True}
OUTSIDE = "echo x > ../outside"


def workspace(*roots: str) -> Json:
    return {"type": "workspaceWrite", "writableRoots": [*roots], **NO_TEMPORARY}


async def refused(w: World, method: str, params: Json, match: str = "expected an absolute path") -> None:
    with pytest.raises(Refused, match=match):
        await w.client.call(method, params)


@pytest.mark.parametrize("root", ["..", "", "relative", "~", "~/x"])
async def test_a_relative_root_is_refused_over_every_method_of_threads(world: MakeWorld, root: str) -> None:
    async with world(reply(script(OUTSIDE)), reply(says("ok"))) as w:
        thread, policy = await start(w.client), workspace("/var/empty", root)
        words = [{"type": "text", "text": "go"}]
        await refused(w, "turn/start", {"threadId": thread, "input": words, "sandboxPolicy": policy})
        await refused(w, "thread/settings/update", {"threadId": thread, "sandboxPolicy": policy})
        await refused(w, "command/exec", {"command": ["sh", "-c", OUTSIDE], "sandboxPolicy": policy})
        given = {"sandbox_workspace_write.writable_roots": [root], "sandbox_mode": "workspace-write"}
        if root not in ("~", "~/x"):  # as in the file, where the home of the user is meant
            await refused(w, "thread/start", {"config": given}, "must hold absolute paths")
        assert not (w.root / "outside").exists()


@pytest.mark.parametrize("root", ["..", "", "~/x"])
async def test_a_relative_root_is_refused_over_every_method_of_conversations(
    world: MakeWorld, root: str
) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        policy = {"mode": "workspace-write", "writable_roots": [root]}
        turn_of = {
            "conversationId": conversation,
            "items": [],
            "cwd": str(w.workspace),
            "approvalPolicy": "never",
            "sandboxPolicy": policy,
            "model": "m",
            "summary": "auto",
        }
        change = {"type": "override_turn_context", "sandbox_policy": policy}
        await refused(w, "sendUserTurn", turn_of)
        await refused(w, "submit", {"conversationId": conversation, "op": change})
        await refused(w, "execOneOffCommand", {"command": ["sh", "-c", OUTSIDE], "sandboxPolicy": policy})
        assert not (w.root / "outside").exists()


async def test_a_stored_root_that_is_relative_is_none(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        thread = await start(w.client)
        policy = workspace("/var/empty")
        words = [{"type": "text", "text": "go"}]
        begun = {"threadId": thread, "input": words, "sandboxPolicy": policy}
        await ended(w.client, (await w.client.call("turn/start", begun))["turn"]["id"])
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        [stored] = w.home.glob("sessions/**/rollout-*.jsonl")
        lines = stored.read_text().replace('["/var/empty"]', '["..", "/var/empty", "", "sub"]')
        assert lines != stored.read_text()
        stored.write_text(lines)
        for method in ("thread/fork", "thread/resume"):
            opened = await w.client.call(method, {"threadId": thread})
            assert opened["sandbox"]["writableRoots"] == ["/var/empty"]
