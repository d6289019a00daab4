"""Instructions that an editor gives for a session: what the model is sent, what is refused, and what is kept."""

import json

import pytest

from app_server_protocol.encoding import Json
from tests.support.editor import Editor, loaded, opened
from tests.support.scripted_model import Hold, ModelRequest, begins_to_say, reply, says
from tests.support.thread_client import join, say
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

TWO_TURNS = (reply(says("one")), reply(says("two")))


def prompt(mode: str, *texts: str) -> Json:
    return {"systemPrompt": {"mode": mode, "content": [{"type": "text", "text": text} for text in texts]}}


def told(request: ModelRequest) -> list[str]:
    """Return the developer messages about instructions of the session that a request has."""
    found = []
    for item in request.body["input"]:
        if item.get("role") == "developer":
            found += [part["text"] for part in item["content"] if "session_instructions" in part["text"]]
    return found


def roles(request: ModelRequest) -> list[str]:
    return [item["role"] for item in request.body["input"] if item["type"] == "message"]


async def test_appended_instructions_are_a_developer_message_before_the_first_prompt(
    world: MakeWorld,
) -> None:
    async with world(*TWO_TURNS, acp=True) as w:
        editor, session = await opened(w, **prompt("append", "Answer in rhyme.", "Be short."))
        await editor.ends(session, "hi")
        await editor.ends(session, "more")
        first, second = w.model.requests
        (message,) = told(first)
        assert "Answer in rhyme.\n\nBe short." in message
        assert roles(first)[-2:] == ["developer", "user"]
        assert told(second) == [message], "it is sent once"
        assert "rhyme" not in first.body["instructions"]
        assert "rhyme" not in json.dumps(editor.updates())


async def test_overriding_instructions_stand_in_for_the_servers_and_nothing_else(world: MakeWorld) -> None:
    async with world(*TWO_TURNS, files={"AGENTS.md": "Use tabs."}, acp=True) as w:
        editor, usual = await opened(w)
        await editor.ends(usual, "hi")
        session = await editor.session(**prompt("override", "You are a parrot."))
        await editor.ends(session, "hi")
        before, now = w.model.requests
        assert now.body["instructions"] == "You are a parrot."
        assert now.body["tools"] == before.body["tools"]
        assert told(now) == []
        assert "Use tabs." in json.dumps(now.body["input"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "replace", "content": []}, "systemPrompt mode must be append or override"),
        ({"mode": "append", "content": []}, "systemPrompt content must not be empty"),
        (
            {"mode": "append", "content": [{"type": "text", "text": " \n"}]},
            "systemPrompt content must not be empty",
        ),
        (
            {
                "mode": "override",
                "content": [{"type": "text", "text": "a"}, {"type": "image", "data": "", "mimeType": "a/b"}],
            },
            "systemPrompt content must contain only text blocks",
        ),
        ({"mode": "override", "content": [{"type": "text", "text": "ä" * 131_073}]}, "262144 bytes"),
    ],
    ids=["mode", "empty", "blank", "image", "long"],
)
async def test_what_cannot_be_applied_is_refused_and_opens_nothing(
    world: MakeWorld, given: Json, message: str
) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), hold, says("on")), acp=True) as w:
        editor, session = await opened(w)
        running = await editor.prompt(session)
        await hold.reached.wait()
        for method in ("session/new", "session/load", "session/resume", "session/fork"):
            of = {} if method == "session/new" else {"sessionId": session}
            error = (await w.client.ask(method, editor.opening(**of, systemPrompt=given)))["error"]
            assert error["code"] == -32602
            assert message in error["message"]
        hold.release()
        assert (await w.client.answer_to(running))["result"]["stopReason"] == "end_turn"
        assert len(w.rollouts()) == 1


async def test_the_longest_instructions_are_taken(world: MakeWorld) -> None:
    text = "a" * (256 * 1024)
    async with world(reply(says("one")), acp=True) as w:
        editor, session = await opened(w, **prompt("override", text))
        await editor.ends(session)
        assert w.model.requests[0].body["instructions"] == text


@pytest.mark.parametrize("method", ["session/load", "session/resume", "session/fork"])
@pytest.mark.parametrize("turns", [0, 1])
@pytest.mark.parametrize("mode", ["append", "override"])
async def test_instructions_are_kept_with_the_session(
    world: MakeWorld, method: str, turns: int, mode: str
) -> None:
    async with world(*TWO_TURNS[:turns], acp=True) as w:
        editor, session = await opened(w, **prompt(mode, "Speak Latin."))
        for _ in range(turns):
            await editor.ends(session)
    given: list[Json] = [{}, {"systemPrompt": None}, prompt(mode, "Speak Latin.")]
    for more in given:
        async with world(reply(says("again")), acp=True) as w:
            editor = Editor(w)
            await editor.start()
            answer = await w.client.call(method, editor.opening(sessionId=session, **more))
            assert "Latin" not in json.dumps(editor.updates())
            await editor.ends(answer.get("sessionId", session))
            (request,) = w.model.requests
            assert len(told(request)) == (mode == "append")
            assert "Latin" in json.dumps(request.body)
            assert (request.body["instructions"] == "Speak Latin.") is (mode == "override")


@pytest.mark.process
async def test_what_a_client_gave_a_session_outlives_processes(world: MakeWorld) -> None:
    async with world(reply(says("one")), acp=True, transport="process") as w:
        editor, session = await opened(w, **prompt("override", "You are a parrot."))
        await w.client.call("session/set_title", {"sessionId": session, "title": "Parrot"})
        await editor.ends(session)
    async with world(*TWO_TURNS, acp=True, transport="process") as w:
        editor, _ = await loaded(w, session)
        assert (await editor.update("session_info_update"))["title"] == "Parrot"
        copy = (await w.client.call("session/fork", editor.opening(sessionId=session)))["sessionId"]
        for each in (session, copy):
            assert (await editor.turn(each))["result"]["usage"]["totalTokens"] > 0
            assert w.model.requests[-1].body["instructions"] == "You are a parrot."
        listed = (await w.client.call("session/list", {}))["sessions"]
        assert {each["sessionId"]: each["title"] for each in listed} == {session: "Parrot", copy: "Parrot"}


async def test_other_instructions_count_from_the_next_turn(world: MakeWorld) -> None:
    async with world(reply(says("one")), acp=True) as w:
        editor, session = await opened(w, **prompt("append", "Speak Latin."))
        await editor.ends(session)
    async with world(*TWO_TURNS, acp=True) as w:
        editor = Editor(w)
        await editor.start()
        again = prompt("append", "Speak Greek.")
        await w.client.call("session/resume", editor.opening(sessionId=session, **again))
        await editor.ends(session)
        latin, greek = told(w.model.requests[0])
        assert "replace the earlier" in greek
        assert "Greek" in greek
        assert "Latin" in latin
        again = prompt("override", "You are a parrot.")
        await w.client.call("session/resume", editor.opening(sessionId=session, **again))
        await editor.ends(session)
        assert w.model.requests[1].body["instructions"] == "You are a parrot."
        assert "no longer apply" in told(w.model.requests[1])[-1]
    async with world(reply(says("three")), acp=True) as w:
        editor, _ = await loaded(w, session)
        await editor.ends(session)
        (request,) = w.model.requests
        assert request.body["instructions"] == "You are a parrot."
        assert len(told(request)) == 3


async def test_appended_instructions_outlive_a_compaction(world: MakeWorld) -> None:
    replies = reply(says("one")), reply(says("summary")), reply(says("two"))
    async with world(*replies, acp=True) as w:
        editor, session = await opened(w, **prompt("append", "Speak Latin."))
        await editor.ends(session)
        await editor.ends(session, "/compact")
        await editor.ends(session, "on")
        assert len(told(w.model.requests[-1])) == 1
    async with world(reply(says("three")), acp=True) as w:
        editor, _ = await loaded(w, session)
        await editor.ends(session)
        assert len(told(w.model.requests[0])) == 1


async def of_another_api(w: World, session: str, api: str) -> None:
    if api == "v2":
        await join(w.client, session)
        await say(w.client, session)
    else:
        await w.client.call("resumeConversation", {"conversationId": session})
        await w.client.call("addConversationListener", {"conversationId": session})
        await w.client.call(
            "sendUserMessage",
            {"conversationId": session, "items": [{"type": "text", "data": {"text": "hi"}}]},
        )
        await w.client.expect("codex/event/task_complete")


@pytest.mark.parametrize("api", ["v1", "v2"])
@pytest.mark.parametrize("mode", ["append", "override"])
async def test_a_client_of_another_api_goes_on_with_them(world: MakeWorld, api: str, mode: str) -> None:
    async with world(reply(says("one")), acp=True) as w:
        editor, session = await opened(w, **prompt(mode, "Speak Latin."))
        await editor.ends(session)
    for _ in range(2):
        async with world(reply(says("two"))) as w:
            await of_another_api(w, session, api)
            (request,) = w.model.requests
            assert len(told(request)) == (mode == "append")
            assert (request.body["instructions"] == "Speak Latin.") is (mode == "override")


async def test_instructions_are_no_right_that_the_user_reserves(world: MakeWorld) -> None:
    tables = "[app_server]\nclient_rights = false\n"
    async with world(reply(says("one")), tables=tables, acp=True) as w:
        editor, session = await opened(w, **prompt("override", "You are a parrot."))
        await editor.ends(session)
        assert w.model.requests[0].body["instructions"] == "You are a parrot."


async def test_the_title_is_of_the_prompt(world: MakeWorld) -> None:
    async with world(reply(says("one")), acp=True) as w:
        editor, session = await opened(w, **prompt("append", "Speak Latin."))
        await editor.ends(session, "What is the time?")
        (listed,) = (await w.client.call("session/list", {}))["sessions"]
        assert listed["title"] == "What is the time?"
