"""A connection that is served, from the view of the process that accepted it: its client, and whether it is idle."""

from __future__ import annotations

from msgspec import Struct

from app_server.server.apis.api_services import ServerServices
from app_server.server.conversations.subscriptions import Client
from app_server.server.rpc.rpc_connection import Connection


class ServedConnection(Struct, frozen=True):
    """A connection that is served."""

    shared: ServerServices
    connection: Connection

    @property
    def client(self) -> Client:
        return self.shared.client

    @property
    def at_rest(self) -> bool:
        """Whether no request is in work, and all output was written."""
        busy = self.connection.in_work or self.shared.accounts.logging_in
        return not busy and self.client.outgoing.unread == 0
