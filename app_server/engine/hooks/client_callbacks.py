"""Callbacks of clients as hooks: an event is sent to the client, and its answer is read like the output of a command.

A callback is the word of a connected client, so it needs no consent and ends with the connection. An answer that does
not come in time, or is none, is a failure as of any hook: a guard that did not answer has not agreed.
"""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from app_server.engine.hooks.announced_hooks import CallbackFailed, ClientCallback
from app_server.engine.hooks.hook_definitions import (
    HookDefinition,
    HookHandler,
    HookTrust,
    LoadedHooks,
)
from app_server.engine.hooks.hook_output import HookFailure, HookOutput, read_answer
from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookEvent, HookHandlerType, HookSource
from app_server_protocol.values import replace


class ClientCallbacks:
    """The callbacks of all clients of a thread in one turn."""

    def __init__(self, callbacks: Mapping[object, ClientCallback]) -> None:
        """`callbacks`: those of each client."""
        self._callbacks = {f"client:{number}": each for number, each in enumerate(callbacks.values())}

    def added_to(self, hooks: LoadedHooks, *, may_approve: bool) -> LoadedHooks:
        """Return the hooks with those of the clients after them. `may_approve`: whether an `allow` of a client counts,
        as its own answer to the question would.
        """
        if not self._callbacks:
            return hooks
        by_event = {event: list(handlers) for event, handlers in hooks.by_event.items()}
        order = len(hooks.handlers())
        for key, callback in self._callbacks.items():
            for event in sorted(callback.announced.events):
                by_event.setdefault(event, []).append(_handler(key, callback, event, order))
                order += 1
        return replace(
            hooks,
            by_event={event: tuple(handlers) for event, handlers in by_event.items()},
            clients_approve=may_approve,
        )

    async def run(self, handler: HookHandler, fields: Mapping[str, Json]) -> HookOutput | HookFailure:
        """Ask the client, and read its answer."""
        callback = self._callbacks.get(handler.key.rpartition(":")[0])
        if callback is None or not callback.is_here():
            # The hook ended with its connection.
            return HookOutput()
        seconds = handler.definition.timeout
        try:
            with anyio.move_on_after(seconds):
                return read_answer(handler.event, await callback.ask(handler.event.value, fields))
        except CallbackFailed as failure:
            return HookFailure(str(failure))
        return HookFailure(f"was not answered within {seconds} s")


def _handler(key: str, callback: ClientCallback, event: HookEvent, order: int) -> HookHandler:
    announced = callback.announced
    return HookHandler(
        definition=HookDefinition(
            event=event,
            pattern=announced.pattern,
            type=HookHandlerType.CALLBACK,
            timeout=announced.timeout,
        ),
        source=HookSource.CLIENT,
        source_path=callback.client,
        display_order=order,
        key=f"{key}:{event.snake}",
        trust=HookTrust.TRUSTED,
    )
