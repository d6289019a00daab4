"""How requests name threads, and what is answered where there is none of that name. Clients match these texts. Pure."""

from __future__ import annotations

from app_server.rpc.errors import RpcError, invalid_request
from protocol.ids import ConversationId, parse_conversation_id


def parse_thread_id(text: str, field: str = "threadId") -> ConversationId:
    """Raises RpcError."""
    parsed = parse_conversation_id(text)
    if parsed is None:
        raise invalid_request(f"invalid thread id: {text[:100]!r} is no UUID", "invalid_params", field)
    return parsed


def thread_not_found(id: str) -> RpcError:
    """Where a thread has to be loaded."""
    return invalid_request(f"thread not found: {id}", "thread_not_found")


def rollout_not_found(id: str) -> RpcError:
    """Where a thread has to be stored."""
    return invalid_request(f"no rollout found for thread id {id}", "rollout_not_found")


def thread_archived(id: str) -> RpcError:
    """Where a thread has to be stored outside of the archive."""
    return invalid_request(f"session {id} is archived; bring it back with thread/unarchive first", "archived")


def archived_not_found(id: str) -> RpcError:
    """Where a thread has to be in the archive."""
    return invalid_request(f"no archived rollout found for thread id {id}", "rollout_not_found")


def thread_not_loaded(id: str) -> RpcError:
    """Where it has to be either."""
    return invalid_request(f"thread not loaded: {id}", "thread_not_found")
