"""One conversation, gone on with by one API after another: what each has said and done is there for the next."""

from collections.abc import Awaitable, Callable

import pytest

from protocol.base import Json
from tests.support.editor import Editor
from tests.support.scripted_model import Reply, done, patches, reply, says, script
from tests.support.thread_client import ended, start, turn
from tests.support.world import MakeWorld, World

Before = tuple[str, ...]
"""The APIs that made the turns so far."""

PATCH = "*** Begin Patch\n*** Add File: made-{0}.txt\n+one\n*** End Patch"


def work(n: int) -> tuple[Reply, ...]:
    """A turn with a thought, a command that fails, a patch and two messages."""
    thought = {
        "type": "reasoning",
        "id": f"rs-{n}",
        "summary": [{"type": "summary_text", "text": f"thought {n}"}],
    }
    return (
        reply(done(thought), says(f"begun {n}", f"begun-{n}"), script(f"echo out-{n}; exit 3", f"run-{n}")),
        reply(patches(PATCH.format(n), f"edit-{n}")),
        reply(says(f"done {n}", f"done-{n}")),
    )


def said_in(turns: int) -> list[str]:
    return [text for n in range(turns) for text in (f"begun {n}", f"done {n}")]


async def by_sessions(w: World, id: str | None, before: Before) -> str:
    editor = Editor(w)
    await editor.start()
    if id is None:
        id = await editor.session()
    else:
        (listed,) = (await w.client.call("session/list", {}))["sessions"]
        assert (listed["sessionId"], listed["title"]) == (id, "words 0")
        await w.client.call("session/load", editor.opening(sessionId=id))
        _told_to_an_editor(w, editor, len(before))
    assert await editor.ends(id, f"words {len(before)}") == "end_turn"
    return id


def _told_to_an_editor(w: World, editor: Editor, turns: int) -> None:
    assert editor.text("user_message_chunk") == "".join(f"words {n}" for n in range(turns))
    assert editor.text("agent_thought_chunk") == "".join(f"thought {n}" for n in range(turns))
    assert editor.text() == "".join(said_in(turns))
    told = list(editor.calls().values())
    assert [(call["kind"], call["status"]) for call in told] == [
        ("execute", "failed"),
        ("edit", "completed"),
    ] * turns
    for n in range(turns):
        command, patch = told[2 * n : 2 * n + 2]
        assert f"out-{n}" in command["content"][0]["content"]["text"]
        assert patch["content"][0]["path"] == str(w.workspace / f"made-{n}.txt")


async def by_threads(w: World, id: str | None, before: Before) -> str:
    await w.client.initialize()
    if id is None:
        id = await start(w.client, cwd=str(w.workspace))
    else:
        (listed,) = (await w.client.call("thread/list", {}))["data"]
        assert (listed["id"], listed["preview"]) == (id, "words 0")
        thread = (await w.client.call("thread/resume", {"threadId": id}))["thread"]
        _resumed_as_a_thread(w, thread["turns"], before)
    done = await ended(w.client, await turn(w.client, id, f"words {len(before)}"))
    assert done["status"] == "completed"
    return id


def _resumed_as_a_thread(w: World, turns: list[Json], before: Before) -> None:
    """The conversation API stores a turn as codex 0.58 does, whose commands and patches are no items of a thread."""
    for n, (each, api) in enumerate(zip(turns, before, strict=True)):
        items = {item["type"]: item for item in each["items"]}
        calls = [] if api == "conversations" else ["commandExecution", "fileChange"]
        assert [item["type"] for item in each["items"]] == [
            *("userMessage", "reasoning", "agentMessage"),
            *(*calls, "agentMessage"),
        ]
        said = [item["text"] for item in each["items"] if item["type"] == "agentMessage"]
        assert said == [f"begun {n}", f"done {n}"]
        if calls:
            command, change = items["commandExecution"], items["fileChange"]["changes"][0]
            assert (command["exitCode"], command["aggregatedOutput"]) == (3, f"out-{n}\n")
            assert change["path"] == str(w.workspace / f"made-{n}.txt")


async def by_conversations(w: World, id: str | None, before: Before) -> str:
    n = len(before)
    await w.client.initialize()
    if id is None:
        id = await w.open()
    else:
        (listed,) = (await w.client.call("listConversations", {}))["items"]
        assert (listed["conversationId"], listed["preview"]) == (id, "words 0")
        resumed = await w.client.call("resumeConversation", {"conversationId": id})
        told: list[Json] = resumed["initialMessages"]
        assert [e["message"] for e in told if e["type"] == "user_message"] == [f"words {m}" for m in range(n)]
        assert [e["message"] for e in told if e["type"] == "agent_message"] == said_in(n)
        assert [e["text"] for e in told if e["type"] == "agent_reasoning"] == [
            f"thought {m}" for m in range(n)
        ]
        await w.client.listen(id)
    assert (await w.client.turn(id, f"words {n}")).last_message == f"done {n}"
    return id


APIS: dict[str, Callable[[World, str | None, Before], Awaitable[str]]] = {
    "sessions": by_sessions,
    "threads": by_threads,
    "conversations": by_conversations,
}


@pytest.mark.parametrize(
    "order",
    [
        ("sessions", "threads", "conversations", "sessions"),
        ("conversations", "sessions", "threads"),
        ("threads", "sessions", "conversations"),
    ],
    ids="-".join,
)
async def test_each_api_goes_on_with_what_the_others_did(world: MakeWorld, order: tuple[str, ...]) -> None:
    id: str | None = None
    for n, api in enumerate(order):
        async with world(*work(n), acp=api == "sessions", initialize=False) as w:
            id = await APIS[api](w, id, order[:n])
            request = w.model.requests[-1]
            assert request.texts() == [f"words {m}" for m in range(n + 1)]
            assert request.texts("assistant") == [*said_in(n), f"begun {n}"]
            assert list(request.outputs()) == [
                each for m in range(n + 1) for each in (f"run-{m}", f"edit-{m}")
            ]
            assert [path.name.count(id) for path in w.rollouts()] == [1], "one file, whoever goes on"
            assert (w.workspace / f"made-{n}.txt").exists()
