"""What tests of the thread API do again and again: begin threads and turns, and wait for their ends."""

from protocol.structs import Json
from tests.support.client import Client
from tests.support.world import World


def words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


async def start(client: Client, **params: Json) -> str:
    thread: str = (await client.call("thread/start", params))["thread"]["id"]
    return thread


async def turn(client: Client, thread: str, text: str = "hi") -> str:
    started = await client.call("turn/start", {"threadId": thread, "input": words(text)})
    id: str = started["turn"]["id"]
    return id


async def ended(client: Client, turn_id: str) -> Json:
    found = await client.expect(
        lambda m: m.get("method") == "turn/completed" and m["params"]["turn"]["id"] == turn_id
    )
    return found["params"]["turn"]


async def say(client: Client, thread: str, text: str = "hi") -> str:
    """A whole turn; gives its id."""
    id = await turn(client, thread, text)
    await ended(client, id)
    return id


def items(w: World, method: str = "item/completed") -> list[Json]:
    return [m["params"]["item"] for m in w.client.received() if m.get("method") == method]


def notified(w: World, method: str) -> list[Json]:
    return [m["params"] for m in w.client.received() if m.get("method") == method]


def kinds(turns: list[Json]) -> list[list[str]]:
    return [[item["type"] for item in turn["items"]] for turn in turns]
