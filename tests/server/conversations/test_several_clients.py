"""Several clients of one server, over the thread API: the state of each client, and the shared state of a thread."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from app_server.server.conversations.idle import IDLE_SECONDS, IdleReaper, UnattendedReaper
from app_server_protocol.encoding import Json
from tests.support.client import Client, Refused
from tests.support.scripted_model import (
    Hold,
    ScriptedModel,
    begins_to_say,
    calls,
    done,
    reply,
    says,
    script,
    word,
)
from tests.support.thread_client import ended, heard, join, say, start, turn
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

ASKS: Json = {"approvalPolicy": "untrusted"}
SHOWS = ["sh", "-c", "echo $WHO > who"]


def runs(*command: str, call: str = "c") -> Json:
    return calls("shell", {"command": list(command)}, call_id=call)


def asked(client: Client, method: str = "item/commandExecution/requestApproval") -> list[Json]:
    return [m for m in client.received() if m.get("method") == method and "id" in m]


async def question(client: Client, method: str = "item/commandExecution/requestApproval") -> Json:
    return await client.expect(lambda m: m.get("method") == method and "id" in m)


def who(w: World) -> str:
    return (w.workspace / "who").read_text().strip()


async def test_each_client_has_its_own_environment_folder_and_name(world: MakeWorld, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    replies = (reply(runs(*SHOWS)), reply(says("a")), reply(runs(*SHOWS)), reply(says("b")))
    async with (
        world(*replies, environment={"WHO": "first"}) as w,
        w.another(environment={"WHO": "second"}, cwd=tmp_path / "elsewhere", name="editor") as other,
    ):
        mine = await start(w.client)
        theirs = await start(other)
        await say(w.client, mine)
        await say(other, theirs)
        assert who(w) == "first"
        assert (tmp_path / "elsewhere" / "who").read_text().strip() == "second"
        names = [request.headers["originator"] for request in w.model.requests]
        assert names == ["tests", "tests", "editor", "editor"]
        originators = [path.read_text().splitlines()[0] for path in w.rollouts()]
        assert sorted('"originator":"editor"' in line.replace(" ", "") for line in originators) == [
            False,
            True,
        ]
        assert [each["threadId"] for each in heard(other, "turn/started")] == [theirs]
        assert [each["threadId"] for each in heard(w.client, "item/completed")] == [mine] * 3


async def test_a_turn_runs_in_the_environment_of_who_began_it(world: MakeWorld) -> None:
    replies = [each for n in "abc" for each in (reply(runs(*SHOWS, call=n)), reply(says(n)))]
    async with (
        world(*replies, environment={"WHO": "first"}) as w,
        w.another(environment={"WHO": "second"}) as other,
        w.another(brings_environment=False) as without,
    ):
        thread = await start(w.client)
        await say(w.client, thread)
        assert who(w) == "first"
        await join(other, thread)
        await say(other, thread)
        assert who(w) == "second"
        await join(without, thread)
        await say(without, thread)  # without an environment, that of the last turn holds
        assert who(w) == "second"


async def test_keys_come_from_the_environment_of_who_begins_the_turn(world: MakeWorld) -> None:
    async with (
        world(reply(says("a")), provider={"env_key": "MODEL_KEY"}) as w,
        w.another(environment={"MODEL_KEY": "of-the-other"}) as other,
    ):
        thread = await start(w.client)
        failed = await ended(w.client, await turn(w.client, thread))
        assert failed["status"] == "failed"
        assert "MODEL_KEY" in failed["error"]["message"]
        await join(other, thread)
        done = await ended(other, await turn(other, thread))
        assert done["status"] == "completed"
        again = await ended(w.client, await turn(w.client, thread))
        assert "MODEL_KEY" in again["error"]["message"]  # the other client's key is not kept
        assert [request.headers["authorization"] for request in w.model.requests] == ["Bearer of-the-other"]


async def test_requests_to_the_model_go_through_the_proxy_of_who_begins_the_turn(world: MakeWorld) -> None:
    first, second = ScriptedModel([reply(says("a"))]), ScriptedModel([reply(says("b"))])
    async with world(provider={"base_url": "http://model.test/v1"}) as w, AsyncExitStack() as stack:
        clients = []
        for model in (first, second):
            url = await stack.enter_async_context(model.serving())
            through = {"HTTP_PROXY": url.removesuffix("/v1")}
            clients.append(await stack.enter_async_context(w.another(environment=through)))
        thread = await start(clients[0])
        await say(clients[0], thread, "by the first")
        await join(clients[1], thread)
        await say(clients[1], thread, "by the second")
    for model, asked_for in ((first, "by the first"), (second, "by the second")):
        [request] = model.requests
        assert request.path == "http://model.test/v1/responses"
        assert request.texts()[-1] == asked_for


async def test_opt_outs_and_what_is_experimental_are_a_clients_own(world: MakeWorld) -> None:
    can = {"experimentalApi": True, "optOutNotificationMethods": ["thread/tokenUsage/updated"]}
    async with world(reply(says("a"))) as w, w.another(capabilities=can) as other:
        thread = await start(w.client)
        await join(other, thread)
        await say(w.client, thread)
        await other.expect("turn/completed")
        assert heard(other, "thread/tokenUsage/updated") == []
        assert len(heard(w.client, "thread/tokenUsage/updated")) == 1
        stop: Json = {"sessionId": "x"}
        with pytest.raises(Refused, match="experimentalApi"):
            await w.client.call("fuzzyFileSearch/sessionStop", stop)
        await other.call("fuzzyFileSearch/sessionStop", stop)


@pytest.mark.parametrize("receives_all_threads", [False, True])
async def test_a_client_hears_of_foreign_threads_only_if_it_wants_to(
    world: MakeWorld, receives_all_threads: bool
) -> None:
    async with (
        world(reply(says("a"))) as w,
        w.another(receives_all_threads=receives_all_threads, capabilities={}) as other,
    ):
        await other.call("thread/loaded/list", {})
        thread = await start(w.client)
        await say(w.client, thread)
        await other.call("thread/read", {"threadId": thread})
        assert [each["thread"]["id"] for each in heard(other, "thread/started")] == [
            thread
        ] * receives_all_threads
        assert bool(heard(other, "thread/status/changed")) is receives_all_threads
        assert heard(other, "turn/started") == []


async def test_two_subscribers_are_told_the_same_in_the_same_order(world: MakeWorld) -> None:
    async with world(reply(runs("true")), reply(says("done"))) as w, w.another() as other:
        thread = await start(w.client)
        await join(other, thread)
        await say(w.client, thread)
        await w.client.expect("thread/status/changed")
        await other.expect("turn/completed")
        await other.call("thread/read", {"threadId": thread})
        await w.client.call("thread/read", {"threadId": thread})

        def told(client: Client) -> list[tuple[str, Json]]:
            return [
                (m["method"], m["params"])
                for m in client.received()
                if "id" not in m and m["method"].startswith(("turn/", "item/"))
            ]

        assert told(w.client) == told(other)
        assert len(told(other)) > 6


async def test_the_first_yes_runs_a_command_once_and_closes_the_question_for_all(world: MakeWorld) -> None:
    replies = (reply(runs("sh", "-c", "echo x >> ran")), reply(says("done")))
    async with world(*replies) as w, w.another() as second, w.another() as third:
        thread = await start(w.client, **ASKS)
        await join(second, thread)
        await join(third, thread)
        begun = await turn(w.client, thread)
        copies = [await question(each) for each in (w.client, second, third)]
        await second.answer(copies[1], {"decision": "accept"})
        for each, copy in zip((w.client, second, third), copies, strict=True):
            resolved = await each.expect("serverRequest/resolved")
            assert resolved["params"]["requestId"] == copy["id"]
        await third.answer(copies[2], {"decision": "cancel"})  # it comes too late
        assert (await ended(w.client, begun))["status"] == "completed"
        assert (w.workspace / "ran").read_text() == "x\n"


async def test_an_id_under_which_a_client_was_not_asked_answers_nothing(world: MakeWorld) -> None:
    replies = (reply(runs("touch", "ran")), reply(says("done")))
    async with world(*replies) as w, w.another() as stranger:
        thread = await start(w.client, **ASKS)
        begun = await turn(w.client, thread)
        copy = await question(w.client)
        for id in (copy["id"], 0, 1, 2, str(copy["id"])):
            await stranger.write({"id": id, "result": {"decision": "accept"}})
        await stranger.call("thread/loaded/list", {})
        assert heard(w.client, "serverRequest/resolved") == []
        await w.client.answer(copy, {"decision": "decline"})
        await ended(w.client, begun)
        assert not (w.workspace / "ran").exists()


async def test_what_is_no_answer_takes_a_question_back_from_one_client_and_is_a_no_from_the_last(
    world: MakeWorld,
) -> None:
    replies = (reply(runs("touch", "one")), reply(runs("touch", "two", call="d")), reply(says("done")))
    async with world(*replies) as w, w.another() as other:
        thread = await start(w.client, **ASKS)
        await join(other, thread)
        begun = await turn(w.client, thread)
        await w.client.answer(await question(w.client), {"decision": "perhaps"})
        await w.client.expect("serverRequest/resolved")
        await other.answer(await question(other), {"decision": "accept"})
        mine, theirs = await question(w.client), await question(other)
        await w.client.write({"id": mine["id"], "error": {"code": -32601, "message": "what?"}})
        await w.client.expect("serverRequest/resolved")
        await other.answer(theirs, {"decision": 7})
        await ended(w.client, begun)
        assert (w.workspace / "one").exists()
        assert not (w.workspace / "two").exists()


async def test_a_copy_that_was_taken_back_answers_nothing_any_more(world: MakeWorld) -> None:
    replies = (reply(runs("touch", "ran")), reply(says("done")))
    async with world(*replies) as w, w.another() as other:
        thread = await start(w.client, **ASKS)
        await join(other, thread)
        begun = await turn(w.client, thread)
        copy = await question(w.client)
        await w.client.answer(copy, {"decision": "perhaps"})
        await w.client.expect("serverRequest/resolved")
        await w.client.write({"id": copy["id"], "result": {"decision": "accept"}})
        await w.client.call("thread/loaded/list", {})
        assert heard(other, "serverRequest/resolved") == []
        await other.answer(await question(other), {"decision": "decline"})
        await ended(w.client, begun)
        assert not (w.workspace / "ran").exists()


async def test_a_question_outlives_who_was_asked_and_is_put_to_who_joins(world: MakeWorld) -> None:
    replies = (reply(runs("touch", "ran")), reply(says("done")))
    async with world(*replies) as w:
        async with w.another() as asking, w.another() as beside:
            thread = await start(asking, **ASKS)
            await join(beside, thread)
            await turn(asking, thread)
            await question(asking)
            await question(beside)
        # Both clients have left. The turn goes on, and waits.
        found = await w.client.call("thread/read", {"threadId": thread})
        assert found["thread"]["status"] == {"type": "active", "activeFlags": ["waitingOnApproval"]}
        await join(w.client, thread)
        await w.client.answer(await question(w.client), {"decision": "accept"})
        await w.client.expect("turn/completed")
        assert (w.workspace / "ran").exists()


async def test_who_leaves_answers_to_others_is_asked_where_nobody_else_is_there(world: MakeWorld) -> None:
    last: Json = {"extensions": {"questions": "last"}}
    replies = (reply(runs("touch", "ran")), reply(says("done")))
    async with world(*replies) as w, w.another(capabilities=last) as script:
        async with w.another() as editor:
            thread = await start(editor, **ASKS)
            await join(script, thread)
            await turn(editor, thread)
            await question(editor)
            assert asked(script) == []
        await script.answer(await question(script), {"decision": "decline"})
        await script.expect("turn/completed")
        assert not (w.workspace / "ran").exists()
        del w


async def test_an_interrupt_from_anywhere_closes_the_question_for_who_is_left(world: MakeWorld) -> None:
    async with world(reply(runs("touch", "ran"))) as w, w.another() as third:
        async with w.another() as leaving:
            thread = await start(w.client, **ASKS)
            await join(leaving, thread)
            begun = await turn(leaving, thread)
            await question(leaving)
            copy = await question(w.client)
        await third.call("turn/interrupt", {"threadId": thread, "turnId": begun})
        assert (await w.client.expect("serverRequest/resolved"))["params"]["requestId"] == copy["id"]
        assert (await ended(w.client, begun))["status"] == "interrupted"
        assert not (w.workspace / "ran").exists()


async def test_who_is_in_two_apis_is_asked_in_the_one_that_it_joined_last(world: MakeWorld) -> None:
    async with world(reply(runs("touch", "ran")), reply(says("done"))) as w, w.another() as other:
        thread = await start(w.client, **ASKS)
        await join(other, thread)
        await other.listen(thread)
        begun = await turn(w.client, thread)
        await question(other, "execCommandApproval")
        await w.client.answer(await question(w.client), {"decision": "decline"})
        await ended(w.client, begun)
        assert asked(other) == []


async def test_turns_that_are_begun_at_once_are_one(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w, w.another() as other:
        thread = await start(w.client)
        await join(other, thread)
        ids: list[str] = []
        async with anyio.create_task_group() as group:
            for client, text in ((w.client, "one"), (other, "two")):

                async def begin(client: Client = client, text: str = text) -> None:
                    ids.append(await turn(client, thread, text))

                group.start_soon(begin)
        assert len(set(ids)) == 1
        await ended(w.client, ids[0])
        said = [
            each["item"]["content"][0]["text"]
            for each in heard(w.client, "item/completed")
            if each["item"]["type"] == "userMessage"
        ]
        assert sorted(said) == ["one", "two"]
        assert len(heard(w.client, "turn/completed")) == 1


async def test_a_turn_goes_on_without_its_client_and_can_be_read_by_others(world: MakeWorld) -> None:
    async with world(reply(runs("sh", "-c", "read line < gate")), reply(says("done"))) as w:
        w.fifo("gate")
        async with w.another() as leaving:
            thread = await start(leaving)
            await turn(leaving, thread)
            await leaving.expect("item/started")
        await join(w.client, thread)
        await w.open_gate("gate")
        done = await w.client.expect("turn/completed")
        assert done["params"]["turn"]["status"] == "completed"


async def test_names_settings_and_archiving_are_told_to_all_who_follow(world: MakeWorld) -> None:
    async with world(reply(says("a"))) as w, w.another() as other:
        thread = await start(w.client)
        await say(w.client, thread)
        await join(other, thread)
        await other.call("thread/name/set", {"threadId": thread, "name": "new"})
        assert (await w.client.expect("thread/name/updated"))["params"]["threadName"] == "new"
        await other.call("turn/start", {"threadId": thread, "input": [], "effort": "low"})
        changed = await w.client.expect("thread/settings/updated")
        assert changed["params"]["threadSettings"]["effort"] == "low"
        await w.client.expect("turn/completed")
        await other.call("thread/goal/set", {"threadId": thread, "objective": "rest", "status": "paused"})
        told = await w.client.expect("thread/goal/updated")
        assert (told["params"]["goal"]["objective"], told["params"]["turnId"]) == ("rest", None)
        await other.call("thread/goal/clear", {"threadId": thread})
        await w.client.expect("thread/goal/cleared")
        await other.call("thread/archive", {"threadId": thread})
        await w.client.expect("thread/archived")


def text_of(item: Json) -> str:
    """Return the text or the output of an item."""
    match item["type"]:
        case "agentMessage":
            return str(item["text"])
        case "reasoning":
            return "|".join((*item["summary"], *item["content"]))
        case "commandExecution":
            return item["aggregatedOutput"] or ""
        case _:
            return ""


def followed(client: Client) -> dict[str, tuple[str, str]]:
    """Return the text of each item that the client followed from its begin: by begin and deltas, and by its end."""
    begun, whole = dict[str, str](), dict[str, tuple[str, str]]()
    for message in client.received():
        params = message.get("params") or {}
        if message.get("method") == "item/started":
            begun[params["item"]["id"]] = text_of(params["item"])
        elif str(message.get("method")).lower().endswith("delta"):
            begun[params["itemId"]] += params["delta"]
        elif message.get("method") == "item/completed":
            id = params["item"]["id"]
            assert id in begun, f"{id} ends and was not told of"
            whole[id] = begun[id], text_of(params["item"])
    return whole


THOUGHT: Json = {
    "type": "reasoning",
    "id": "rs-1",
    "summary": [{"type": "summary_text", "text": "think hard"}],
}


def thinks(text: str) -> Json:
    return {"type": "response.reasoning_summary_text.delta", "delta": text, "summary_index": 0}


async def test_who_joins_in_the_middle_of_an_item_has_its_whole_text(world: MakeWorld) -> None:
    """A client joins while the model thinks, while a command prints, and while the model speaks."""
    holds = [Hold() for _ in range(3)]
    thought = [
        {"type": "response.output_item.added", "item": {**THOUGHT, "summary": []}},
        *(thinks("think "), holds[0], thinks("hard"), done(THOUGHT)),
    ]
    command = script("echo 1; read line < gate; echo 2")
    message = [
        begins_to_say(),
        word("one "),
        holds[1],
        word("two "),
        holds[2],
        word("three"),
        says("one two three"),
    ]
    async with world(reply(*thought, command), reply(*message)) as w, AsyncExitStack() as stack:
        w.fifo("gate")
        thread = await start(w.client)
        joined: list[Client] = []

        async def join_with(so_far: str) -> None:
            client = await stack.enter_async_context(w.another())
            joined.append(client)
            running = (await join(client, thread))["thread"]["turns"][-1]
            assert (running["status"], text_of(running["items"][-1])) == ("inProgress", so_far)
            begun = await client.expect("turn/started")
            assert begun["params"]["turn"]["id"] == running["id"]
            assert text_of((await client.expect("item/started"))["params"]["item"]) == so_far

        await turn(w.client, thread)
        await w.client.expect("item/reasoning/summaryTextDelta")
        await join_with("think ")
        holds[0].release()
        await w.client.expect("item/commandExecution/outputDelta")
        await join_with("1\n")
        await w.open_gate("gate")
        for hold, so_far in zip(holds[1:], ("one ", "one two "), strict=True):
            await w.client.expect("item/agentMessage/delta")
            await join_with(so_far)
            hold.release()
        await w.client.expect("turn/completed")
        for client in joined:
            await client.expect("turn/completed")
            await client.call("thread/loaded/list", {})
        whole = followed(w.client)
        assert [end for _, end in whole.values()] == ["", "think hard", "1\n2\n", "one two three"]
        for number, client in enumerate(joined):
            theirs = followed(client)
            assert list(theirs) == list(whole)[min(number, 2) + 1 :]
            assert all(by_deltas == by_end for by_deltas, by_end in theirs.values())


async def test_a_client_without_a_folder_names_one(world: MakeWorld) -> None:
    async with world(reply(says("a"))) as w, w.another(has_cwd=False) as other:
        for method, params in (
            ("thread/start", {}),
            ("thread/start", {"cwd": None}),
            ("thread/start", {"cwd": "relative"}),
            ("newConversation", {}),
            ("command/exec", {"command": ["true"]}),
        ):
            answer = await other.ask(method, params)
            assert (answer["error"]["code"], answer["error"]["data"]["field"]) == (-32602, "cwd")
        await say(other, await start(other, cwd=str(w.workspace)))


async def test_commands_of_a_client_run_in_its_environment_and_end_with_it(world: MakeWorld) -> None:
    async with world(environment={"WHO": "first"}) as w:
        w.fifo("gate")
        async with w.another(environment={"WHO": "second"}, capabilities={"experimentalApi": True}) as other:
            for client, name in ((w.client, "first"), (other, "second")):
                ran = await client.call("command/exec", {"command": ["sh", "-c", "echo $WHO"]})
                assert ran["stdout"] == f"{name}\n"
            long: Json = {"command": ["sh", "-c", "echo $$ > pid; read line < gate"], "timeoutMs": 60_000}
            await other.send("command/exec", long)
            await until(lambda: (w.workspace / "pid").exists() and (w.workspace / "pid").read_text() != "")
            other.left_early = True
        pid = int((w.workspace / "pid").read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert (await w.client.call("command/exec", {"command": ["echo", "on"]}))["stdout"] == "on\n"


async def test_a_login_of_one_is_told_to_all_who_speak_the_api(world: MakeWorld) -> None:
    async with world() as w, w.another() as other, w.another() as older:
        await other.call("account/read", {})
        await older.call("getAuthStatus", {})
        await w.client.call("account/login/start", {"type": "apiKey", "apiKey": "sk-test"})
        for client in (w.client, other):
            assert (await client.expect("account/updated"))["params"]["authMode"] == "apikey"
        assert heard(other, "account/login/completed") == []
        await older.call("getAuthStatus", {})
        assert [m for m in older.received() if "method" in m] == []


async def test_a_server_that_drains_lets_what_runs_end_and_begins_nothing(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold, says("ab"))) as w, w.another() as other:
        thread = await start(w.client)
        begun = await turn(w.client, thread)
        await hold.reached.wait()
        assert w.in_process is not None
        w.in_process.conversations.draining = True
        for method, params in (
            ("thread/start", {}),
            ("turn/start", {"threadId": thread, "input": []}),
            ("newConversation", {}),
        ):
            error = (await other.ask(method, params))["error"]
            assert (error["code"], error["data"]["reason"]) == (-32600, "serverShuttingDown")
        await other.call("thread/read", {"threadId": thread})
        assert w.in_process.conversations.busy
        hold.release()
        assert (await ended(w.client, begun))["status"] == "completed"
        await until(lambda: w.in_process is not None and not w.in_process.conversations.busy)


@asynccontextmanager
async def alone(w: World, clock: list[float]) -> AsyncIterator[UnattendedReaper]:
    assert w.in_process is not None
    yield UnattendedReaper(
        w.in_process.conversations, lambda: clock[0], turn_seconds=60, question_seconds=3600
    )


async def test_a_turn_that_nobody_follows_for_long_is_interrupted(world: MakeWorld) -> None:
    clock = [0.0]
    async with world(reply(begins_to_say(), word("a"), Hold())) as w, alone(w, clock) as unattended:
        async with w.another() as leaving:
            thread = await start(leaving)
            await turn(leaving, thread)
            await leaving.expect("item/agentMessage/delta")
            unattended.look()
            clock[0] = 100
            unattended.look()  # a client follows it
        unattended.look()
        clock[0] = 159
        unattended.look()
        assert await status_of(w.client, thread) == "active"
        clock[0] = 160
        unattended.look()
        await until(lambda: w.in_process is not None and not w.in_process.conversations.busy)
        shown = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert [each["status"] for each in shown["thread"]["turns"]] == ["interrupted"]


async def test_a_question_that_nobody_answers_is_declined_also_where_only_the_old_api_followed(
    world: MakeWorld,
) -> None:
    clock = [0.0]
    replies = (reply(runs("touch", "ran")), reply(says("without it")))
    async with world(*replies) as w, alone(w, clock) as unattended:
        async with w.another() as leaving:
            thread = (await leaving.call("newConversation", ASKS))["conversationId"]
            await leaving.listen(thread)
            words = [{"type": "text", "data": {"text": "go"}}]
            await leaving.call("sendUserMessage", {"conversationId": thread, "items": words})
            await question(leaving, "execCommandApproval")
        unattended.look()
        clock[0] = 3600
        unattended.look()
        await until(lambda: w.in_process is not None and not w.in_process.conversations.busy)
        shown = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert [each["status"] for each in shown["thread"]["turns"]] == ["completed"]
        assert not (w.workspace / "ran").exists()


async def test_a_turn_ends_with_its_last_client_where_none_may_go_on_alone(world: MakeWorld) -> None:
    async with world(reply(begins_to_say(), word("a"), Hold())) as w, anyio.create_task_group() as group:
        assert w.in_process is not None
        conversations = w.in_process.conversations
        unattended = UnattendedReaper(conversations, lambda: 0, turn_seconds=0, question_seconds=3600)
        group.start_soon(unattended.run, lambda seconds: anyio.sleep_forever())
        async with w.another() as leaving:
            thread = await start(leaving)
            await turn(leaving, thread)
            await leaving.expect("item/agentMessage/delta")
        await until(lambda: not conversations.busy)
        shown = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert [each["status"] for each in shown["thread"]["turns"]] == ["interrupted"]
        group.cancel_scope.cancel()


async def status_of(client: Client, thread: str) -> str:
    kind: str = (await client.call("thread/read", {"threadId": thread}))["thread"]["status"]["type"]
    return kind


async def test_a_conversation_is_unloaded_when_its_client_has_left_long_ago(world: MakeWorld) -> None:
    clock = [0.0]
    async with world() as w:
        assert w.in_process is not None
        conversations = w.in_process.conversations
        unloader = IdleReaper(conversations, lambda: clock[0])

        async def look_after_long() -> None:
            for _ in range(2):
                await unloader.look()
                clock[0] += IDLE_SECONDS

        async with w.another() as leaving:
            await leaving.call("newConversation", {})
            await look_after_long()
            [live] = conversations.all()  # its client may use it, though it never listened
        await until(lambda: live.deserted)
        await look_after_long()
        assert conversations.all() == []


@pytest.mark.parametrize("unloaded", [False, True], ids=["open still", "unloaded since"])
async def test_a_question_that_nobody_answers_for_long_is_a_no_and_the_turn_goes_on(
    world: MakeWorld, unloaded: bool
) -> None:
    clock = [0.0]
    replies = (reply(runs("touch", "ran")), reply(says("done")))
    async with world(*replies) as w, alone(w, clock) as unattended:
        async with w.another() as leaving:
            thread = await start(leaving, **ASKS)
            await turn(leaving, thread)
            await question(leaving)
        unattended.look()
        clock[0] = 3599
        unattended.look()
        assert await status_of(w.client, thread) == "active"
        async with w.another() as visiting:
            await join(visiting, thread)
            unattended.look()
        unattended.look()
        clock[0] = 3600 + 3599
        unattended.look()
        await until(lambda: w.in_process is not None and not w.in_process.conversations.busy)
        shown = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        [last] = shown["thread"]["turns"]
        assert (last["status"], last["items"][-1]["text"]) == ("completed", "done")
        assert not (w.workspace / "ran").exists()
        assert w.in_process is not None
        if unloaded:
            await w.in_process.conversations.shut_down(thread)
        await join(w.client, thread)
        told = await w.client.expect("warning")
        assert told["params"]["threadId"] == thread
        assert told["params"]["message"].startswith("Nobody was there to answer a question for 1 hours")
        async with w.another() as later:
            await join(later, thread)
            await later.call("thread/loaded/list", {})
            assert heard(later, "warning") == []  # the warning was sent already


async def test_what_a_client_names_as_it_joins_holds_from_the_next_turn_on_and_is_told_to_all(
    world: MakeWorld,
) -> None:
    replies = (reply(runs("touch", "ran")), reply(says("done")))
    async with world(*replies, reply(says("b"))) as w, w.another() as other, w.another() as third:
        thread = await start(w.client)
        await say(w.client, thread)
        answer = await other.call(
            "thread/resume", {"threadId": thread, "approvalPolicy": "untrusted", "model": "another"}
        )
        changed = await w.client.expect("thread/settings/updated")
        assert changed["params"]["threadSettings"]["model"] == "another"
        assert answer["thread"]["status"]["type"] == "idle"
        await join(third, thread)
        await say(third, thread)
        assert [request.body["model"] for request in w.model.requests] == ["scripted", "scripted", "another"]


async def test_what_a_client_names_holds_in_a_thread_whose_client_has_left(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w:
        async with w.another() as leaving:
            thread = await start(leaving)
            await say(leaving, thread)
        answer = await w.client.call("thread/resume", {"threadId": thread, "model": "another"})
        assert answer["model"] == "another"
        await say(w.client, thread)
        assert [request.body["model"] for request in w.model.requests] == ["scripted", "another"]
