"""Routes: typed, complete, in the order that their rows name, and closed to whom they are closed."""

from collections.abc import Awaitable, Callable
from typing import Any, Self, cast

import pytest

from app_server.apis.route import HandlerResult, Route, route
from app_server.apis.router import MethodRouter
from app_server.apis.services import ConfigSource
from app_server.apis.v1.handlers import setup
from app_server.apis.v1.routes import routes
from app_server.identity import ClientProfile
from app_server.rpc.errors import RpcError
from protocol.base import WireModel
from protocol.jsonrpc import Request
from protocol.table import ClientRequest, NoParams
from protocol.v1 import methods


class Params(WireModel):
    thread_id: str | None = None


class Result(WireModel):
    pass


PLAIN = ClientRequest("plain", Params, Result, "")
BY_THREAD = ClientRequest("byThread", Params, Result, "", "threadId")
BY_CONVERSATION = ClientRequest("byConversation", Params, Result, "", "conversationId")
NEW = ClientRequest("new", Params, Result, "", experimental=True)


async def serve(context: list[str], params: Params) -> Result:
    context.append(params.thread_id or "")
    return Result()


async def serve_and_go_on(context: list[str], params: Params) -> HandlerResult[Result]:
    async def go_on() -> None:
        context.append("after")

    return HandlerResult(Result(), go_on)


async def serve_another(context: list[str], params: Params) -> NoParams:
    return NoParams()


def router(*given: Route, client: ClientProfile | None = None) -> MethodRouter:
    return MethodRouter(lambda: given, lambda: given, (), client or ClientProfile(initialized=True))


def mapping_a_row_to_the_wrong_handler_is_an_error_of_types(
    account: setup.AccountContext, config: ConfigSource
) -> list[Route]:
    """Never called: mypy fails where one of these were no error any more."""
    return [
        route(methods.SET_DEFAULT_MODEL, setup.login_api_key, account),  # type: ignore[arg-type]
        route(methods.GET_USER_SAVED_CONFIG, setup.user_info, account),  # type: ignore[arg-type]
        route(methods.GET_USER_SAVED_CONFIG, setup.get_user_saved_config, account),  # type: ignore[arg-type]
        route(PLAIN, serve_another, []),  # type: ignore[arg-type]
        route(PLAIN, serve_and_go_on, config),  # type: ignore[arg-type]
    ]


def test_every_row_has_one_route() -> None:
    served = [each.row for each in routes(cast("Any", Anything()))]
    shared = [methods.MODEL_LIST]  # served by the thread API's route
    assert sorted(map(id, served + shared)) == sorted(map(id, methods.TABLE.client_requests.values()))


class Anything:
    def __getattr__(self, name: str) -> Self:
        return self


def test_two_routes_for_a_method_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="plain"):
        router(route(PLAIN, serve, []), route(PLAIN, serve_and_go_on, [])).lane(Request(1, PLAIN.method))


@pytest.mark.parametrize(
    ("method", "params", "lane"),
    [
        ("byThread", {"threadId": "AB"}, "ab"),
        ("byThread", {"conversationId": "ab"}, None),
        ("byConversation", {"conversationId": "ab"}, "ab"),
        ("byConversation", {"conversationId": 7}, None),
        ("byConversation", ["ab"], None),
        ("plain", {"threadId": "ab", "conversationId": "ab"}, None),
        ("unknown", {"threadId": "ab"}, None),
    ],
)
def test_requests_wait_for_those_whose_ordering_parameter_is_the_same(
    method: str, params: object, lane: str | None
) -> None:
    """Whatever an API calls a conversation: two APIs that name the same one share its order."""
    rows = (PLAIN, BY_THREAD, BY_CONVERSATION)
    assert router(*(route(row, serve, []) for row in rows)).lane(Request(1, method, params)) == lane


async def test_a_handler_returns_a_result_or_what_follows_it_too() -> None:
    done: list[str] = []
    both = router(route(PLAIN, serve, done), route(BY_THREAD, serve_and_go_on, done))
    plain = await both.call(Request(1, "plain", {"threadId": "x"}))
    assert (plain.result, plain.after_response, done) == (b"{}", None, ["x"])
    more = await both.call(Request(2, "byThread"))
    assert more.after_response is not None
    await more.after_response()
    assert done == ["x", "after"]


async def refused(call: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(RpcError) as error:
        await call()
    return error.value.message


async def test_experimental_methods_are_for_clients_that_opted_in() -> None:
    routed = route(NEW, serve, [])
    request = Request(1, "new")
    closed = router(routed)
    assert await refused(lambda: closed.call(request)) == "new requires experimentalApi capability"
    early = router(routed, client=ClientProfile(experimental_api=True))
    assert await refused(lambda: early.call(request)) == "Not initialized"
    opened = router(routed, client=ClientProfile(initialized=True, experimental_api=True))
    assert (await opened.call(request)).result == b"{}"
