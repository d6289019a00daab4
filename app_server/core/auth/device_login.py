"""A ChatGPT login with a code that the user types into a page, on whatever machine there is a browser.

The owner opens a flow, shows the page's address and the code, and runs the flow in a separate task: `run_login` always
returns an outcome. One flow is one attempt.
"""

from __future__ import annotations

import hmac
import logging

import anyio

from app_server.core.auth.auth_manager import AuthManager
from app_server.core.auth.authorize import code_challenge
from app_server.core.auth.home_login import AuthMethod, require_login_allowed
from app_server.core.auth.issuer import DeviceCode, DeviceGrant
from app_server.core.auth.login import CANCELLED, NOT_FINISHED
from app_server.core.auth.login_outcome import LoginOutcome
from app_server.core.errors import AuthError, IssuerUnreachable

LIMIT_SECONDS = 900.0
"""So long the code is valid at the issuer."""

logger = logging.getLogger(__name__)


class DeviceLoginFlow:
    """One attempt to log in. `open_device_login` creates it."""

    def __init__(self, auth: AuthManager, code: DeviceCode) -> None:
        self.verification_url = auth.issuer.device_page
        self.user_code = code.user_code
        self._auth, self._code = auth, code
        self._scope = anyio.CancelScope()
        self._cancelled = False

    async def run_login(self, limit_seconds: float = LIMIT_SECONDS) -> LoginOutcome:
        """Asks the issuer until the user has agreed, the login is cancelled or the time is up."""
        self._scope.deadline = anyio.current_time() + limit_seconds
        with self._scope:
            try:
                await self._finish(await self._granted())
            except AuthError as error:
                return LoginOutcome(False, str(error))
            return LoginOutcome(True)
        return LoginOutcome(False, CANCELLED if self._cancelled else NOT_FINISHED)

    def cancel(self) -> None:
        """Ends the flow without a login, from any task. A login that is already stored stays."""
        self._cancelled = True
        self._scope.cancel()

    async def close(self) -> None:
        """There is nothing to release."""

    async def _granted(self) -> DeviceGrant:
        while True:
            await anyio.sleep(self._code.interval_seconds)
            try:
                grant = await self._auth.issuer.poll_device_code(self._code)
            except IssuerUnreachable as error:
                logger.info("a login with a device code waits: %s", error)
                continue
            if grant is not None:
                return grant

    async def _finish(self, grant: DeviceGrant) -> None:
        if not hmac.compare_digest(code_challenge(grant.verifier).encode(), grant.challenge.encode()):
            raise AuthError("the login server's verifier does not belong to its code")
        issuer = self._auth.issuer
        tokens = await issuer.exchange_code(grant.code, grant.verifier, issuer.device_redirect)
        self._auth.store_login(tokens, None)


async def open_device_login(auth: AuthManager) -> DeviceLoginFlow:
    """Asks the issuer for a code. Raises AuthError, also if the settings forbid such logins."""
    require_login_allowed(auth.settings, AuthMethod.CHATGPT)
    return DeviceLoginFlow(auth, await auth.issuer.request_device_code())
