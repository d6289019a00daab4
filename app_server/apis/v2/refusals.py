"""Methods that clients call although this server cannot serve them, and the errors by which they go on without.

They are in no table: what is not listed here is refused as any unknown method is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from app_server.apis.route import Route, route
from app_server.apis.v2.account_errors import login_required
from app_server.core.auth.auth_manager import AuthManager
from app_server.rpc.errors import RpcError
from protocol.base import WireModel
from protocol.table import ClientRequest, NoParams
from protocol.validation import unknown_method

IMPORT: Final = "externalAgentConfig/import"
NO_SUCH_METHOD: Final = -32601
"""Of JSON-RPC. A client that imports takes it, and no other code, for a server that cannot."""

OF_AN_ACCOUNT: Final = {
    "account/usage/read": "read token usage",
    "account/workspaceMessages/read": "read workspace messages",
    "account/sendAddCreditsNudgeEmail": "notify workspace owner",
}
"""What only the provider's own service knows, which is not asked here whoever is logged in."""


class NoResult(WireModel):
    """Of a method that is always refused."""


Refusal = Callable[[AuthManager, NoParams], Awaitable[NoResult]]


def refusals(auth: AuthManager) -> tuple[Route, ...]:
    return (
        route(_row(IMPORT), _refuse_import, auth),
        *(route(_row(method), _refuse_account(purpose), auth) for method, purpose in OF_AN_ACCOUNT.items()),
    )


def _row(method: str) -> ClientRequest[NoParams, NoResult]:
    return ClientRequest(method, NoParams, NoResult, "Refused.")


async def _refuse_import(auth: AuthManager, params: NoParams) -> NoResult:
    raise RpcError(NO_SUCH_METHOD, unknown_method(IMPORT), {"kind": "unknown_method"})


def _refuse_account(purpose: str) -> Refusal:
    async def refuse(auth: AuthManager, params: NoParams) -> NoResult:
        raise login_required(purpose, auth.method())

    return refuse
