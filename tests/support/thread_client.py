"""Common steps of tests of the thread API: begin threads and turns, and wait for their ends."""

from app_server_protocol.encoding import Json
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
    """Run a whole turn; return its id."""
    id = await turn(client, thread, text, **params)
    await ended(client, id)
    return id


async def talk(client: Client, text: str = "hi") -> str:
    """Start a thread and run one turn in it; return the thread's id."""
    thread = await start(client)
    await say(client, thread, text)
    return thread


async def told_of(client: Client, kind: str, method: str = "item/completed") -> Json:
    """Return the parameters of the next message of this method about an item of that kind."""
    found = await client.expect(lambda m: m.get("method") == method and m["params"]["item"]["type"] == kind)
    return found["params"]


def items(w: World, method: str = "item/completed", *, kind: str | None = None) -> list[Json]:
    """Return the items of all notifications of this method, of one kind or of all kinds."""
    found = (each["item"] for each in notified(w, method))
    return [item for item in found if kind in (None, item["type"])]


def notified(w: World, method: str) -> list[Json]:
    return heard(w.client, method)


def heard(client: Client, method: str) -> list[Json]:
    """Return the parameters of all messages of that method."""
    return [m["params"] for m in client.received() if m.get("method") == method]


def kinds(turns: list[Json]) -> list[list[str]]:
    return [[item["type"] for item in turn["items"]] for turn in turns]
