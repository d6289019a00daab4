"""What requests about the account are answered where they cannot be served. Clients match some of these texts. Pure."""

from __future__ import annotations

from app_server.core.auth.home_login import AuthMethod
from app_server.rpc.errors import RpcError, invalid_request


def account_error(message: str) -> RpcError:
    return invalid_request(message, "account")


def login_required(purpose: str, method: AuthMethod | None) -> RpcError:
    """For what only an account of the provider has: no login is not enough, and neither is a key."""
    wanted = "codex account" if method is None else "chatgpt"
    return invalid_request(f"{wanted} authentication required to {purpose}", "login_required")
