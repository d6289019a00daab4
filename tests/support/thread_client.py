"""What tests of the thread API do again and again: begin threads and turns, and wait for their ends."""

from app_server_protocol.structs import Json
from tests.support.client import Client
from tests.support.world import World


def words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


async def start(client: Client, **params: Json) -> str:
    thread: str = (await client.call("thread/start", params))["thread"]["id"]
    return thread


async def join(client: Client, thread: str) -> Json:
    return await client.call("thread/resume", {"threadId": thread})


async def turn(client: Client, thread: str, text: str = "hi", **params: Json) -> str:
    started = await client.call("turn/start", {"threadId": thread, "input": words(text), **params})
    id: str = started["turn"]["id"]
    return id


async def ended(client: Client, turn_id: str) -> Json:
    found = await client.expect(
        lambda m: m.get("method") == "turn/completed" and m["params"]["turn"]["id"] == turn_id
    )
    return found["params"]["turn"]


async def say(client: Client, thread: str, text: str = "hi", **params: Json) -> str:
    """A whole turn; gives its id."""
    id = await turn(client, thread, text, **params)
    await ended(client, id)
    return id


async def talk(client: Client, text: str = "hi") -> str:
    """A thread with one turn; gives its id."""
    thread = await start(client)
    await say(client, thread, text)
    return thread


async def told_of(client: Client, kind: str, method: str = "item/completed") -> Json:
    """The parameters of the next such message about an item of that kind."""
    found = await client.expect(lambda m: m.get("method") == method and m["params"]["item"]["type"] == kind)
    return found["params"]


def items(w: World, method: str = "item/completed", *, kind: str | None = None) -> list[Json]:
    """What was told of the items of that kind, or of all."""
    found = (each["item"] for each in notified(w, method))
    return [item for item in found if kind in (None, item["type"])]


def notified(w: World, method: str) -> list[Json]:
    return heard(w.client, method)


def heard(client: Client, method: str) -> list[Json]:
    """The parameters of all messages of that method."""
    return [m["params"] for m in client.received() if m.get("method") == method]


def kinds(turns: list[Json]) -> list[list[str]]:
    return [[item["type"] for item in turn["items"]] for turn in turns]
