"""The client of one connection, as conversations know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec import Struct

from app_server.conversations.adapter import AdapterFactory, ClientLine
from app_server.core.caller import Caller
from app_server.identity import ClientProfile
from app_server.rpc.outgoing import Outgoing


class Client(Struct, eq=False, weakref=True):
    """Peer at the other end of a connection."""

    outgoing: Outgoing
    profile: ClientProfile
    caller: Caller
    """What the engine takes from it."""
    hears_all: bool = True
    """Whether it is told of conversations that others opened."""
    has_folder: bool = True
    """Whether it has a working directory; else its requests name one."""
    speaks: set[AdapterFactory] = msgspec.field(default_factory=set)
    """The APIs in whose words it can be told of them."""
    subscriptions: dict[str, str] = msgspec.field(default_factory=dict)
    """The conversations of those that it ends by their ids, the oldest first."""
    wants: Callable[[ClientLine], bool] = lambda line: True
    """Whether it is sent a notification that names its method."""

    def send(self, lines: Iterable[ClientLine], *, behind: bool = False) -> None:
        """Send messages. `behind`: others read while it does not, so what can be joined is."""
        for line in lines:
            if line.method and not self.wants(line):
                continue
            if behind and line.part is not None:
                self.outgoing.send_missed(line.part)
            elif behind and line.state is not None:
                self.outgoing.send_state(line.state, line.data)
            else:
                self.outgoing.send(line.data)
