"""Settings of a thread for commands, as requests send them: kinds of questions, named sandboxes."""

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import calls, reply, says, script
from tests.support.thread_client import ended, items, notified, say, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

APPROVAL = "item/commandExecution/requestApproval"
UNTRUSTED = {"approval_policy": "untrusted"}


def granular(**kinds: bool) -> Json:
    return {"granular": {"sandbox_approval": True, "rules": True, "mcp_elicitations": True, **kinds}}


def rules(w: World, *lines: str) -> None:
    w.write({"rules/default.rules": "\n".join(lines)}, under=w.home)


def commands(w: World) -> list[tuple[str, Json]]:
    ends = items(w)
    return [(item["command"], item["status"]) for item in ends if item["type"] == "commandExecution"]


def asked(w: World) -> list[Json]:
    return notified(w, APPROVAL)


@pytest.mark.parametrize(
    ("amendment", "ran"),
    [
        *((["cp"], "completed"), (["bash", "-lc"], "completed"), (["touch"], "completed")),
        *(([], "declined"), ("touch", "declined"), (None, "declined")),
    ],
)
async def test_a_rule_in_other_words_than_proposed_is_a_yes_for_once_and_is_not_kept(
    world: MakeWorld, amendment: Json, ran: str
) -> None:
    replies = reply(script("touch a")), reply(script("touch a", "c2")), reply(says("ok"))
    async with world(*replies, config=UNTRUSTED | {"sandbox_mode": "workspace-write"}) as w:
        id = await turn(w.client, await start(w.client))
        rule = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": amendment}}
        await w.client.answer(await w.client.expect(APPROVAL), {"decision": rule})
        await w.client.answer(await w.client.expect(APPROVAL), {"decision": "decline"})
        assert (await ended(w.client, id))["status"] == "completed"
        assert [status for _, status in commands(w)] == [ran, "declined"]
        told = [m["params"]["message"] for m in w.client.received() if m.get("method") == "warning"]
        assert ("No rule is kept" in " ".join(told)) is (ran == "completed")
        assert not (w.home / "rules").exists()


async def test_questions_of_a_kind_that_is_switched_off_are_refused(world: MakeWorld) -> None:
    escalated = calls("shell", {"command": ["touch", "a"], "with_escalated_permissions": True}, "c1")
    replies = reply(escalated), reply(script("mkdir d", "c2")), reply(says("ok"))
    async with world(*replies, capabilities=EXPERIMENTAL) as w:
        rules(w, 'prefix_rule(pattern=["mkdir"], decision="prompt")')
        policy = granular(sandbox_approval=False, rules=False)
        opened = await w.client.call("thread/start", {"approvalPolicy": policy, "sandbox": "read-only"})
        shown = opened["approvalPolicy"]["granular"]
        assert (shown["sandbox_approval"], shown["rules"], shown["mcp_elicitations"]) == (False, False, True)
        assert (await ended(w.client, await turn(w.client, opened["thread"]["id"])))["status"] == "completed"
        assert not asked(w)
        assert not list(w.workspace.iterdir())


async def test_a_granular_policy_that_asks_asks(world: MakeWorld) -> None:
    escalated = calls("shell", {"command": ["touch", "a"], "with_escalated_permissions": True}, "c1")
    async with world(reply(escalated), reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, approvalPolicy=granular(rules=False), sandbox="read-only")
        id = await turn(w.client, thread)
        await w.client.answer(await w.client.expect(APPROVAL), {"decision": "accept"})
        await ended(w.client, id)
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert resumed["approvalPolicy"]["granular"]["rules"] is False


async def test_a_granular_policy_of_the_settings_holds_in_every_api(world: MakeWorld) -> None:
    escalated = calls("shell", {"command": ["touch", "a"], "with_escalated_permissions": True}, "c1")
    replies = [reply(escalated), reply(says("ok"))] * 2
    async with world(*replies, config={"approval_policy": granular(sandbox_approval=False)}) as w:
        opened = await w.client.call("thread/start", {"sandbox": "read-only"})
        shown = granular(sandbox_approval=False, skill_approval=False, request_permissions=False)
        assert opened["approvalPolicy"] == shown
        assert (await w.client.call("config/read", {}))["config"]["approval_policy"] == shown
        await ended(w.client, await turn(w.client, opened["thread"]["id"]))
        assert (await w.client.turn(await w.open(sandbox="read-only"))).last_message == "ok"
        assert not asked(w)
        assert not list(w.workspace.iterdir())
        change = {"keyPath": "approval_policy.granular.rules", "mergeStrategy": "replace"}
        await w.client.call("config/value/write", {**change, "value": False})
        with pytest.raises(Refused, match=r"approval_policy\.granular\.rules` is missing"):
            await w.client.call("config/value/write", {**change, "value": None})
        again = await w.client.call("thread/start", {})
        assert again["approvalPolicy"]["granular"]["rules"] is False


async def test_a_sandbox_can_be_chosen_by_its_name(world: MakeWorld) -> None:
    async with world(reply(script("touch a")), reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        opened = await w.client.call("thread/start", {"permissions": ":read-only"})
        assert opened["sandbox"]["type"] == "readOnly"
        assert opened["activePermissionProfile"] == {"id": ":read-only", "extends": None}
        thread = {"threadId": opened["thread"]["id"]}
        for wrong in (
            {"permissions": "nope"},
            {"permissions": ":workspace", "sandboxPolicy": {"type": "readOnly"}},
        ):
            with pytest.raises(Refused, match="permission"):
                await turn(w.client, opened["thread"]["id"], **wrong)
        await say(w.client, opened["thread"]["id"], permissions=":workspace")
        assert (w.workspace / "a").exists()
        resumed = await w.client.call("thread/resume", {**thread, "excludeTurns": True})
        assert resumed["activePermissionProfile"] == {"id": ":workspace", "extends": None}


async def test_granular_policies_need_the_experimental_api(world: MakeWorld) -> None:
    async with world() as w:
        with pytest.raises(Refused, match=r"askForApproval\.granular requires experimentalApi capability"):
            await w.client.call("thread/start", {"approvalPolicy": granular()})


async def test_the_roots_of_a_clients_workspace_are_writable(world: MakeWorld) -> None:
    """They are writable until a turn names others, also under a policy of a turn, and in a resumed thread."""
    inside = {"exclude_slash_tmp": True, "exclude_tmpdir_env_var": True}
    config = {
        "sandbox_mode": "workspace-write",
        "sandbox_workspace_write": inside,
        "approval_policy": "never",
    }
    touch = "for d in . ../more ../third; do touch $d/made; done; true"
    replies = [each for _ in range(5) for each in (reply(script(touch)), reply(says("ok")))]
    async with world(*replies, config=config, capabilities=EXPERIMENTAL) as w:
        more, third = w.root / "more", w.root / "third"
        more.mkdir()
        third.mkdir()

        async def written(thread: str, **params: Json) -> list[str]:
            await say(w.client, thread, **params)
            made = [folder / "made" for folder in (w.workspace, more, third)]
            found = [each.parent.name for each in made if each.exists()]
            for each in made:
                each.unlink(missing_ok=True)
            return found

        roots = [str(w.workspace), str(more), f"{more}/"]
        opened = await w.client.call("thread/start", {"runtimeWorkspaceRoots": roots})
        thread = opened["thread"]["id"]
        assert opened["runtimeWorkspaceRoots"] == [str(w.workspace), str(more)]
        assert opened["sandbox"]["writableRoots"] == [str(more)]
        assert await written(thread) == ["workspace", "more"]
        own = {"type": "workspaceWrite", "excludeTmpdirEnvVar": True, "excludeSlashTmp": True}
        assert await written(thread, sandboxPolicy=own) == ["workspace", "more"]
        others = [str(w.workspace), str(third)]
        assert await written(thread, runtimeWorkspaceRoots=others) == ["workspace", "third"]
        assert await written(thread, sandboxPolicy={"type": "readOnly"}) == []
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        resume = {"threadId": thread, "sandbox": "workspace-write", "runtimeWorkspaceRoots": others}
        assert (await w.client.call("thread/resume", resume))["runtimeWorkspaceRoots"] == others
        assert await written(thread) == ["workspace", "third"]


@pytest.mark.parametrize("roots", [[], ["/elsewhere"]])
async def test_the_roots_of_a_workspace_have_its_working_directory(world: MakeWorld, roots: Json) -> None:
    async with world(capabilities=EXPERIMENTAL) as w:
        refused = "the workspace roots must have the working directory among them"
        with pytest.raises(Refused, match=refused):
            await w.client.call("thread/start", {"runtimeWorkspaceRoots": roots})
        thread = await start(w.client)
        with pytest.raises(Refused, match=refused):
            await turn(w.client, thread, runtimeWorkspaceRoots=roots)


async def test_misspelt_parameters_and_a_missing_folder_are_told_once(world: MakeWorld) -> None:
    def notices(w: World) -> list[str]:
        said = [m["params"] for m in w.client.received() if m.get("method") in ("configWarning", "warning")]
        return [each.get("summary") or each["message"] for each in said]

    async with world(reply(says("ok")), reply(says("ok"))) as w:
        missing = str(w.workspace / "missing")
        thread = await start(w.client, approval_policy="never", sandbx="read-only", cwd=missing)
        await say(w.client, thread, sumary="none")
        await say(w.client, thread, sumary="none", cwd=missing)
        told = notices(w)
    assert len(told) == 3
    (opened,) = (each for each in told if each.startswith("thread/start: "))
    assert "`approval_policy` was read as `approvalPolicy`" in opened
    assert "`sandbx` is unknown and was ignored; did you mean `sandbox`?" in opened
    assert sum(each.startswith("turn/start: `sumary` is unknown") for each in told) == 1
    assert sum(f"The working directory {missing} is no folder" in each for each in told) == 1


async def test_a_strict_client_is_refused_what_is_misspelt_and_a_missing_folder(world: MakeWorld) -> None:
    strict = {"experimentalApi": True, "extensions": {"parameters": "strict"}}
    async with world(capabilities=strict) as w:
        with pytest.raises(Refused, match="`sandbx` is unknown; did you mean `sandbox`"):
            await w.client.call("thread/start", {"sandbx": "read-only"})
        with pytest.raises(Refused, match="`cwd`: there is no folder /nope"):
            await w.client.call("thread/start", {"cwd": "/nope"})
        thread = await start(w.client)
        with pytest.raises(Refused, match="`cwd`: there is no folder /nope"):
            await turn(w.client, thread, cwd="/nope")


async def test_the_conversation_api_warns_in_the_conversation_that_was_opened(world: MakeWorld) -> None:
    async with world() as w:
        given = {"approval_polcy": "never", "cwd": str(w.workspace / "missing")}
        opened = await w.client.call("newConversation", given)
        conversation = opened["conversationId"]
        await w.client.call("addConversationListener", {"conversationId": conversation})
        await w.client.call("listConversations", {"page_sze": 1})
        await w.client.expect("configWarning")
        warned = [
            m["params"]["msg"]["message"]
            for m in w.client.received()
            if m.get("method") == "codex/event/warning"
        ]
    assert any("`approval_polcy` is unknown and was ignored; did you mean" in each for each in warned)
    assert any("is no folder" in each for each in warned)
