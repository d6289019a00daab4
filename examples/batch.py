"""The same task in many folders, four at a time: `python examples/batch.py "Summarise this project." a/ b/ c/`"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from app_server.client import AppServer, AppServerError

AT_ONCE = 4


async def main(task: str, folders: list[Path]) -> int:
    room = anyio.CapacityLimiter(AT_ONCE)
    done = failed = 0

    async def work(server: AppServer, folder: Path) -> None:
        nonlocal done, failed
        async with room:
            try:
                thread = await server.start_thread(cwd=folder, sandbox="read-only")
                result = await thread.run(task)
                await thread.archive()
                message = result.final_message if result.completed else None
                error = result.error.message if result.error else f"the turn was {result.status}"
            except AppServerError as refused:
                message, error = None, str(refused)
        done += 1
        failed += message is None
        print(f"[{done}/{len(folders)}] {folder}: {message if message is not None else f'FAILED: {error}'}")

    async with AppServer.spawn() as server, anyio.create_task_group() as group:
        for folder in folders:
            group.start_soon(work, server, folder.resolve())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1], [Path(word) for word in sys.argv[2:]]))
