"""The way of a lasting setting that `tests.support.added_setting` has added. `test_added_setting` runs it."""

import json
from pathlib import Path

from app_server.engine.config.config_values import CliOverrides
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.storage.line_reader import last_turn_context
from app_server.server.apis.acp.session_options import plan_session
from app_server_protocol.encoding import Json
from tests.support.scripted_model import reply, says
from tests.support.thread_client import notified, say
from tests.support.world import EXPERIMENTAL, MakeWorld, World

TURNS = 9


def lines(w: World, thread: str) -> list[Json]:
    """Return the settings of the stored turns of a thread."""
    [path] = (w.home / "sessions").rglob(f"*{thread}.jsonl")
    read = [json.loads(line) for line in path.read_text().splitlines()]
    return [each["payload"] for each in read if each["type"] == "turn_context"]


async def flavour(w: World, thread: str, **params: Json) -> Json:
    """Run a turn; return the setting that it ran with, as it was stored."""
    await say(w.client, thread, **params)
    return lines(w, thread)[-1].get("flavour")


async def unloaded(w: World, thread: str) -> Json:
    """End the thread and return the parameters that name it."""
    await w.client.call("thread/archive", {"threadId": thread})
    await w.client.call("thread/unarchive", {"threadId": thread})
    return {"threadId": thread, "excludeTurns": True}


async def test_a_setting_of_the_declaration_is_carried(world: MakeWorld, tmp_path: Path) -> None:
    async with world(*[reply(says("ok"))] * TURNS, capabilities=EXPERIMENTAL) as w:
        opened = await w.client.call("thread/start", {"flavour": "mint"})
        thread = opened["thread"]["id"]
        assert await flavour(w, thread) == "mint"
        assert await flavour(w, thread, flavour="lime") == "lime"
        await w.client.call("thread/settings/update", {"threadId": thread, "flavour": "plum"})
        assert await flavour(w, thread) == "plum"
        shown = [each["threadSettings"]["flavour"] for each in notified(w, "thread/settings/updated")]
        assert shown == ["lime", "plum"]

        copy = await w.client.call("thread/fork", {"threadId": thread, "excludeTurns": True})
        assert await flavour(w, copy["thread"]["id"]) == "plum"
        other = await w.client.call(
            "thread/fork", {"threadId": thread, "excludeTurns": True, "flavour": "fig"}
        )
        assert await flavour(w, other["thread"]["id"]) == "fig"

        await w.client.call("thread/resume", await unloaded(w, thread))
        assert await flavour(w, thread) == "plum"
        await w.client.call("thread/resume", {**await unloaded(w, thread), "flavour": "pear"})
        assert await flavour(w, thread) == "pear"
        first = lines(w, thread)[1]["turn_id"]
        await w.client.call("thread/revert", {"threadId": thread, "beforeTurnId": first})
        assert await flavour(w, thread) == "pear"

        [path] = (w.home / "sessions").rglob(f"*{thread}.jsonl")
        source = UserSettings(home=w.home, cwd=w.workspace, cli=CliOverrides(), environment={})
        plan = plan_session(source, str(w.workspace), (), last_turn_context(path))
        assert getattr(plan.config.thread, "flavour", None) == "pear"
