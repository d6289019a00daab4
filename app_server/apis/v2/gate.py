"""What only clients that asked for the experimental API may send: fields of stable methods. Pure.

Experimental methods are refused by the router; what clients are sent is not changed by any of this.
"""

from __future__ import annotations

from app_server.apis.result import HandlerResult
from app_server.apis.route import Route
from app_server.identity import ClientProfile
from app_server.rpc.errors import invalid_request
from protocol.base import Json, WireModel
from protocol.structs import Written
from protocol.v2.fields import experimental_fields_in_use
from protocol.v2.policy import GranularAskForApproval


def needed_capability(method: str, params: WireModel) -> str | None:
    """What in these parameters is experimental, as the refusal names it; None where nothing is."""
    fields = experimental_fields_in_use(params)
    if fields:
        return f"{method}.{fields[0]}"
    if any(isinstance(value, GranularAskForApproval) for value in vars(params).values()):
        return "askForApproval.granular"
    return None


def gated(route: Route, client: ClientProfile) -> Route:
    """The route, closed to parameters that this client has not opted in to."""

    async def handle(params: Json) -> Written | HandlerResult[Written]:
        needed = None if client.experimental_api else needed_capability(route.method, params)
        if needed is not None:
            raise invalid_request(
                f"{needed} requires experimentalApi capability", "experimental_api_required"
            )
        return await route.handle(params)

    return Route(route.row, handle)
