"""Work on open threads without a message of the user: compaction, reviews, commands, items, settings."""

import json

import pytest

from app_server.server.apis.v2.thread_items import NO_REVIEW
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import (
    CREATED,
    Hold,
    Reply,
    begins_to_say,
    chat_reply,
    done,
    failure,
    patches,
    reply,
    says,
    word,
)
from tests.support.thread_client import ended, items, notified, say, start, told_of, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

FINDINGS = {
    "findings": [
        {
            "title": "Wrong sign",
            "body": "It adds.",
            "confidence_score": 0.9,
            "priority": 1,
            "code_location": {"absolute_file_path": "/a.py", "line_range": {"start": 3, "end": 4}},
        }
    ],
    "overall_correctness": "patch is incorrect",
    "overall_explanation": "One bug.",
    "overall_confidence_score": 0.8,
}


async def next_end(w: World) -> Json:
    return (await w.client.expect("turn/completed"))["params"]["turn"]


async def review(w: World, thread: str, target: Json) -> Json:
    answer = await w.client.call("review/start", {"threadId": thread, "target": target})
    assert answer["reviewThreadId"] == thread
    return answer["turn"]


async def test_words_do_not_join_a_compaction(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(says("one")), reply(begins_to_say(), hold, says("a summary"))) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        await w.client.call("thread/compact/start", {"threadId": thread})
        with pytest.raises(Refused, match="cannot steer a compact turn") as refused:
            await turn(w.client, thread, "now?")
        assert refused.value.data["codexErrorInfo"] == {"activeTurnNotSteerable": {"turnKind": "compact"}}
        hold.release()
        assert (await next_end(w))["status"] == "completed"


async def test_a_review_has_one_turn_id_and_its_text_twice(world: MakeWorld) -> None:
    async with world(reply(says(json.dumps(FINDINGS)))) as w:
        thread = await start(w.client)
        shown = await review(w, thread, {"type": "custom", "instructions": " Look at the signs. "})
        assert [item["content"][0]["text"] for item in shown["items"]] == ["Look at the signs."]
        done = await ended(w.client, shown["id"])
        entered, left, message = items(w)
        assert (entered["type"], entered["review"]) == ("enteredReviewMode", "Look at the signs.")
        assert left["type"] == "exitedReviewMode"
        for part in ("One bug.", "Wrong sign", "/a.py:3-4", "It adds."):
            assert part in left["review"]
        assert (message["type"], message["text"]) == ("agentMessage", left["review"])
        assert [item["text"] for item in done["items"]] == [left["review"]]
        of_turn = {m["params"]["turnId"] for m in w.client.received() if "turnId" in (m.get("params") or {})}
        assert of_turn == {shown["id"]}
        assert notified(w, "thread/tokenUsage/updated") == [], "the context of a review is not the thread's"


@pytest.mark.parametrize("output", [(), (says(""),), (done({"type": "reasoning", "summary": []}),)])
async def test_a_reviewer_without_words_has_an_item_and_a_message(
    world: MakeWorld, output: tuple[Json, ...]
) -> None:
    async with world(reply(*output)) as w:
        thread = await start(w.client)
        shown = await review(w, thread, {"type": "custom", "instructions": "Look."})
        done = await ended(w.client, shown["id"])
        left, message = items(w)[-2:]
        assert (left["type"], left["review"]) == ("exitedReviewMode", NO_REVIEW)
        assert (message["type"], message["text"]) == ("agentMessage", NO_REVIEW)
        assert (done["status"], [item["id"] for item in done["items"]]) == ("completed", [message["id"]])
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert read["thread"]["turns"][0]["items"][-2:] == [left, message]


@pytest.mark.parametrize("wire_api", ["responses", "chat"])
async def test_a_review_is_made_by_the_model_of_the_thread(world: MakeWorld, wire_api: str) -> None:
    """A local provider has no other model."""
    answer = chat_reply({"content": "Fine."}) if wire_api == "chat" else reply(says("Fine."))
    async with world(answer, provider={"wire_api": wire_api}) as w:
        thread = await start(w.client, model="local")
        shown = await review(w, thread, {"type": "custom", "instructions": "Look."})
        assert (await ended(w.client, shown["id"]))["items"][0]["text"] == "Fine."
        assert w.model.requests[0].body["model"] == "local"


async def test_a_thread_goes_on_with_its_own_model_after_a_review(world: MakeWorld) -> None:
    async with world(reply(says("Fine.")), config={"review_model": "reviewer"}) as w:
        started = await w.client.call("thread/start", {})
        thread = started["thread"]["id"]
        shown = await review(w, thread, {"type": "custom", "instructions": "Look."})
        await ended(w.client, shown["id"])
        assert w.model.requests[0].body["model"] == "reviewer"
    async with world(reply(says("ok"))) as w:
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert (resumed["model"], resumed["reasoningEffort"]) == (
            started["model"],
            started["reasoningEffort"],
        )


@pytest.mark.parametrize(
    ("target", "hint", "prompt"),
    [
        ({"type": "uncommittedChanges"}, "current changes", "git diff HEAD"),
        ({"type": "commit", "sha": "0123456789"}, "commit 0123456", "git show 0123456789"),
        ({"type": "commit", "sha": "01234567", "title": "Fix"}, "commit 0123456: Fix", "(Fix)"),
        ({"type": "baseBranch", "branch": "nowhere"}, "changes against 'nowhere'", "git merge-base"),
    ],
)
async def test_a_review_of_each_target(world: MakeWorld, target: Json, hint: str, prompt: str) -> None:
    async with world(reply(says("Fine.")), git=True) as w:
        thread = await start(w.client)
        shown = await review(w, thread, target)
        await ended(w.client, shown["id"])
        assert items(w)[0]["review"] == hint
    assert prompt in w.model.requests[0].texts()[-1]


async def test_a_review_against_a_branch_names_the_common_commit(world: MakeWorld) -> None:
    async with world(reply(says("Fine.")), git=True) as w:
        common = w.git("rev-parse", "HEAD").strip()
        w.git("checkout", "-q", "-b", "work")
        w.git("commit", "-q", "--allow-empty", "-m", "more")
        shown = await review(w, await start(w.client), {"type": "baseBranch", "branch": "main"})
        await ended(w.client, shown["id"])
    assert f"git diff {common}" in w.model.requests[0].texts()[-1]


@pytest.mark.parametrize("branch", ["--output=made", "-h", "main@{upstream}", "no such"])
async def test_a_branch_is_never_an_option_of_git(world: MakeWorld, branch: str) -> None:
    async with world(reply(says("Fine.")), git=True) as w:
        shown = await review(w, await start(w.client), {"type": "baseBranch", "branch": branch})
        await ended(w.client, shown["id"])
        assert not (w.workspace / "made").exists()


async def test_a_review_is_ended_under_the_id_of_its_answer(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold)) as w:
        thread = await start(w.client)
        shown = await review(w, thread, {"type": "uncommittedChanges"})
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": shown["id"]})
        assert (await ended(w.client, shown["id"]))["status"] == "interrupted"
        hold.release()


async def test_a_review_ends_the_turn_that_runs(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold), reply(says("Fine."))) as w:
        thread = await start(w.client)
        before = await turn(w.client, thread)
        await w.client.expect("item/agentMessage/delta")
        shown = await review(w, thread, {"type": "uncommittedChanges"})
        assert (await ended(w.client, before))["status"] == "interrupted"
        assert (await ended(w.client, shown["id"]))["status"] == "completed"
        hold.release()


async def test_the_users_command_has_the_users_rights_and_the_model_is_told(world: MakeWorld) -> None:
    async with world(reply(says("I saw it")), config={"sandbox_mode": "read-only"}) as w:
        thread = await start(w.client)
        command = "echo mine | tee mine.txt; exit 3"
        assert await w.client.call("thread/shellCommand", {"threadId": thread, "command": command}) == {}
        assert (await next_end(w))["status"] == "completed"
        (item,) = items(w)
        assert (item["source"], item["status"], item["exitCode"]) == ("userShell", "failed", 3)
        assert item["aggregatedOutput"] == "mine\n"
        assert (w.workspace / "mine.txt").read_text() == "mine\n"
        await say(w.client, thread, "what did I run?")
    told = w.model.requests[0].texts()
    assert any("tee mine.txt" in text and "Exit code: 3" in text and "mine\n" in text for text in told)


async def test_the_users_command_runs_beside_the_turn_and_before_its_end(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold, says("a b"))) as w:
        w.fifo("gate")
        thread = await start(w.client)
        id = await turn(w.client, thread)
        await w.client.expect("item/agentMessage/delta")
        await w.client.call("thread/shellCommand", {"threadId": thread, "command": "cat gate"})
        await told_of(w.client, "commandExecution", "item/started")
        hold.release()
        await told_of(w.client, "agentMessage")
        await w.open_gate("gate")
        await ended(w.client, id)
        assert [item["type"] for item in items(w)] == ["userMessage", "agentMessage", "commandExecution"]
        assert len(notified(w, "turn/started")) == 1


async def test_an_interrupt_ends_the_users_command(world: MakeWorld) -> None:
    async with world() as w:
        w.fifo("gate")
        thread = await start(w.client)
        await w.client.call("thread/shellCommand", {"threadId": thread, "command": "cat gate"})
        await w.client.expect("item/started")
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": ""})
        assert (await next_end(w))["status"] == "interrupted"
        (item,) = items(w)
        assert (item["status"], item["exitCode"]) == ("failed", None)
        assert item["durationMs"] >= 0
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert [each["items"] for each in read["thread"]["turns"]] == [[item]]


NOT_AN_ITEM = r"items\[0\] is not a valid response item: "


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("shellCommand", {"command": "  "}, "command must not be empty"),
        ("shellCommand", {"command": "true", "timeoutMs": -1}, "timeoutMs must be non-negative, got -1"),
        ("inject_items", {"items": []}, "items must not be empty"),
        ("inject_items", {"items": [{"no": "item"}]}, f"{NOT_AN_ITEM}missing field `type`"),
        ("inject_items", {"items": [{"type": "message"}]}, f"{NOT_AN_ITEM}missing field"),
        ("inject_items", {"items": [3]}, f"{NOT_AN_ITEM}expected an object"),
    ],
)
async def test_commands_and_items_that_are_refused(
    world: MakeWorld, method: str, params: Json, message: str
) -> None:
    async with world() as w:
        thread = await start(w.client)
        with pytest.raises(Refused, match=message):
            await w.client.call(f"thread/{method}", {"threadId": thread, **params})


async def test_the_configuration_takes_the_rights_and_a_request_cannot_give_them(world: MakeWorld) -> None:
    async with world(tables="[app_server]\nclient_rights = false") as w:
        thread = await start(w.client, config={"app_server.client_rights": True})
        with pytest.raises(Refused, match="client_rights"):
            await w.client.call("thread/shellCommand", {"threadId": thread, "command": "echo > made"})
        assert not (w.workspace / "made").exists()


async def test_the_model_sees_items_that_were_injected(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        thread = await start(w.client)
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]}
        for item in (said, {"type": "of a later version"}):
            params = {"threadId": thread, "items": [item]}
            assert await w.client.call("thread/inject_items", params) == {}
        await say(w.client, thread, "go on")
    (sent,) = w.model.requests
    assert (sent.texts("assistant"), sent.texts()[-1]) == (["So."], "go on")


async def test_items_that_are_injected_into_a_compaction_are_kept_behind_its_summary(
    world: MakeWorld,
) -> None:
    hold = Hold()
    replies = (reply(says("one")), reply(begins_to_say(), hold, says("a summary")), reply(says("two")))
    async with world(*replies, reply(says("three"))) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        await w.client.call("thread/compact/start", {"threadId": thread})
        await hold.reached.wait()
        injected = {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "So."}],
        }
        await w.client.call("thread/inject_items", {"threadId": thread, "items": [injected]})
        hold.release()
        assert (await next_end(w))["status"] == "completed"
        await say(w.client, thread, "go on")
        copied = await w.client.call("thread/fork", {"threadId": thread})
        await say(w.client, copied["thread"]["id"], "again")
    assert w.model.requests[2].texts("assistant") == ["So."]
    assert w.model.requests[3].texts("assistant") == ["So.", "two"]


async def test_an_injected_message_of_the_user_is_no_preview(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        thread = await start(w.client)
        said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "injected"}]}
        await w.client.call("thread/inject_items", {"threadId": thread, "items": [said]})
        assert (await w.client.call("thread/read", {"threadId": thread}))["thread"]["preview"] == ""
        await say(w.client, thread, "go on")
        assert (await w.client.call("thread/read", {"threadId": thread}))["thread"]["preview"] == "go on"
        assert [each["preview"] for each in (await w.client.call("thread/list", {}))["data"]] == ["go on"]


async def test_instructions_are_named(world: MakeWorld) -> None:
    files = {"AGENTS.md": "top", "sub/AGENTS.md": "below"}
    async with world(reply(says("a")), files=files, git=True) as w:
        (w.home / "AGENTS.md").write_text("own")
        params = {"cwd": str(w.workspace / "sub"), "config": {"model_reasoning_effort": "high"}}
        started = await w.client.call("thread/start", params)
        places = [str(folder / "AGENTS.md") for folder in (w.home, w.workspace, w.workspace / "sub")]
        assert (started["instructionSources"], started["reasoningEffort"]) == (places, "high")
        assert started["thread"]["gitInfo"]["branch"] == "main"
        thread = started["thread"]["id"]
        await say(w.client, thread)
        assert w.model.requests[0].body["reasoning"] == {"effort": "high"}, "of a model that is not known"
        forked = await w.client.call("thread/fork", {"threadId": thread})
        assert forked["instructionSources"] == places


@pytest.mark.parametrize("in_a_repository", [True, False])
async def test_the_diff_names_files_from_the_root_of_the_threads_repository(
    world: MakeWorld, in_a_repository: bool
) -> None:
    """Without a repository, names start from the thread's own folder; files outside have their whole path."""
    parts = (
        "*** Add File: new.txt\n+x",
        "*** Update File: ../old.txt\n@@\n-one\n+two",
        "*** Add File: ..odd\n+x",
    )
    patch = "\n".join(("*** Begin Patch", *parts, "*** End Patch"))
    files = {"old.txt": "one\n", "sub/a": ""}
    async with world(reply(patches(patch)), reply(says("ok")), files=files, git=in_a_repository) as w:
        thread = await start(w.client, cwd=str(w.workspace / "sub"))
        await say(w.client, thread)
        (told,) = notified(w, "turn/diff/updated")
        named = {line for line in told["diff"].splitlines() if line.startswith("+++ ")}
        if in_a_repository:
            assert named == {"+++ b/sub/new.txt", "+++ b/old.txt", "+++ b/sub/..odd"}
        else:
            assert named == {"+++ b/new.txt", f"+++ b/{w.workspace / 'old.txt'}", "+++ b/..odd"}


async def test_a_conversation_that_the_provider_refuses_as_too_long_is_compacted(world: MakeWorld) -> None:
    """This holds also if the context window of the model is not known."""
    too_long = failure(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
    replies = reply(says("one")), too_long, reply(says("a summary")), reply(says("two")), reply(says("three"))
    async with world(*replies) as w:
        thread = await start(w.client)
        await say(w.client, thread, "first")
        await say(w.client, thread, "second")
        await say(w.client, thread, "third")
        await say(w.client, thread, "fourth")
        assert [item["type"] for item in items(w)].count("contextCompaction") == 1
        texts = w.model.requests[3].texts()
        assert texts[:2] == ["first", "second"]
        assert "a summary" in texts[2]
        assert texts[3:] == ["third"]
        assert len(w.model.requests) == 5


async def test_an_interrupt_of_the_compaction_that_precedes_words_keeps_them(world: MakeWorld) -> None:
    too_long = failure(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
    async with world(too_long, Reply((CREATED, Hold())), reply(says("a summary")), reply(says("two"))) as w:
        thread = await start(w.client)
        await say(w.client, thread, "first")
        id = await turn(w.client, thread, "second")
        await told_of(w.client, "contextCompaction", "item/started")
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        assert (await ended(w.client, id))["status"] == "interrupted"
        shown = [item for item in items(w) if item["type"] == "userMessage"]
        assert [item["content"][0]["text"] for item in shown] == ["first", "second"]
        await say(w.client, thread, "third")
        assert "second" in w.model.requests[2].texts()
        assert w.model.requests[3].texts()[-1] == "third"


async def test_the_model_knows_what_it_said_in_a_turn_that_failed(world: MakeWorld) -> None:
    """Clients show it, too: the message is an item of the turn."""
    cut = Reply((CREATED, says("half the work is done"), begins_to_say(), word("and")), cut=True)
    async with world(cut, reply(says("the rest")), provider={"stream_max_retries": 0}) as w:
        thread = await start(w.client)
        await say(w.client, thread, "work")
        await say(w.client, thread, "go on")
        assert w.model.requests[1].texts("assistant") == ["half the work is done"]
        assert w.model.requests[1].texts() == ["work", "go on"]


async def test_a_patch_that_changes_nothing_is_no_item(world: MakeWorld) -> None:
    async with world(reply(patches("*** Begin Patch\n*** End Patch", "p1")), reply(says("oh"))) as w:
        await say(w.client, await start(w.client))
        assert [item["type"] for item in items(w)] == ["userMessage", "agentMessage"]
        assert "empty patch" in w.model.requests[1].outputs()["p1"]


async def test_a_diff_that_is_taken_back_is_told_as_empty(world: MakeWorld) -> None:
    there = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch"
    back = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+one\n*** End Patch"
    replies = reply(patches(there, "p1")), reply(patches(back, "p2")), reply(says("as it was"))
    async with world(*replies, files={"a.txt": "one\n"}) as w:
        thread = await start(w.client)
        await w.client.call("addConversationListener", {"conversationId": thread})
        await say(w.client, thread)
        first, last = [told["diff"] for told in notified(w, "turn/diff/updated")]
        assert "+two" in first
        assert last == ""
        shown = [told["msg"]["unified_diff"] for told in notified(w, "codex/event/turn_diff")]
        assert shown == [first] or all(shown), "the conversation API has no empty diff"


async def test_what_the_provider_looks_up_is_shown_and_stored(world: MakeWorld) -> None:
    page = {"type": "open_page", "url": "https://a.example"}
    search = {"type": "search", "query": "q", "queries": ["q", "r"]}
    looked_up = [
        done({"type": "web_search_call", "id": f"w{n}", "status": "completed", "action": action})
        for n, action in enumerate((page, search))
    ]
    begun = {"type": "web_search_call", "id": "w0", "status": "in_progress"}
    begins = {"type": "response.output_item.added", "item": begun}
    async with world(reply(begins, *looked_up, says("ok"))) as w:
        thread = await start(w.client)
        await w.client.call("addConversationListener", {"conversationId": thread})
        await say(w.client, thread)
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        stored = [item for item in read["thread"]["turns"][0]["items"] if item["type"] == "webSearch"]
        assert [item for item in items(w) if item["type"] == "webSearch"] == stored
        first = next(item for item in items(w, "item/started") if item["type"] == "webSearch")
        assert (first["id"], first["action"]) == ("w0", {"type": "other"})
        assert [(item["query"], item["action"]) for item in stored] == [
            ("https://a.example", {"type": "openPage", "url": "https://a.example"}),
            ("q", {"type": "search", "query": "q", "queries": ["q", "r"]}),
        ]
        ends = [told["msg"]["query"] for told in notified(w, "codex/event/web_search_end")]
        assert ends == ["q"], "the conversation API has searches for a query only"


async def test_settings_are_told_when_they_change(world: MakeWorld) -> None:
    async with world(reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)

        async def update(**settings: Json) -> None:
            params = {"threadId": thread, **settings}
            assert await w.client.call("thread/settings/update", params) == {}

        await update(model="other", effort="high", permissions=":read-only", cwd="sub")
        await update(model="other", effort="high")
        await say(w.client, thread, model="third")
        told = [each["threadSettings"] for each in notified(w, "thread/settings/updated")]
        assert [each["model"] for each in told] == ["other", "third"]
        assert (told[1]["effort"], told[1]["sandboxPolicy"]["type"]) == ("high", "readOnly")
        assert told[1]["cwd"] == str(w.workspace / "sub")
        with pytest.raises(Refused, match="cannot be combined"):
            await update(permissions=":workspace", sandboxPolicy={"type": "readOnly"})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("thread/compact/start", {}),
        ("thread/inject_items", {"items": [{"type": "message"}]}),
        ("thread/shellCommand", {"command": "true"}),
        ("review/start", {"target": {"type": "uncommittedChanges"}}),
    ],
)
async def test_threads_that_are_not_loaded(world: MakeWorld, method: str, params: Json) -> None:
    unknown = "01990000-0000-7000-8000-000000000000"
    async with world() as w:
        with pytest.raises(Refused, match=f"thread not found: {unknown}"):
            await w.client.call(method, {"threadId": unknown, **params})
