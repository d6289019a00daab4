"""Whether a session needs a login, and what a client announced of itself."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from app_server.apis.acp.client import auth_methods, parse_client
from app_server.apis.acp.errors import login_needed
from app_server.apis.acp.session import Sessions
from app_server.apis.services import Handshake
from app_server.core.auth.accounts import Accounts
from app_server.core.config.settings import UserSettings
from app_server.core.errors import ConfigError
from protocol.structs import Json

LOGIN_NEEDED = "Login required: choose a way to log in, or set OPENAI_API_KEY where the server is started"


class LoginContext(Struct, frozen=True):
    config: UserSettings
    accounts: Accounts
    sessions: Sessions
    handshake: Handshake

    async def require(self) -> None:
        """Require a login. Raises RpcError where the configured provider needs one and there is none."""
        if await self.lacks_login():
            raise login_needed(LOGIN_NEEDED)

    async def lacks_login(self) -> bool:
        """Return whether the configured provider needs a login and there is none."""
        status = await self.accounts.status()
        return status.requires_openai_auth and status.method is None

    def methods(self) -> list[Json]:
        """Return the ways to log in that the client is offered."""
        try:
            needs_login = self.accounts.needs_login()
        except ConfigError:
            needs_login = False  # a session says what is wrong with the settings
        return auth_methods(self.config.environment, needs_login=needs_login)


def accept(context: LoginContext, params: Mapping[str, Json]) -> None:
    """Adopt what the client announced. Raises RpcError where it has done so before."""
    client = parse_client(params)
    context.handshake.accept(client.name, client.version, elicitation=client.forms)
    context.sessions.client = client
