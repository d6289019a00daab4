"""What existing clients of the thread API rely on, one test for each: starting, resuming, settings, lists."""

import anyio
import pytest

from protocol.base import Json
from tests.support.scripted_model import calls, reply, says, script
from tests.support.thread_client import ended, start, turn, words
from tests.support.world import MakeWorld, World


def methods(w: World) -> list[str]:
    return [m["method"] for m in w.client.received() if "method" in m]


async def talk(w: World, text: str = "hi", **params: Json) -> str:
    """A thread with one turn."""
    thread = await start(w.client, **params)
    await ended(w.client, await turn(w.client, thread, text))
    return thread


async def test_a_thread_that_was_never_used_can_be_resumed(world: MakeWorld) -> None:
    """One client resumes before every turn, the first one too."""
    async with world(reply(says("a"))) as w:
        thread = await start(w.client)
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert (resumed["thread"]["id"], resumed["thread"]["turns"]) == (thread, [])
        await ended(w.client, await turn(w.client, thread))


async def test_what_clients_ask_at_their_start_needs_no_network(world: MakeWorld) -> None:
    """They cannot start without these answers, and ask for them all at once."""
    nowhere = {"base_url": "http://127.0.0.1:9/v1"}
    questions = ("account/read", "config/read", "permissionProfile/list", "configRequirements/read")
    async with world(provider=nowhere) as w:
        ids = [await w.client.send(method, {}) for method in (*questions, "model/list")]
        with anyio.fail_after(10):
            answers = [await w.client.answer_to(id) for id in ids]
        assert all("result" in answer for answer in answers)
        assert answers[2]["result"]["data"][0]["id"] == ":read-only"
        assert "model" in answers[1]["result"]["config"]


async def test_a_bridge_can_replay_a_thread_and_follow_its_settings(world: MakeWorld) -> None:
    """It pages through turns and items, shows what may be answered, and where the server keeps its files."""
    replies = reply(script("echo > made")), reply(says("b"))
    capable = {"experimentalApi": True}
    async with world(*replies, config={"approval_policy": "untrusted"}, initialize=False) as w:
        hello = await w.client.initialize(capabilities=capable)
        assert hello["codexHome"] == str(w.home)
        thread = await start(w.client)
        id = await turn(w.client, thread)
        question = await w.client.expect("item/commandExecution/requestApproval")
        offered = question["params"]["availableDecisions"]
        assert "accept" in offered
        assert {"decline", "cancel"} & {each for each in offered if isinstance(each, str)}
        await w.client.answer(question, {"decision": "accept"})
        await ended(w.client, id)
        turns = (await w.client.call("thread/turns/list", {"threadId": thread, "itemsView": "full"}))["data"]
        rows = (await w.client.call("thread/items/list", {"threadId": thread}))["data"]
        assert [item["id"] for item in turns[0]["items"]] == [row["item"]["id"] for row in rows]
        await w.client.call("thread/settings/update", {"threadId": thread, "model": "another"})
        changed = await w.client.expect("thread/settings/updated")
        assert changed["params"]["threadSettings"]["model"] == "another"


async def test_an_answer_follows_the_schema_that_was_given_for_the_turn(world: MakeWorld) -> None:
    """For that turn only; opting out of a notification does not touch others."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    opted = {"optOutNotificationMethods": ["thread/tokenUsage/updated", "no/such/method"]}
    async with world(reply(says("{}")), reply(says("b")), initialize=False) as w:
        await w.client.initialize(capabilities=opted)
        thread = await start(w.client)
        given = {"threadId": thread, "input": words("hi"), "outputSchema": schema}
        await ended(w.client, (await w.client.call("turn/start", given))["turn"]["id"])
        await ended(w.client, await turn(w.client, thread))
        first, second = (request.body for request in w.model.requests)
        assert first["text"]["format"]["schema"] == schema
        assert "format" not in (second.get("text") or {})
        assert "thread/tokenUsage/updated" not in methods(w)
        assert methods(w).count("turn/completed") == 2


async def test_a_client_of_threads_gets_no_events_of_conversations(world: MakeWorld) -> None:
    """One client drops everything of this API once it has seen one event of the other."""
    async with world(reply(script("true")), reply(says("a"))) as w:
        await talk(w)
        assert [method for method in methods(w) if method.startswith("codex/")] == []


async def test_the_log_is_quiet_and_need_not_be_read(world: MakeWorld) -> None:
    """Each line on stderr is a pop-up somewhere."""
    loud = reply(script("echo to-stderr >&2; exit 3")), reply(says("a"))
    async with world(*loud, transport="process") as w:
        await talk(w)
    assert (w.root / "server.log").read_text(encoding="utf-8") == ""


async def test_threads_are_found_by_folder_kind_and_words(world: MakeWorld) -> None:
    """As clients ask for them: newest change first, a page at a time."""
    async with world(*(reply(says("a")) for _ in range(4))) as w:
        first, second = await talk(w, "fix the parser"), await talk(w, "write docs")
        (w.root / "other").mkdir()
        await talk(w, "elsewhere", cwd=str(w.root / "other"))
        await ended(w.client, await turn(w.client, first, "again"))
        asked = {
            "cwd": str(w.workspace),
            "limit": 10,
            "sortKey": "updated_at",
            "sourceKinds": ["vscode", "cli"],
        }
        assert [each["id"] for each in (await w.client.call("thread/list", asked))["data"]] == [first, second]
        searched = {**asked, "searchTerm": "parser"}
        assert [each["id"] for each in (await w.client.call("thread/list", searched))["data"]] == [first]


async def test_goals_and_skills_can_be_asked_about_before_they_are_used(world: MakeWorld) -> None:
    """Clients ask for both when they open a thread, and show the plan of the model meanwhile."""
    plan = calls("update_plan", {"plan": [{"step": "one", "status": "in_progress"}]})
    async with world(reply(plan), reply(says("a"))) as w:
        thread = await talk(w)
        assert await w.client.call("thread/goal/get", {"threadId": thread}) == {"goal": None}
        [here] = (await w.client.call("skills/list", {"cwds": [str(w.workspace)]}))["data"]
        assert (here["skills"], here["errors"]) == ([], [])
        [told] = [m["params"] for m in w.client.received() if m.get("method") == "turn/plan/updated"]
        assert told["plan"] == [{"step": "one", "status": "inProgress"}]


@pytest.mark.parametrize(
    "capabilities",
    [
        {"elicitation": {"form": None, "url": None}},
        {"elicitation": None, "experimentalApi": None, "optOutNotificationMethods": None},
        {
            "elicitation": "yes",
            "experimentalApi": "yes",
            "optOutNotificationMethods": {"thread/tokenUsage/updated": True},
        },
        {
            "optOutNotificationMethods": ["thread/tokenUsage/updated", 7],
            "requestAttestation": 1,
            "extensions": 5,
        },
        ["experimentalApi"],
        True,
    ],
)
async def test_capabilities_of_any_shape_are_taken(world: MakeWorld, capabilities: Json) -> None:
    """What another server would understand costs a client nothing here; what is known and well-formed still holds."""
    async with world(reply(says("a")), initialize=False) as w:
        assert "userAgent" in await w.client.initialize(capabilities=capabilities)
        refused = await w.client.ask("collaborationMode/list", {})
        assert "requires experimentalApi capability" in refused["error"]["message"]
        await ended(w.client, await turn(w.client, await start(w.client)))
        named = capabilities.get("optOutNotificationMethods") if isinstance(capabilities, dict) else None
        assert ("thread/tokenUsage/updated" in methods(w)) == (not isinstance(named, list))
