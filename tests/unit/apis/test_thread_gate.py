"""What only clients that opted in may send."""

import pytest

from app_server.apis.route import route
from app_server.apis.v2.routes import gated, needed_capability
from app_server.identity import ClientProfile
from app_server.rpc.errors import RpcError
from protocol.base import Json, WireModel
from protocol.v2.thread_open import THREAD_START
from protocol.v2.turn import TURN_START, TURN_STEER, TurnSteerParams, TurnSteerResponse

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


def test_switches_that_are_off_need_nothing() -> None:
    params = THREAD_START.parse({"experimentalRawEvents": False})
    assert needed_capability("thread/start", params) is None
    params = THREAD_START.parse({"experimentalRawEvents": True})
    assert needed_capability("thread/start", params) == "thread/start.experimentalRawEvents"


async def test_a_gated_route_refuses_before_the_handler() -> None:
    served: list[WireModel] = []

    async def steer(context: list[WireModel], params: TurnSteerParams) -> TurnSteerResponse:
        context.append(params)
        return TurnSteerResponse(turn_id="t")

    row = TURN_STEER
    params = row.parse({"threadId": "t", "input": [], "expectedTurnId": "u", "additionalContext": {}})
    client = ClientProfile()
    closed = gated(route(row, steer, served), client)
    with pytest.raises(RpcError) as error:
        await closed.handle(params)
    assert error.value.message == "turn/steer.additionalContext requires experimentalApi capability"
    assert error.value.data == {"kind": "experimental_api_required"}
    assert served == []
    client.experimental_api = True
    await closed.handle(params)
    assert served == [params]
