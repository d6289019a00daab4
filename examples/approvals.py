"""A turn that asks before it acts: `python examples/approvals.py "Run the tests."`, without `async`."""

from __future__ import annotations

import sys
from pathlib import Path

from app_server.client import ApprovalAnswer, ApprovalRequest, CommandApprovalRequest, PatchApprovalRequest
from app_server.client.sync import SyncAppServer


def decide(request: ApprovalRequest) -> ApprovalAnswer:
    """Shows what the server asks, and reads the answer from stdin. It runs in a thread of its own."""
    match request:
        case CommandApprovalRequest():
            print(f"Run `{request.command}` in {request.cwd}?")
        case PatchApprovalRequest():
            for change in request.changes:
                print(f"--- {change.kind.type} {change.path}\n{change.diff}")
            print("Apply this patch?")
        case _:
            return request.decline()  # permissions, questions, tools: not here
    if request.reason:
        print(f"Reason: {request.reason}")
    match input("y: yes, a: always in this thread, n: no, s: stop > ").strip().lower():
        case "y":
            return request.accept()
        case "a":
            return request.accept_for_thread()
        case "s":
            return request.cancel()
        case _:
            return request.decline()


def main(task: str) -> int:
    with SyncAppServer.spawn(on_approval=decide) as server:
        thread = server.start_thread(cwd=Path.cwd(), approval_policy="untrusted")
        result = thread.run(task)
        print(result.final_message or f"The turn was {result.status}.")
        return 0 if result.completed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
