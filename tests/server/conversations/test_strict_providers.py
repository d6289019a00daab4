"""One long thread with each provider, which refuses what the real one refuses. The client is shown the same each time.

The thread has messages, parallel calls, a call whose arguments are no JSON, a picture of a tool, steering, an
interrupt, a compaction, messages of the developer, an end in the middle of a call, and a switch to another provider and
back.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support import strict_chat_rows, strict_messages, strict_responses
from tests.support.pictures import PNG
from tests.support.strict_chat import StrictChat
from tests.support.strict_provider import Answer, Author, Strict, shell
from tests.support.strict_responses import StrictResponses
from tests.support.thread_client import ended, items, join, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

MakeStrict = Callable[[], Strict]

LONG_ID = f"call_{'x' * 70}"
SAME_ID = "functions.shell:0"
"""Id of a call. Some models count their calls from zero in each answer."""

BEFORE = (
    Answer("Hello.", thought="A greeting."),
    Answer("I look.", (shell(SAME_ID, "echo one"), shell(LONG_ID, "echo two")), "Two looks."),
    Answer("", (("call_b", "shell", '{"command": ["echo'),), "Once more."),
    Answer("\n", (("call_v", "view_image", {"path": "dot.png"}),), "A picture."),
    Answer("A dot.", thought="Black."),
    Answer("", (shell(SAME_ID, "cat gate; echo steered"),), "It waits."),
    Answer("As you say.", thought="They said more."),
    Answer("", (shell("call_i", "cat gate"),), "It waits again."),
    Answer("SUMMARY", thought="In short."),
    Answer("After the summary.", thought="Where was I?"),
    Answer("", (shell(SAME_ID, "echo three"),), "Of the host."),
    Answer("With more.", thought="Enough."),
)
RESUMED = (Answer("Resumed.", thought="Back here."),)
ELSEWHERE = (
    Answer("", (shell("", "echo other"),), "A new place."),
    Answer("Elsewhere.", thought="Like home."),
)
RETURNED = (
    Answer("I look.", (shell("call_c", "echo four"), shell("call_d", "echo five")), "As before."),
    Answer("Back.", thought="At home."),
)

FOREIGN = "foreign: The encrypted content"
"""Refusal of thoughts that another server of the Responses API encrypted. The thoughts are dropped after one
refusal.
"""

SHOWN = [
    *(("userMessage", "hello"), ("agentMessage", "Hello.")),
    *(("userMessage", "look"), ("agentMessage", "I look.")),
    *(("commandExecution", "one\n"), ("commandExecution", "two\n"), ("agentMessage", "A dot.")),
    *(("userMessage", "wait"), ("commandExecution", "go\nsteered\n"), ("userMessage", "and more")),
    ("agentMessage", "As you say."),
    *(("userMessage", "wait again"), ("commandExecution", "")),
    ("contextCompaction", ""),
    *(("userMessage", "go on"), ("agentMessage", "After the summary.")),
    *(("userMessage", "with context"), ("commandExecution", "three\n"), ("agentMessage", "With more.")),
]
SHOWN_LATER = [
    *(("userMessage", "again"), ("agentMessage", "Resumed.")),
    *(("userMessage", "elsewhere"), ("commandExecution", "other\n"), ("agentMessage", "Elsewhere.")),
    *(("userMessage", "home"), ("agentMessage", "I look.")),
    *(("commandExecution", "four\n"), ("commandExecution", "five\n"), ("agentMessage", "Back.")),
]


def shown(w: World) -> list[tuple[str, str]]:
    """Return kind and text of the items that the client was shown, without thoughts and pictures."""
    out: list[tuple[str, str]] = []
    for item in items(w):
        match item["type"]:
            case "userMessage":
                out.append((item["type"], "".join(each.get("text", "") for each in item["content"])))
            case "agentMessage" if item["text"].strip():
                out.append((item["type"], item["text"]))
            case "commandExecution":
                out.append((item["type"], item["aggregatedOutput"] or ""))
            case "contextCompaction":
                out.append((item["type"], ""))
            case _:
                pass
    return out


def settings(name: str, strict: Strict, **more: Json) -> Json:
    return {
        "provider": {"name": name, "wire": strict.wire, **more},
        "config": {"model": strict.model, "model_max_output_tokens": 32_000},
        "capabilities": EXPERIMENTAL,
    }


async def go(w: World, thread: str, text: str, **params: Json) -> None:
    """Run one turn, which has to complete."""
    done = await ended(w.client, await turn(w.client, thread, text, **params))
    assert done["status"] == "completed", (text, done["error"], refused_by(w))


def refused_by(w: World) -> list[str]:
    return w.model.author.refusals if isinstance(w.model.author, Author) else []


async def play_before(w: World, thread: str) -> None:
    await go(w, thread, "hello")
    await go(w, thread, "look")
    await steered(w, thread)
    await interrupted(w, thread)
    await w.client.call("thread/compact/start", {"threadId": thread})
    await w.client.expect(
        lambda m: m.get("method") == "item/completed" and m["params"]["item"]["type"] == "contextCompaction"
    )
    await w.client.expect("turn/completed")
    await go(w, thread, "go on")
    context = {"host": {"kind": "application", "value": "Be brief."}}
    await go(w, thread, "with context", additionalContext=context)


async def command_begins(w: World) -> None:
    found = await w.client.expect(
        lambda m: (
            m.get("method") == "turn/completed"
            or (m.get("method") == "item/started" and m["params"]["item"]["type"] == "commandExecution")
        )
    )
    assert found["method"] == "item/started", (found, refused_by(w))


async def steered(w: World, thread: str) -> None:
    w.fifo("gate")
    id = await turn(w.client, thread, "wait")
    await command_begins(w)
    more: Json = {"threadId": thread, "expectedTurnId": id, "input": [{"type": "text", "text": "and more"}]}
    await w.client.call("turn/steer", more)
    await w.open_gate("gate")
    done = await ended(w.client, id)
    assert done["status"] == "completed", (done["error"], refused_by(w))


async def interrupted(w: World, thread: str) -> None:
    id = await turn(w.client, thread, "wait again")
    await command_begins(w)
    await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
    assert (await ended(w.client, id))["status"] == "interrupted"


def cut_after_last_call(w: World) -> None:
    """Cut the file as if the server was killed while the last command ran."""
    [file] = w.rollouts()
    lines = file.read_text().splitlines()
    last = max(n for n, line in enumerate(lines) if '"type":"function_call",' in line)
    file.write_text("\n".join(lines[: last + 1]) + "\n")


def with_address(w: World) -> None:
    file = Path(w.home / "config.toml")
    url = file.read_text().partition('base_url = "')[2].partition('"')[0]
    file.write_text(file.read_text().replace("BASE", url))


OTHER = '[model_providers.other]\nname = "Other"\nbase_url = "BASE"\nwire = "responses"'


async def play(world: MakeWorld, name: str, strict: Strict, **more: Json) -> tuple[list[str], list[Json]]:
    """Run the whole thread; return the provider's refusals, and the bodies of its requests."""
    author = Author(strict, [*BEFORE])
    bodies: list[Json] = []
    async with world(**settings(name, strict, **more), files={"dot.png": PNG}) as w:
        w.model.author = author
        thread = await start(w.client)
        await play_before(w, thread)
        assert shown(w) == SHOWN, author.refusals
        assert author.answers == []
        bodies += [each.body for each in w.model.requests]
    later: list[tuple[str, str]] = []
    async with world(**settings(name, strict, **more), before=cut_after_last_call) as w:
        author.answers += RESUMED
        w.model.author = author
        await join(w.client, thread)
        await go(w, thread, "again")
        later += shown(w)
        bodies += [each.body for each in w.model.requests]
    other = Author(StrictResponses(strict_responses.PROVIDERS["openai"]), [*ELSEWHERE])
    async with world(**settings(name, strict, **more), tables=OTHER, before=with_address) as w:
        w.model.author = other
        await w.client.call("thread/resume", {"threadId": thread, "modelProvider": "other", "model": "m"})
        await go(w, thread, "elsewhere")
        later += shown(w)
        assert [each for each in other.refusals if not each.startswith(FOREIGN)] == []
    async with world(**settings(name, strict, **more), tables=OTHER, before=with_address) as w:
        author.answers += RETURNED
        w.model.author = author
        asked = {"threadId": thread, "modelProvider": "scripted", "model": strict.model}
        await w.client.call("thread/resume", asked)
        await go(w, thread, "home")
        later += shown(w)
        bodies += [each.body for each in w.model.requests]
    assert later == SHOWN_LATER, author.refusals
    assert author.answers == []
    return author.refusals, bodies


def strict_rows() -> list[object]:
    made: list[tuple[str, str, MakeStrict]] = [
        *(("chat", n, lambda r=r: StrictChat(r)) for n, r in strict_chat_rows.PROVIDERS.items()),
        *(("responses", n, lambda r=r: StrictResponses(r)) for n, r in strict_responses.PROVIDERS.items()),
        *(("messages", n, lambda s=s: s) for n, s in strict_messages.providers().items()),
    ]
    return [pytest.param(name, make, id=f"{wire}-{name}") for wire, name, make in made]


@pytest.mark.parametrize(("name", "make"), strict_rows())
async def test_a_provider_takes_every_request_of_a_long_thread(
    world: MakeWorld, name: str, make: MakeStrict
) -> None:
    refused, bodies = await play(world, name, make())
    assert [each for each in refused if not each.startswith(FOREIGN)] == []
    assert len(refused) <= 1
    last = json.dumps(bodies[-1])
    for said in ("After the summary.", "Be brief.", "Resumed.", "Elsewhere.", "SUMMARY", "home"):
        assert said in last


def learnt_rows() -> list[object]:
    made: list[tuple[str, str, MakeStrict]] = [
        *(("chat", n, lambda r=r: StrictChat(r)) for n, r in strict_chat_rows.LEARNT.items()),
        *(("responses", n, lambda r=r: StrictResponses(r)) for n, r in strict_responses.LEARNT.items()),
    ]
    return [pytest.param(make, id=f"{wire}-{name}") for wire, name, make in made]


MOST_REFUSALS = 3
"""Maximum number of refusals of one request from which the server learns something."""


@pytest.mark.parametrize("make", learnt_rows())
async def test_what_an_unknown_provider_refuses_is_learnt_once(world: MakeWorld, make: MakeStrict) -> None:
    """A new server learns it again."""
    strict = make()
    refused, _ = await play(world, "Unknown", strict)
    servers = 3
    assert 1 <= len(refused) <= MOST_REFUSALS * servers


@pytest.mark.parametrize(("name", "make"), strict_rows())
async def test_a_provider_that_finds_a_thread_too_long_has_it_compacted(
    world: MakeWorld, name: str, make: MakeStrict
) -> None:
    strict = make()
    author = Author(strict, [Answer("Hello. " * 900), Answer("SUMMARY"), Answer("Here.")])
    async with world(**settings(name, strict)) as w:
        w.model.author = author
        thread = await start(w.client)
        await go(w, thread, "hello")
        w.model.author = lambda _: strict.too_long()
        failed = await ended(w.client, await turn(w.client, thread, "more"))
        assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        w.model.author = author
        await go(w, thread, "again")
        assert shown(w)[-3:] == [
            ("contextCompaction", ""),
            ("userMessage", "again"),
            ("agentMessage", "Here."),
        ]
        assert author.refusals == []
