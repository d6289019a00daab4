"""Additions to a turn over the thread API: skills and efforts, and the compaction of their effects."""

import json
from pathlib import Path

import pytest

from app_server.client import TurnResult
from app_server_protocol.encoding import Json
from app_server_protocol.v2.item_parts import SkillUserInput
from tests.support.client import Refused
from tests.support.library import MakeLibraryWorld
from tests.support.scripted_model import reply, says
from tests.support.thread_client import notified, say, start, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario


def skill(name: str) -> str:
    return f"---\nname: {name}\ndescription: How to {name}.\n---\nBODY-{name}\n"


def in_home(*names: str) -> dict[str, str]:
    return {f"../home/skills/{name}/SKILL.md": skill(name) for name in names}


def of_project(name: str) -> dict[str, str]:
    return {f".agents/skills/{name}/SKILL.md": skill(name)}


def path(w: World, name: str) -> str:
    return str(w.home / f"skills/{name}/SKILL.md")


async def run(w: World, thread: str, *input: Json) -> None:
    await say(w.client, thread, input=list(input))


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def messages(w: World, number: int = -1) -> list[tuple[str, str]]:
    """Return role and text of the messages of a request to the model."""
    return [
        (item["role"], item["content"][0].get("text", ""))
        for item in w.model.requests[number].body["input"]
        if item.get("type", "message") == "message"
    ]


def blocks(w: World, number: int = -1) -> list[str]:
    return [said for _, said in messages(w, number) if said.startswith("<skills_instructions>")]


async def listed(w: World, **params: Json) -> Json:
    return (await w.client.call("skills/list", params))["data"]


async def test_skills_are_listed_with_what_is_wrong(world: MakeWorld) -> None:
    files = {**in_home("greet"), **of_project("build"), "../home/skills/broken/SKILL.md": "nothing\n"}
    files["../user/.agents/skills/other/SKILL.md"] = skill("other")
    async with world(files=files, git=True) as w:
        [here, there] = await listed(w, cwds=[str(w.workspace), "/"], forceReload=True)
        found = [(each["name"], each["scope"], each["enabled"]) for each in here["skills"]]
        assert found == [("build", "repo", True), ("greet", "user", True), ("other", "user", True)]
        assert here["skills"][1]["path"] == path(w, "greet")
        assert [error["path"] for error in here["errors"]] == [path(w, "broken")]
        assert [each["name"] for each in there["skills"]] == ["greet", "other"]
        [own] = await listed(w)
        assert own["cwd"] == str(w.workspace)


async def test_the_model_is_told_once_by_name_and_description(library: MakeLibraryWorld) -> None:
    files = {**in_home("greet"), **of_project("build")}
    async with library(reply(says("a")), reply(says("b")), files=files) as w:
        thread = await w.server.start_thread()
        await thread.run("one")
        await thread.run("two")
        [block] = blocks(w)
        assert f"- greet: How to greet. (file: {path(w, 'greet')})" in block
        assert "- build (repository): How to build." in block
        assert "BODY" not in str(w.model.requests)


async def test_a_conversation_of_the_other_api_is_not_told(world: MakeWorld) -> None:
    async with world(reply(says("a")), files=in_home("greet")) as w:
        await w.client.turn(await w.open(), "one")
        assert blocks(w) == []


async def test_a_client_hands_over_a_skill(world: MakeWorld) -> None:
    async with world(reply(says("done")), files=in_home("greet")) as w:
        thread = await start(w.client)
        handed = {"type": "skill", "name": "greet", "path": path(w, "greet")}
        mention = {"type": "mention", "name": "notes", "path": "/tmp/notes.md"}
        await run(w, thread, text("do it"), handed, mention)
        words, body, mentioned = messages(w)[-3:]
        assert words == ("user", "do it")
        assert body[1].startswith("<skill>\n<name>greet</name>")
        assert "BODY-greet" in body[1]
        assert "<path>/tmp/notes.md</path>" in mentioned[1]
        items = await w.client.call("thread/items/list", {"threadId": thread})
        shown = items["data"][0]["item"]["content"]
        assert shown == [{**text("do it"), "text_elements": []}, handed, mention]
        [summary] = (await w.client.call("thread/list", {}))["data"]
        assert summary["preview"] == "do it"


async def test_a_skill_may_be_all_that_a_client_sends(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b")), files=in_home("greet")) as w:
        thread = await start(w.client)
        handed = {"type": "skill", "name": "greet", "path": path(w, "greet")}
        await run(w, thread, handed)
        assert messages(w)[-1][1].startswith("<skill>\n<name>greet</name>")
        assert all(said for _, said in messages(w)), "no provider is sent a message without content"
        [item, _] = (await w.client.call("thread/items/list", {"threadId": thread}))["data"]
        assert item["item"]["content"] == [handed]
        await run(w, thread, {"type": "skill", "name": "no", "path": "/no"})
        assert "is not used" in messages(w)[-1][1]


@pytest.mark.parametrize("what", ["auth", "off", "absent"])
async def test_a_file_that_is_no_skill_that_is_on_is_not_read(library: MakeLibraryWorld, what: str) -> None:
    tables = '[[skills.config]]\nname = "off"\nenabled = false\n'
    files = {**in_home("off"), "../home/auth.json": '{"OPENAI_API_KEY": "sk-secret"}'}
    async with library(reply(says("a")), files=files, tables=tables) as w:
        named = {"auth": str(w.home / "auth.json"), "off": path(w, "off"), "absent": "/absent/SKILL.md"}[what]
        await (await w.server.start_thread()).run([SkillUserInput(name="greet", path=named), "hi"])
        warned = [each["message"] for each in notified(w, "warning")]
        assert warned == [f"The skill greet ({named}) is not used: no skill that is on has this file."]
        assert messages(w)[-1] == ("user", "hi")
        assert "sk-secret" not in str(w.model.requests)
        assert "BODY" not in str(w.model.requests)


async def test_a_skill_is_switched_off_and_on(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b")), files=in_home("greet", "other")) as w:
        thread = await start(w.client)
        await run(w, thread, text("one"))
        written = await w.client.call("skills/config/write", {"name": "greet", "enabled": False})
        assert written == {"effectiveEnabled": False}
        await w.client.expect("skills/changed")
        [here] = await listed(w)
        assert [(each["name"], each["enabled"]) for each in here["skills"]] == [
            ("greet", False),
            ("other", True),
        ]
        await run(w, thread, text("two"))
        assert len(blocks(w)) == 2
        assert "- greet" not in blocks(w)[-1]
        assert "- other" in blocks(w)[-1]
        for wrong in ({"enabled": True}, {"enabled": True, "name": "a", "path": "/a"}):
            with pytest.raises(Refused, match="exactly one of path or name"):
                await w.client.call("skills/config/write", wrong)


async def test_further_folders_of_the_client(world: MakeWorld, tmp_path: Path) -> None:
    async with world(files={"../extra/more/SKILL.md": skill("more")}) as w:
        assert await w.client.call("skills/extraRoots/set", {"extraRoots": [str(tmp_path / "extra")]}) == {}
        await w.client.expect("skills/changed")
        assert [each["name"] for each in (await listed(w))[0]["skills"]] == ["more"]
        await w.client.call("skills/extraRoots/set", {"extraRoots": []})
        assert (await listed(w))[0]["skills"] == []
        with pytest.raises(Refused, match="AbsolutePathBuf"):
            await w.client.call("skills/extraRoots/set", {"extraRoots": ["relative"]})


async def test_a_client_that_listed_hears_of_a_new_skill_with_the_next_turn(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w:
        thread = await start(w.client)
        await listed(w)
        await run(w, thread, text("one"))
        assert "skills/changed" not in [m.get("method") for m in w.client.received()]
        w.write(of_project("new"))
        await run(w, thread, text("two"))
        assert [m.get("method") for m in w.client.received()].count("skills/changed") == 1
        assert "- new" in blocks(w)[-1]


def sent(w: World) -> list[Json]:
    """Return the efforts of the requests to the model."""
    return [request.body.get("reasoning", {}).get("effort") for request in w.model.requests]


@pytest.mark.parametrize("effort", ["xhigh", "as much as it takes"])
async def test_what_the_client_says_reaches_the_model_and_comes_back(world: MakeWorld, effort: str) -> None:
    async with world(reply(says("a")), reply(says("b")), reply(says("c"))) as w:
        thread = await start(w.client)
        await say(w.client, thread, effort=effort)
        [changed] = notified(w, "thread/settings/updated")
        assert changed["threadSettings"]["effort"] == effort
        await say(w.client, thread)
        assert sent(w) == [effort, effort]
        [stored] = w.home.glob("sessions/**/rollout-*.jsonl")
        lines = [json.loads(line) for line in stored.read_text().splitlines()]
        assert [each["payload"]["further_effort"] for each in lines if each["type"] == "turn_context"][
            :1
        ] == [effort]
        [listed] = (await w.client.call("thread/list", {}))["data"]
        assert listed["reasoningEffort"] == effort
        # The conversation API has a closed list of efforts; it resumes the thread all the same.
        resumed = await w.client.call("resumeConversation", {"path": str(stored)})
        assert resumed["conversationId"] == thread


async def test_ultra_is_a_word_of_clients(world: MakeWorld) -> None:
    """No provider accepts it. The client is shown its own choice."""
    async with world(reply(says("a")), reply(says("b"))) as w:
        for model in ("scripted", "gpt-5.1"):
            thread = await start(w.client, model=model)
            await say(w.client, thread, effort="ultra")
        assert [each["threadSettings"]["effort"] for each in notified(w, "thread/settings/updated")] == [
            "ultra",
            "ultra",
        ]
        assert sent(w) == ["high", "high"]


async def test_a_stored_effort_holds_after_a_resume(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w:
        thread = await start(w.client)
        await say(w.client, thread, effort="max")
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert resumed["reasoningEffort"] == "max"
        await say(w.client, thread)
        assert sent(w) == ["max", "max"]


@pytest.mark.parametrize(
    ("effort", "nearest"), [("xhigh", "high"), ("max", "high"), ("minimal", "minimal"), ("own", None)]
)
async def test_a_configured_effort_is_shown_by_both_apis(
    world: MakeWorld, effort: str, nearest: str | None
) -> None:
    async with world(reply(says("a")), config={"model_reasoning_effort": effort}) as w:
        opened = await w.client.call("newConversation", {})
        assert opened["reasoningEffort"] == nearest
        saved = (await w.client.call("getUserSavedConfig"))["config"]
        assert saved["modelReasoningEffort"] == nearest
        started = await w.client.call("thread/start", {})
        assert started["reasoningEffort"] == effort
        await say(w.client, started["thread"]["id"])
        assert sent(w) == [effort]


@pytest.mark.parametrize("effort", ["", "x" * 65])
async def test_an_effort_has_a_length(world: MakeWorld, effort: str) -> None:
    async with world() as w:
        thread = await start(w.client)
        with pytest.raises(Refused, match="1 to 64 characters"):
            await turn(w.client, thread, effort=effort)


def kinds(result: TurnResult[None]) -> list[str]:
    return [item.type for item in result.items]


async def test_a_compaction_is_a_turn_with_one_item(library: MakeLibraryWorld) -> None:
    async with library(*(reply(says(text)) for text in ("one", "a summary", "two"))) as w:
        thread = await w.server.start_thread()
        await thread.run("first")
        result = await thread.compact()
        assert (result.completed, kinds(result)) == (True, ["contextCompaction"])
        await thread.run("second")
    sent = w.model.requests[-1].texts()
    assert any("a summary" in text for text in sent)
    assert "one" not in sent
