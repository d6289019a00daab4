"""Routes of all APIs: typed, complete, in the order that their rows name; the clients that may use them, and the
notifications beside them.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from app_server.engine.config.settings_service import UserSettings
from app_server.engine.support.client_info import ClientProfile
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.error_responses import initialize_of_another_protocol, of_another_protocol
from app_server.server.apis.router import MethodRouter, Route, begin, route
from app_server.server.apis.v1.handlers import misc
from app_server.server.apis.v1.v1_routes import HANDLERS
from app_server.server.apis.v2.thread_notifier import NotificationFilter
from app_server.server.apis.v2.v2_routes import HANDLERS as THREADS
from app_server.server.apis.v2.v2_routes import gated, needed_capability
from app_server.server.conversations.adapter import OutboundMessage
from app_server.server.rpc.lanes import LaneName
from app_server_protocol.acp import acp_table
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import ParseError, Request, parse_message
from app_server_protocol.method_table import ClientRequest, NoParams, NoResult, by_method
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.v1 import setup as wire
from app_server_protocol.v1 import v1_table
from app_server_protocol.v2 import v2_table
from app_server_protocol.v2.server import RateLimitSnapshot, RateLimitWindow
from app_server_protocol.v2.turn import TURN_START, TURN_STEER, TurnSteerParams, TurnSteerResponse


class Params(WireModel):
    thread_id: str | None = None


class ParamsOfThread(Params):
    ordered_by = "threadId"
    ordered_for_all = True


class ParamsOfConversation(Params):
    ordered_by = "conversationId"


PLAIN = ClientRequest("plain", Params, NoResult, "")
BY_THREAD = ClientRequest("byThread", ParamsOfThread, NoResult, "")
BY_CONVERSATION = ClientRequest("byConversation", ParamsOfConversation, NoResult, "")
NEW = ClientRequest("new", Params, NoResult, "", experimental=True)


async def serve(context: list[str], params: Params) -> None:
    context.append(params.thread_id or "")


async def serve_and_go_on(context: list[str], params: Params) -> AsyncIterator[None]:
    context.append("before")
    yield
    context.append("after")


async def say_nothing(context: ConnectionContext, params: NoParams) -> None:
    """Serve a method whose result has no content."""


async def serve_another(context: list[str], params: Params) -> NoParams:
    return NoParams()


def router(*given: Route, client: ClientProfile | None = None) -> MethodRouter:
    find = by_method(given).get
    return MethodRouter(lambda: find, lambda: find, (), client or ClientProfile(initialized=True))


def mapping_a_row_to_the_wrong_handler_is_an_error_of_types(
    services: ConnectionContext, config: UserSettings
) -> list[Route]:
    """List routes that are type errors. The function is never called: mypy fails if one of them is no error any
    more.
    """
    return [
        route(wire.SET_DEFAULT_MODEL, misc.login_api_key, services),  # type: ignore[arg-type]
        route(wire.GET_USER_SAVED_CONFIG, misc.user_info, services),  # type: ignore[arg-type]
        route(wire.GET_USER_SAVED_CONFIG, misc.get_user_saved_config, config),  # type: ignore[arg-type]
        route(PLAIN, serve_another, []),  # type: ignore[arg-type]
        route(PLAIN, serve_and_go_on, config),  # type: ignore[arg-type]
        route(wire.USER_INFO, say_nothing, services),  # type: ignore[arg-type]
    ]


def test_every_row_has_one_route() -> None:
    served = {
        module: [each.row for each in module.routes(cast("Any", Anything()))]
        for module in {*HANDLERS.by_method.values()}
    }
    assert {row.method: module for module, rows in served.items() for row in rows} == HANDLERS.by_method
    # The thread API serves the last one.
    rows = [*itertools.chain.from_iterable(served.values()), wire.MODEL_LIST]
    assert sorted(map(id, rows)) == sorted(map(id, v1_table.TABLE.client_requests.values()))


def test_every_method_of_threads_is_served_by_its_family() -> None:
    for method in v2_table.TABLE.client_requests.keys() - {"initialize"}:
        module = THREADS.serving(method)
        assert module is not None, method
        assert method in by_method(module.routes(cast("Any", Anything())))
    assert THREADS.serving("turns") is None


class Anything:
    def __getattr__(self, name: str) -> Self:
        return self

    def __call__(self, *_: object) -> Self:
        return self


async def test_what_must_not_overtake_the_response_waits_for_it() -> None:
    done: list[str] = []
    reply = await router(route(PLAIN, serve_and_go_on, done)).route(Request(1, PLAIN.method)).serve()
    assert (reply.result, done) == (b"{}", ["before"])
    assert reply.effects is not None
    await anext(reply.effects, None)
    assert done == ["before", "after"]


def test_two_routes_for_a_method_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="plain"):
        router(route(PLAIN, serve, []), route(PLAIN, serve_and_go_on, [])).route(Request(1, PLAIN.method))


@pytest.mark.parametrize(
    ("method", "params", "lane"),
    [
        ("byThread", {"threadId": "AB"}, LaneName("ab", for_all=True)),
        ("byThread", {"conversationId": "ab"}, None),
        ("byConversation", {"conversationId": "ab"}, LaneName("ab", for_all=False)),
        ("byConversation", {"conversationId": 7}, None),
        ("byConversation", ["ab"], None),
        ("plain", {"threadId": "ab", "conversationId": "ab"}, None),
        ("unknown", {"threadId": "ab"}, None),
    ],
)
def test_requests_wait_for_those_whose_ordering_parameter_is_the_same(
    method: str, params: object, lane: LaneName | None
) -> None:
    """The name of the parameter does not matter: two APIs that name the same conversation share its order."""
    routes = route(PLAIN, serve, []), route(BY_THREAD, serve, []), route(BY_CONVERSATION, serve, [])
    assert router(*routes).route(Request(1, method, params)).lane == lane


async def refused(call: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(RpcError) as error:
        await call()
    return error.value.message


async def test_experimental_methods_are_for_clients_that_opted_in() -> None:
    routed = route(NEW, serve, [])
    request = Request(1, "new")
    closed = router(routed)
    assert await refused(closed.route(request).serve) == "new requires experimentalApi capability"
    early = router(routed, client=ClientProfile(experimental_api=True))
    assert await refused(early.route(request).serve) == "Not initialized"
    opened = router(routed, client=ClientProfile(initialized=True, experimental_api=True))
    assert (await opened.route(request).serve()).result == b"{}"


def used(percent: int) -> RateLimitSnapshot:
    return RateLimitSnapshot(primary=RateLimitWindow(used_percent=percent))


def test_a_client_is_told_what_it_wants_and_does_not_know() -> None:
    profile = ClientProfile(opted_out=frozenset({"warning"}))
    known = NotificationFilter(cast("Any", SimpleNamespace(profile=profile)))
    known.warnings = frozenset({"told before"})

    def wants(news: object, method: str = "method") -> bool:
        return known.wants(OutboundMessage(b"", method, news))

    assert [wants(news) for news in (RateLimitSnapshot(), used(1), None, used(1), used(2))] == [
        *(False, True, True, False, True)
    ]
    assert (wants("new"), wants("told before"), wants(None, "warning")) == (True, False, False)


@pytest.mark.parametrize(
    ("method", "acp", "words"),
    [
        ("session/new", False, "app-server acp"),
        ("thread/start", True, "without `acp`"),
        ("newConversation", True, "without `acp`"),
        ("tools/list", False, "not as an MCP server"),
        ("tools/list", True, "not as an MCP server"),
        ("textDocument/didOpen", False, "not as a language server"),
    ],
)
def test_a_method_of_another_protocol_is_recognized(method: str, acp: bool, words: str) -> None:
    text = of_another_protocol(method, acp=acp)
    assert text.startswith(f". `{method}` is a method of ")
    assert words in text


@pytest.mark.parametrize(("method", "acp"), [("thread/no", False), ("session/no", True), ("else", False)])
def test_an_unknown_method_of_this_protocol_gets_no_advice(method: str, acp: bool) -> None:
    assert of_another_protocol(method, acp=acp) == ""


@pytest.mark.parametrize(
    ("params", "acp", "words"),
    [
        ({"protocolVersion": 1, "clientCapabilities": {}}, False, "app-server acp"),
        ({"clientInfo": {"name": "x", "version": "1"}}, True, "without `acp`"),
        ({}, False, ""),
        ({"protocolVersion": True}, False, ""),
        ({"protocolVersion": "1"}, True, ""),
        (None, True, ""),
    ],
)
def test_an_initialize_of_another_protocol_is_recognized(params: Json, acp: bool, words: str) -> None:
    text = initialize_of_another_protocol(params, acp=acp)
    assert (words in text, bool(text)) == (True, bool(words))


def test_no_method_is_taken_for_one_of_another_protocol() -> None:
    for table in (v1_table.TABLE, v2_table.TABLE):
        for row in table.client_requests.values():
            assert of_another_protocol(row.method, acp=False) == "", row.method
    for row in acp_table.TABLE.client_requests.values():
        assert of_another_protocol(row.method, acp=True) == "", row.method


@pytest.mark.parametrize("line", [b"Content-Length: 52\r", b"GET / HTTP/1.1\r"])
def test_another_framing_is_told(line: bytes) -> None:
    with pytest.raises(ParseError, match="one JSON object on one line, without headers"):
        parse_message(line)


GRANULAR = {"granular": {"sandbox_approval": True, "rules": True, "mcp_elicitations": True}}


@pytest.mark.parametrize(
    ("more", "needed"),
    [
        ({}, None),
        ({"permissions": ":workspace"}, "turn/start.permissions"),
        ({"permissions": None}, None),
        ({"runtimeWorkspaceRoots": ["/a"]}, "turn/start.runtimeWorkspaceRoots"),
        ({"collaborationMode": {"mode": "plan", "settings": {"model": "m"}}}, "turn/start.collaborationMode"),
        ({"approvalPolicy": "never"}, None),
        ({"approvalPolicy": GRANULAR}, "askForApproval.granular"),
        ({"permissions": ":workspace", "approvalPolicy": GRANULAR}, "turn/start.permissions"),
        ({"somethingNew": 1}, None),
    ],
)
def test_what_in_parameters_is_experimental(more: Json, needed: str | None) -> None:
    params = TURN_START.parse({"threadId": "t", "input": [], **more})
    assert needed_capability("turn/start", params) == needed


async def test_a_gated_route_refuses_before_the_handler() -> None:
    served: list[WireModel] = []

    async def steer(context: list[WireModel], params: TurnSteerParams) -> TurnSteerResponse:
        context.append(params)
        return TurnSteerResponse(turn_id="t")

    row, client = TURN_STEER, ClientProfile()
    params = row.parse({"threadId": "t", "input": [], "expectedTurnId": "u", "additionalContext": {}})
    closed = gated(route(row, steer, served), client)
    with pytest.raises(RpcError) as error:
        begin(closed, params)
    assert error.value.message == "turn/steer.additionalContext requires experimentalApi capability"
    assert error.value.data == {"kind": "experimental_api_required"}
    assert served == []
    client.experimental_api = True
    result, _ = begin(closed, params)
    await result
    assert served == [params]
