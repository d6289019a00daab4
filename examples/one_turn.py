"""One turn, its text as it streams: `python examples/one_turn.py "What is in this folder?"`"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from app_server.client import (
    AgentMessageDeltaNotification,
    AppServer,
    CommandExecutionThreadItem,
    ItemCompletedNotification,
)


async def main(question: str) -> int:
    async with AppServer.spawn() as server:
        thread = await server.start_thread(cwd=Path.cwd(), sandbox="read-only")
        stream = thread.stream(question)
        async for event in stream:
            match event:
                case AgentMessageDeltaNotification(delta=text):
                    print(text, end="", flush=True)
                case ItemCompletedNotification(item=CommandExecutionThreadItem() as ran):
                    print(f"\n[{ran.command}: exit code {ran.exit_code}]")
                case _:
                    pass
        result = await stream.result()
        print()
        if result.error is not None:
            print(result.error.message, file=sys.stderr)
        if result.usage is not None:
            print(f"{result.usage.total_tokens} tokens", file=sys.stderr)
        return 0 if result.completed else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main, sys.argv[1]))
