"""Notifications about threads that handlers send: those of the thread itself, not of its turns and items."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field

from app_server.identity import ClientProfile
from app_server.rpc.outgoing import Outgoing
from protocol.records import dataclass
from protocol.structs import Written
from protocol.table import AnyServerNotification


@dataclass(slots=True)
class ThreadNotifier:
    outgoing: Outgoing
    client: ClientProfile
    now: Callable[[], float] = field(repr=False)
    """Seconds since 1970."""

    def notify(self, row: AnyServerNotification, params: Written) -> None:
        """Sends it unless the client opted out of it."""
        if row.method in self.client.opted_out:
            return
        head = f'{{"method":{json.dumps(row.method)},"params":'.encode()
        line = head + params.to_json() + f',"emittedAtMs":{int(self.now() * 1000)}}}'.encode()
        self.outgoing.send(line)
