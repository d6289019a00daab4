"""A typed client library for the thread API: threads, turns, approvals, over a subprocess or in the same process.

    async with AppServer.spawn() as server:
        thread = await server.start_thread(cwd="/home/me/project")
        result = await thread.run("Does greet.sh work?")
        print(result.final_message)

docs/client.md is its guide. The shapes of events, items and settings are the protocol's own (`app_server_protocol.v2`).
`exports` has the public names; they are loaded when a program uses the first of them, because its parts are also used
alone.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app_server.client.exports import *  # noqa: F403  all of them
else:

    def __getattr__(name: str) -> object:
        is_module = name.startswith("_") or find_spec(f"{__name__}.{name}") is not None
        exports = {} if is_module else vars(import_module("app_server.client.exports"))
        if name not in exports:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return exports[name]

    def __dir__() -> list[str]:
        return [
            *globals(),
            *(name for name in vars(import_module("app_server.client.exports")) if name[0] != "_"),
        ]
