"""Requests that read threads: stored threads, loaded threads, both at once, none."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from msgspec import Struct

from app_server.engine.config.config_values import CliOverrides
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.storage.pagination import ThreadSummary
from app_server.engine.storage.stored_conversations import StoredConversations
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.support.lazy import Lazy
from app_server.server.apis.contexts import ConnectionContext, MadeOnFirstUse
from app_server.server.apis.error_responses import to_rpc_error
from app_server.server.apis.v2.handlers import thread_reads
from app_server.server.apis.v2.thread_reader import LoadedThreads, ThreadReader
from app_server.server.apis.v2.turn_shapes import whole_turns
from app_server.server.conversations.adapter import Activity, ConversationStatus
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EndedItem, TurnRecord
from app_server_protocol.engine.items import AgentMessage
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.ids import SessionOrigin
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.v2.thread_store import (
    THREAD_ITEMS_LIST,
    THREAD_LOADED_LIST,
    THREAD_READ,
    THREAD_TURNS_LIST,
)
from app_server_protocol.values import replace
from tests.engine.storage.stored import conversation, conversation_id, store

STORED, OTHER = conversation_id(1), conversation_id(2)


def summary(id: str, **over: Json) -> ThreadSummary:
    opened = ThreadSummary(
        id=id,
        path=None,
        preview="",
        timestamp=None,
        created_at=1,
        updated_at=2,
        cwd="/w",
        cli_version="1",
        originator="x",
        source=SessionOrigin.VSCODE,
        git=None,
        forked_from=None,
        provider="mock",
        model="chosen",
    )
    return replace(opened, **over)


class Live(Struct, frozen=True):
    summaries: dict[str, ThreadSummary] = msgspec.field(default_factory=dict)
    turns: dict[str, TurnRecord] = msgspec.field(default_factory=dict)

    def loaded(self) -> list[str]:
        return list(self.summaries)

    def status(self, thread_id: str) -> ConversationStatus:
        return ConversationStatus(Activity.IDLE if thread_id in self.summaries else Activity.NOT_LOADED)

    def settings(self, thread_id: str) -> ThreadSettings | None:
        return ThreadSettings(cwd="/w") if thread_id in self.summaries else None

    def running(self, thread_id: str) -> TurnRecord | None:
        return self.turns.get(thread_id)

    def summary(self, thread_id: str) -> ThreadSummary | None:
        return self.summaries.get(thread_id)


def reader(home: Path, live: Live | None = None) -> ConnectionContext:
    """Return a context with the reader of a home."""
    source = UserSettings(home=home, cwd=home, cli=CliOverrides(), environment={})
    stored = StoredConversations(home, lambda: 0.0)
    threads = ThreadReader(source, cast("LoadedThreads", live or Live()), Lazy(lambda: stored))
    own = MadeOnFirstUse()
    own.get(ThreadReader, lambda: threads)
    return cast("ConnectionContext", SimpleNamespace(own=own))


async def read(context: ConnectionContext, **params: Json) -> Json:
    response = await thread_reads.thread_read(context, THREAD_READ.parse(params))
    return response.to_value()["thread"]


async def turns(context: ConnectionContext, **params: Json) -> Json:
    response = await thread_reads.thread_turns_list(context, THREAD_TURNS_LIST.parse(params))
    return response.to_value()


async def items(context: ConnectionContext, **params: Json) -> Json:
    response = await thread_reads.thread_items_list(context, THREAD_ITEMS_LIST.parse(params))
    return response.to_value()


async def loaded(context: ConnectionContext, **params: Json) -> Json:
    response = await thread_reads.thread_loaded_list(context, THREAD_LOADED_LIST.parse(params))
    return response.to_value()


def ids(answer: Json) -> list[str]:
    return [row["item"]["id"] if "item" in row else row["id"] for row in answer["data"]]


async def test_a_stored_thread(tmp_path: Path) -> None:
    path = store(tmp_path, [*conversation("one"), *conversation("two")])
    context = reader(tmp_path)
    await StoredConversations(tmp_path, lambda: 0.0).set_name(STORED, "name of 1")
    thread = await read(context, threadId=STORED.upper())
    assert (thread["id"], thread["path"], thread["preview"]) == (STORED, str(path), "one")
    assert (thread["status"], thread["name"], thread["turns"]) == ({"type": "notLoaded"}, "name of 1", [])
    whole = await read(context, threadId=STORED, includeTurns=True)
    assert [turn["itemsView"] for turn in whole["turns"]] == ["full", "full"]
    listed = await turns(context, threadId=STORED, itemsView="full")
    assert listed["data"] == whole["turns"][::-1]
    found = await items(context, threadId=STORED)
    assert ids(found) == [item["id"] for turn in whole["turns"] for item in turn["items"]]
    assert {row["turnId"] for row in found["data"]} == {turn["id"] for turn in whole["turns"]}


async def test_pages_lead_on_and_back(tmp_path: Path) -> None:
    store(tmp_path, [event for n in range(4) for event in conversation(f"{n}")])
    context = reader(tmp_path)
    everything = ids(await turns(context, threadId=STORED))
    newest = await turns(context, threadId=STORED, limit=3)
    assert newest["data"][0]["itemsView"] == "summary"
    rest = await turns(context, threadId=STORED, cursor=newest["nextCursor"])
    assert (ids(newest) + ids(rest), rest["nextCursor"]) == (everything, None)
    back = await turns(context, threadId=STORED, cursor=rest["backwardsCursor"], sortDirection="asc")
    assert ids(back) == everything[::-1]
    oldest = await items(context, threadId=STORED, limit=3)
    from_there = {"type": "item", "itemId": ids(oldest)[1]}
    assert ids(await items(context, threadId=STORED, cursor=from_there, limit=2)) == ids(oldest)[1:]
    backwards = await items(context, threadId=STORED, sortDirection="desc", limit=1)
    assert ids(backwards) == ids(await items(context, threadId=STORED, turnId=everything[0]))[-1:]
    assert (await items(context, threadId=STORED, turnId="none"))["data"] == []


async def test_a_loaded_thread_that_was_never_used(tmp_path: Path) -> None:
    planned = tmp_path / "rollout.jsonl"
    context = reader(tmp_path, Live({OTHER: summary(OTHER, path=planned)}))
    thread = await read(context, threadId=OTHER, includeTurns=True)
    assert (thread["turns"], thread["path"], thread["model"]) == ([], str(planned), "chosen")
    assert thread["status"] == {"type": "idle"}
    empty: Json = {"data": [], "nextCursor": None, "backwardsCursor": None}
    assert await turns(context, threadId=OTHER) == empty
    assert await items(context, threadId=OTHER) == empty


async def test_a_file_whose_first_line_is_being_written(tmp_path: Path) -> None:
    planned = tmp_path / "rollout.jsonl"
    planned.write_bytes(b'{"timestamp":')
    context = reader(tmp_path, Live({OTHER: summary(OTHER, path=planned)}))
    assert (await read(context, threadId=OTHER, includeTurns=True))["turns"] == []


async def test_a_running_turn_is_the_newest(tmp_path: Path) -> None:
    path = store(tmp_path, conversation())
    turn = TurnRecord(id="now", items=(EndedItem(AgentMessage("m", ("so far",)), 5, 6),))
    context = reader(tmp_path, Live({STORED: summary(STORED, path=path)}, {STORED: turn}))
    assert ids(await turns(context, threadId=STORED))[0] == "now"
    last = (await items(context, threadId=STORED))["data"][-1]
    assert (last["turnId"], last["startedAtMs"], last["completedAtMs"]) == ("now", 5, 6)
    thread = await read(context, threadId=STORED, includeTurns=True)
    assert thread["turns"][-1]["id"] == "now"
    assert (thread["preview"], thread["model"]) == ("question", "chosen")


async def refusal(context: ConnectionContext, method: str, **params: Json) -> RpcError:
    ask = {"read": read, "turns": turns, "items": items, "loaded": loaded}[method]
    with pytest.raises((RpcError, CoreError)) as error:
        await ask(context, **params)
    return to_rpc_error(error.value, method)


@pytest.mark.parametrize("method", ["read", "turns", "items"])
async def test_threads_that_are_not_there(tmp_path: Path, method: str) -> None:
    context = reader(tmp_path)
    unknown = await refusal(context, method, threadId=OTHER)
    assert (unknown.code, unknown.message) == (-32600, f"thread not loaded: {OTHER}")
    assert unknown.data == {"kind": "thread_not_found"}
    no_id = await refusal(context, method, threadId="nothing")
    assert no_id.message.startswith("invalid thread id: ")


@pytest.mark.parametrize("cursor", ["zzz", {"type": "item", "itemId": "gone"}])
async def test_bad_cursors(tmp_path: Path, cursor: Json) -> None:
    store(tmp_path, conversation())
    context = reader(tmp_path)
    refused = await refusal(context, "items", threadId=STORED, cursor=cursor)
    assert refused.message.startswith("invalid cursor: ")
    assert refused.data == {"kind": "invalid_params", "field": "cursor"}


async def test_loaded_threads_by_pages(tmp_path: Path) -> None:
    context = reader(tmp_path, Live({id: summary(id) for id in "abc"}))
    first = await loaded(context, limit=2)
    assert first == {"data": ["a", "b"], "nextCursor": "b"}
    assert await loaded(context, cursor="b") == {"data": ["c"], "nextCursor": None}
    assert await loaded(context, limit=0) == {"data": ["a"], "nextCursor": "a"}
    assert (await refusal(context, "loaded", cursor="z")).message == "invalid cursor: z"


def test_an_answer_with_all_turns_has_a_bound() -> None:
    def record(id: str) -> TurnRecord:
        return TurnRecord(id=id, items=(EndedItem(AgentMessage(id, ("x" * 3_000_000,)), 1, 2),))

    shown = whole_turns([record(id) for id in "abcd"])
    views = [(turn.id, turn.items_view.value, len(turn.items)) for turn in shown]
    assert views == [("a", "notLoaded", 0), ("b", "notLoaded", 0), ("c", "full", 1), ("d", "full", 1)]
