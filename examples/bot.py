"""A bot: every line of stdin is a message, every answer a line of stdout. What comes while it works steers its turn.

`/new` begins a new thread, `/stop` interrupts the turn; the end of stdin ends the bot after its last answer.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.client import AppServer, ThreadHandle, TurnHandle


async def lines() -> AsyncIterator[str]:
    while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        yield line.strip()


async def answer(turn: TurnHandle) -> None:
    result = await turn.result()
    message = result.error.message if result.error else result.final_message
    print(f"{result.status}: {' '.join((message or '').split())}", flush=True)


async def new_thread(server: AppServer) -> ThreadHandle:
    return await server.start_thread(cwd=Path.cwd(), sandbox="read-only")


async def main() -> None:
    async with AppServer.spawn() as server, anyio.create_task_group() as answers:
        thread = await new_thread(server)
        turn: TurnHandle | None = None
        async for line in lines():
            match line:
                case "":
                    continue
                case "/new":
                    thread, turn = await new_thread(server), None
                case "/stop":
                    await thread.interrupt()
                case _:
                    started = await thread.start_turn(line)
                    if turn is not None and started.id == turn.id:
                        print("noted", flush=True)  # it joined the turn that runs
                    else:
                        turn = started
                        answers.start_soon(answer, turn)


if __name__ == "__main__":
    anyio.run(main)
