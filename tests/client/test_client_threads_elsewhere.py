"""A server that stores its threads in another home than that of its settings, and finds them there."""

from pathlib import Path

import pytest

from app_server.client import AppServer, RequestRefused
from app_server.in_process import InProcessConnector
from tests.support.library import serving_model
from tests.support.scripted_model import ScriptedModel, reply, says
from tests.support.world import make_folders

pytestmark = [pytest.mark.scenario, pytest.mark.anyio]


async def test_threads_that_are_stored_elsewhere_are_opened_by_their_ids_and_not_listed(
    tmp_path: Path,
) -> None:
    make_folders(tmp_path)
    home, other = tmp_path / "home", tmp_path / "other"
    model = ScriptedModel([reply(says("one")), reply(says("two"))])
    async with serving_model(model, tmp_path, {}) as environment:
        connector = InProcessConnector(environment=environment, cwd=tmp_path / "workspace", threads=other)
        async with AppServer.connect(connector) as server:
            thread = await server.start_thread()
            await thread.run("Say one.")
        [stored] = other.glob("sessions/**/rollout-*.jsonl")
        assert not (home / "sessions").exists()

        usual = InProcessConnector(environment=environment, cwd=tmp_path / "workspace")
        async with AppServer.connect(usual) as server:
            with pytest.raises(RequestRefused, match="no rollout found"):
                await server.resume_thread(thread.id)
            (home / "thread_homes").mkdir()
            (home / "thread_homes" / "gone").symlink_to(tmp_path / "nothing")
            (home / "thread_homes" / "other").symlink_to(other)
            assert [each.id async for each in server.threads()] == []
            again = await server.resume_thread(thread.id)
            assert (await again.run("Say two.")).final_message == "two"
    assert model.requests[1].texts("assistant") == ["one"]
    assert "two" in stored.read_text()
