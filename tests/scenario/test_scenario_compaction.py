"""Compaction of a thread: asked for by its client, and by itself where the context is full."""

from app_server.client import TurnResult
from tests.support.library import MakeLibraryWorld
from tests.support.scripted_model import reply, says


def kinds(result: TurnResult[None]) -> list[str]:
    return [item.type for item in result.items]


async def test_a_compaction_is_a_turn_with_one_item(library: MakeLibraryWorld) -> None:
    async with library(*(reply(says(text)) for text in ("one", "a summary", "two"))) as w:
        thread = await w.server.start_thread()
        await thread.run("first")
        result = await thread.compact()
        assert (result.completed, kinds(result)) == (True, ["contextCompaction"])
        await thread.run("second")
    sent = w.model.requests[-1].texts()
    assert any("a summary" in text for text in sent)
    assert "one" not in sent


async def test_a_full_context_is_compacted_when_the_next_turn_begins(library: MakeLibraryWorld) -> None:
    replies = reply(says("one"), input=500), reply(says("a summary")), reply(says("two"))
    async with library(*replies, config={"model_auto_compact_token_limit": 100}) as w:
        thread = await w.server.start_thread()
        assert kinds(await thread.run("first")) == ["userMessage", "agentMessage"]
        assert kinds(await thread.run("second")) == ["contextCompaction", "userMessage", "agentMessage"]
