"""Before anything else: who may speak when, and what is said of a request that cannot be served."""

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.scripted_model import reply, says
from tests.support.world import MakeWorld

NOBODY = "01890000-0000-7000-8000-000000000000"


async def test_nothing_works_before_initialize_and_everything_after(world: MakeWorld) -> None:
    async with world(initialize=False) as w:
        with pytest.raises(Refused, match="Not initialized") as refused:
            await w.client.call("getUserAgent")
        assert (refused.value.code, refused.value.data["kind"]) == (-32600, "not_initialized")
        await w.client.initialize()
        assert await w.client.call("getUserAgent")


async def test_initialize_comes_once(world: MakeWorld) -> None:
    async with world() as w:
        with pytest.raises(Refused, match="Already initialized") as refused:
            await w.client.initialize()
        assert refused.value.code == -32600


async def test_a_bad_initialize_may_be_followed_by_a_good_one(world: MakeWorld) -> None:
    async with world(initialize=False) as w:
        with pytest.raises(Refused, match="clientInfo") as refused:
            await w.client.call("initialize", {})
        assert refused.value.data == {"kind": "invalid_params", "field": "clientInfo"}
        await w.client.initialize()


async def test_initialized_is_accepted_and_not_needed(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b"))) as w:
        conversation = await w.open()
        assert (await w.client.turn(conversation)).last_message == "a"
        await w.client.tell("initialized")
        await w.client.tell("initialized", {})
        assert (await w.client.turn(conversation)).last_message == "b"


async def test_the_client_is_named_to_the_provider(world: MakeWorld) -> None:
    async with world(reply(says("a")), initialize=False) as w:
        await w.client.call("initialize", {"clientInfo": {"name": "my\r\neditor", "version": "7"}})
        told = (await w.client.call("getUserAgent"))["userAgent"]
        await w.client.turn(await w.open())
    assert "editor" in told
    assert w.model.requests[0].headers["user-agent"] == told


@pytest.mark.parametrize("id", [7, -7, 0, "", "text", "ünï", 2**63 - 1, "x" * 10_000])
async def test_an_id_comes_back_as_it_was_sent(world: MakeWorld, id: int | str) -> None:
    async with world(initialize=False) as w:
        params = {"clientInfo": {"name": "t", "version": "1"}}
        assert (await w.client.ask("initialize", params, id=id))["id"] == id


@pytest.mark.parametrize("params", [None, {}, {"something": "new"}])
async def test_parameters_may_be_left_out_where_there_are_none(world: MakeWorld, params: Json) -> None:
    async with world() as w:
        await w.client.write({"id": "a", "method": "getUserAgent", "params": params})
        assert "result" in await w.client.answer_to("a")
        await w.client.write({"id": "b", "method": "listConversations", "jsonrpc": "2.0", "params": params})
        assert "result" in await w.client.answer_to("b")


async def test_an_unknown_method_is_named_in_the_words_that_clients_look_for(world: MakeWorld) -> None:
    async with world() as w:
        with pytest.raises(Refused) as refused:
            await w.client.call("thread/begin", {})
        assert refused.value.code == -32600
        assert "unknown variant `thread/begin`" in refused.value.message
        assert "Method not found" in refused.value.message
        assert refused.value.data["kind"] == "unknown_method"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("sendUserMessage", {"items": []}),
        ("interruptConversation", {}),
        ("addConversationListener", {}),
        ("submit", {"op": {"type": "undo"}}),
    ],
)
async def test_an_unknown_conversation_is_not_found(world: MakeWorld, method: str, params: Json) -> None:
    async with world() as w:
        with pytest.raises(Refused, match=f"conversation not found: {NOBODY}") as refused:
            await w.client.call(method, {"conversationId": NOBODY, **params})
        assert (refused.value.code, refused.value.data["kind"]) == (-32600, "conversation_not_found")


@pytest.mark.parametrize(
    "policy",
    [
        {"mode": "workspace-write", "writable_roots": [], "network_access": True},
        {"type": "workspace-write"},
        {"type": "workspaceWrite", "writableRoots": [], "networkAccess": True},
        {"mode": "read-only"},
        {"type": "readOnly"},
        {"mode": "danger-full-access"},
        {"type": "dangerFullAccess"},
    ],
    ids=str,
)
async def test_a_sandbox_policy_is_understood_in_every_spelling(world: MakeWorld, policy: Json) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        await w.client.call("sendUserTurn", w.user_turn(conversation, sandboxPolicy=policy))
        await w.client.expect("task_complete")


async def test_a_field_that_is_wrong_is_named(world: MakeWorld) -> None:
    async with world() as w:
        conversation = await w.open()
        wrong: list[tuple[str, Json]] = [
            ("sandboxPolicy", {"mode": "none"}),
            ("approvalPolicy", "yes"),
            ("cwd", "a\0b"),
        ]
        for field, value in wrong:
            with pytest.raises(Refused) as refused:
                await w.client.call("sendUserTurn", w.user_turn(conversation, **{field: value}))
            assert refused.value.code == -32600
            assert refused.value.data["field"].startswith(field)
            assert field in refused.value.message
