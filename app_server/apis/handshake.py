"""The handshake of a connection, which all APIs share: it records the client."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from app_server.identity import ClientProfile, UserAgent, parse_capabilities
from app_server.rpc.errors import invalid_request
from protocol.structs import Json


class Handshake(Struct, frozen=True):
    client: ClientProfile
    user_agent: UserAgent

    def accept(
        self,
        name: str,
        version: str,
        *,
        elicitation: bool = False,
        experimental_api: bool = False,
        names_capabilities: bool = False,
        opted_out: Collection[str] = (),
    ) -> None:
        """Accept an `initialize`. Raises RpcError if the client has initialized already."""
        if self.client.initialized:
            raise invalid_request("Already initialized", "already_initialized")
        self.client.initialized = True
        self.client.elicitation = elicitation
        self.client.experimental_api = experimental_api
        self.client.names_capabilities = names_capabilities
        self.client.opted_out = frozenset(opted_out)
        self.user_agent.set_client(name, version)

    def accept_capabilities(self, name: str, version: str, raw: Json) -> None:
        """Accept an `initialize` with the capabilities that the client sent, None for none. Raises as `accept` does."""
        announced = parse_capabilities(raw)
        self.accept(
            name,
            version,
            elicitation=announced.elicitation,
            experimental_api=announced.experimental_api,
            names_capabilities=raw is not None,
            opted_out=announced.opted_out,
        )
