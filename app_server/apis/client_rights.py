"""What a client does with the user's own rights, outside of any sandbox, if the user's configuration leaves it that."""

from __future__ import annotations

from app_server.apis.services import ConfigSource
from app_server.rpc.errors import invalid_request


def require_client_rights(config: ConfigSource, method: str) -> None:
    """Raises RpcError where `app_server.client_rights` is false, and ConfigError where it cannot be read."""
    if not config.load().permissions.client_rights:
        raise invalid_request(
            f"{method} is switched off: the user's configuration sets app_server.client_rights to false",
            "client_rights",
        )
