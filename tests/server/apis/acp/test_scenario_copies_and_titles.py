"""Copies of sessions, titles that clients set, and the tokens of a prompt, over the Agent Client Protocol."""

import json

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Client
from tests.support.editor import Editor, loaded, opened
from tests.support.scripted_model import Hold, begins_to_say, chat_reply, failure, reply, says, script, word
from tests.support.thread_client import join
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

NO_SESSION = "019c0000-0000-7000-8000-000000000000"


async def fork(w: World, editor: Editor, session: str, **more: Json) -> Json:
    return await w.client.call("session/fork", editor.opening(sessionId=session, **more))


async def titles(client: Client) -> dict[str, str]:
    listed = (await client.call("session/list", {}))["sessions"]
    return {each["sessionId"]: each.get("title") for each in listed}


# --- copies
async def test_a_copy_has_the_whole_conversation_and_is_told_nothing_of_it(world: MakeWorld) -> None:
    replies = reply(script("echo out")), reply(says("one")), reply(says("two")), reply(says("three"))
    async with world(*replies, acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session, "first words")
        await editor.update("available_commands_update")
        before = len(editor.updates())
        answer = await fork(w, editor, session)
        copy = answer["sessionId"]
        assert copy != session
        assert {"modes", "configOptions", "sessionId"} == answer.keys()
        await editor.update("available_commands_update")
        kinds = [each["sessionUpdate"] for each in editor.updates()[before:]]
        assert set(kinds) == {"available_commands_update"}
        await editor.ends(copy, "in the copy")
        assert w.model.requests[-1].texts() == ["first words", "in the copy"]
        await editor.ends(session, "in the source")
        assert w.model.requests[-1].texts() == ["first words", "in the source"]
    async with world(acp=True) as w:
        editor, _ = await loaded(w, copy)
        assert [each["content"]["text"] for each in editor.updates("user_message_chunk")] == [
            "first words",
            "in the copy",
        ]


async def test_a_turn_that_runs_goes_on_and_is_not_copied(world: MakeWorld) -> None:
    hold = Hold()
    replies = (
        reply(says("one")),
        reply(begins_to_say(), word("a"), hold, says("a")),
        reply(says("b")),
        reply(says("c")),
    )
    async with world(*replies, acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session, "first")
        running = await editor.prompt(session, "second")
        await hold.reached.wait()
        copy = (await fork(w, editor, session))["sessionId"]
        await editor.ends(copy, "third")
        assert w.model.requests[-1].texts() == ["first", "third"]
        hold.release()
        assert (await w.client.answer_to(running))["result"]["stopReason"] == "end_turn"
        await editor.ends(session, "fourth")
        assert w.model.requests[-1].texts() == ["first", "second", "fourth"]


async def test_a_copy_begins_with_what_was_chosen_in_its_source(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two")), acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session)
        for id, value in (("model", "gpt-6-sol"), ("reasoning_effort", "high"), ("mode", "read-only")):
            await w.client.call(
                "session/set_config_option", {"sessionId": session, "configId": id, "value": value}
            )
        answer = await fork(w, editor, session)
        now = {each["id"]: each["currentValue"] for each in answer["configOptions"]}
        assert now == {"mode": "read-only", "model": "gpt-6-sol", "reasoning_effort": "high"}
        await editor.ends(answer["sessionId"])
        body = w.model.requests[-1].body
        assert (body["model"], body["reasoning"]["effort"]) == ("gpt-6-sol", "high")


async def test_folders_and_title_of_a_copy(world: MakeWorld) -> None:
    async with world(reply(says("one")), acp=True, files={"sub/file": ""}) as w:
        editor, session = await opened(w)
        await editor.ends(session)
        await w.client.call("session/set_title", {"sessionId": session, "title": "Mine"})
    async with world(reply(script("pwd")), reply(says("two")), acp=True) as w:
        editor = Editor(w)
        await editor.start()
        copy = (await fork(w, editor, session, cwd=str(w.workspace / "sub")))["sessionId"]
        await editor.ends(copy)
        (call,) = editor.calls().values()
        assert str(w.workspace / "sub") in json.dumps(call["content"])
        assert await titles(w.client) == {session: "Mine", copy: "Mine"}


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"sessionId": NO_SESSION}, -32002),
        ({"sessionId": "no id"}, -32002),
        ({"cwd": "relative"}, -32602),
        ({"cwd": "/no/such/folder"}, -32602),
    ],
)
async def test_a_copy_that_cannot_be_made_is_refused(world: MakeWorld, params: Json, code: int) -> None:
    async with world(reply(says("one")), acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session)
        error = (await w.client.ask("session/fork", editor.opening(**{"sessionId": session, **params})))[
            "error"
        ]
        assert error["code"] == code
        if code == -32002:
            assert error["data"]["sessionId"] == params["sessionId"]
        assert len(w.rollouts()) == 1


async def test_what_the_user_reserves_is_refused_to_a_copy_too(world: MakeWorld) -> None:
    tables = "[app_server]\nclient_rights = false\n"
    async with world(reply(says("one")), tables=tables, acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session)
        servers = [{"name": "x", "command": "/bin/true", "args": [], "env": []}]
        answer = await w.client.ask("session/fork", editor.opening(sessionId=session, mcpServers=servers))
        assert "client_rights" in answer["error"]["message"]
        assert len(w.rollouts()) == 1


# --- titles
async def test_a_title_outlives_a_turn_and_a_restart(world: MakeWorld) -> None:
    async with world(reply(says("one")), acp=True) as w:
        editor, session = await opened(w)
        answer = await w.client.call(
            "session/set_title", {"sessionId": session, "title": "  A \n title  of mine "}
        )
        assert answer == {"title": "A title of mine"}
        assert await editor.update("session_info_update") == {
            "sessionUpdate": "session_info_update",
            "title": "A title of mine",
        }
        await editor.ends(session, "words of the prompt")
        assert len(editor.updates("session_info_update")) == 1
        assert await titles(w.client) == {session: "A title of mine"}
    async with world(acp=True) as w:
        editor, _ = await loaded(w, session)
        assert (await editor.update("session_info_update"))["title"] == "A title of mine"


async def test_a_session_that_is_not_open_is_named_too(world: MakeWorld) -> None:
    async with world(reply(says("one")), acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session)
    async with world(acp=True) as w:
        editor = Editor(w)
        await editor.start()
        answer = await w.client.call("session/set_title", {"sessionId": session, "title": "x" * 300})
        assert answer == {"title": "x" * 200}
        assert editor.updates("session_info_update") == []
        (title,) = (await titles(w.client)).values()
        assert title.startswith("xxx")


@pytest.mark.parametrize(
    ("params", "code"),
    [({"title": " \n"}, -32602), ({"title": None}, -32602), ({"sessionId": NO_SESSION}, -32002)],
)
async def test_a_title_that_is_none_is_refused(world: MakeWorld, params: Json, code: int) -> None:
    async with world(reply(says("one")), acp=True) as w:
        editor, session = await opened(w)
        await editor.ends(session, "words")
        answer = await w.client.ask("session/set_title", {"sessionId": session, "title": "t", **params})
        assert answer["error"]["code"] == code
        assert await titles(w.client) == {session: "words"}


async def test_clients_of_all_apis_learn_the_name(world: MakeWorld) -> None:
    async with world(reply(says("one"))) as w, w.another(acp=True) as agent:
        editor = Editor(World(w.root, w.model, agent, w.environment))
        await editor.start()
        session = await editor.session()
        await editor.ends(session)
        await join(w.client, session)
        await agent.call("session/set_title", {"sessionId": session, "title": "of the editor"})
        named = (await w.client.expect("thread/name/updated"))["params"]
        assert named == {"threadId": session, "threadName": "of the editor"}
        await w.client.call("thread/name/set", {"threadId": session, "name": "of the front end"})
        titles_sent = [(await editor.update("session_info_update"))["title"]]
        while titles_sent[-1] != "of the front end":
            titles_sent.append((await editor.update("session_info_update"))["title"])
        assert len(titles_sent) <= 3


# --- tokens
async def test_a_prompt_is_answered_with_the_tokens_of_its_turn(world: MakeWorld) -> None:
    async with world(reply(script("true")), reply(says("one")), reply(says("two")), acp=True) as w:
        editor, session = await opened(w)
        two = (await editor.turn(session))["result"]["usage"]
        one = (await editor.turn(session))["result"]["usage"]
        assert one["totalTokens"] == one["inputTokens"] + one["outputTokens"] > 0
        assert two == {name: 2 * value for name, value in one.items()}
        assert one.keys() == {
            *("totalTokens", "inputTokens", "outputTokens", "thoughtTokens"),
            *("cachedReadTokens", "cachedWriteTokens"),
        }


async def test_tokens_from_a_cache_are_counted_apart(world: MakeWorld) -> None:
    replies = reply(script("true"), input=100, cached=60), reply(says("one"), input=200, cached=150)
    async with world(*replies, acp=True) as w:
        editor, session = await opened(w)
        usage = (await editor.turn(session))["result"]["usage"]
        assert (usage["inputTokens"], usage["cachedReadTokens"], usage["outputTokens"]) == (90, 210, 10)
        assert usage["totalTokens"] == 310


async def test_no_tokens_are_told_where_no_request_told_them(world: MakeWorld) -> None:
    provider = {"wire_api": "chat"}
    async with world(chat_reply({"content": "one"}), provider=provider, acp=True) as w:
        editor, session = await opened(w)
        assert (await editor.turn(session))["result"] == {"stopReason": "end_turn"}
        assert (await editor.turn(session, "/status"))["result"] == {"stopReason": "end_turn"}


async def test_the_last_prompt_of_a_turn_gets_its_tokens(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold, says("a")), reply(says("b")), acp=True) as w:
        editor, session = await opened(w)
        first = await editor.prompt(session, "one")
        await hold.reached.wait()
        second = await editor.prompt(session, "two")
        await w.client.call("session/list", {})
        hold.release()
        assert "usage" not in (await w.client.answer_to(first))["result"]
        assert (await w.client.answer_to(second))["result"]["usage"]["totalTokens"] > 0


async def test_a_turn_that_fails_tells_no_tokens(world: MakeWorld) -> None:
    async with world(failure(400, {"error": {"message": "no"}}), acp=True) as w:
        editor, session = await opened(w)
        assert "error" in await editor.turn(session)
