"""`app-server demo`: the plain chat with the scripted model. Its lines are entered for the user, and checked.

1. A chat in a small repository: a check fails, a patch repairs it, the sandbox stops a command that goes too far.
2. A second server resumes the stored thread, and the check is run again.
3. The file, the rollout, what the model was sent and the ends of the servers are checked.

Each approval is asked for at the terminal, or given by `--yes`. Nothing of the user is read or changed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup
from msgspec import Struct
from rich.console import Console

from app_server.cli.chat.chat_conversation import ChatConversation, Opening, chat_session
from app_server.cli.chat.plain_chat import PlainChat, TypedLine, TypedLines
from app_server.cli.demo.demo_script import REPAIRED
from app_server.cli.demo.workspace import THREAD, DemoWorkspace, demo_surroundings
from app_server.client.command_line import INTERRUPTED, printable, single_errors, until_signal
from app_server.client.failures import AppServerError
from app_server.client.link import OWN_COMMAND, SubprocessConnector
from app_server.server.bootstrap.standard_streams import complain

FIRST: Final = ("check", "repair", "/approvals never", "note")
SECOND: Final = ("check",)

ENDS_WITHIN: Final = 120.0
"""Timeout for a chat without a person, in seconds; it takes two or three."""


class Approver:
    """Source of the answers to questions: a person at the terminal, or `--yes`. It has no other lines, so a chat ends
    with its last turn.
    """

    def __init__(self, person: TypedLines, *, yes: bool) -> None:
        self._person, self._yes = person, yes
        self.chat: ChatConversation | None = None
        self.denied = not yes and not person.typed
        """Whether an approval was denied, or nobody could be asked for one."""

    @property
    def typed(self) -> bool:
        return self._person.typed and not self._yes

    @property
    def ended(self) -> bool:
        """Whether nobody can be asked: questions are then declined."""
        return not self._yes and (not self._person.typed or self._person.ended)

    async def next(self) -> TypedLine | None:
        """Return the answer to the open question; None if there is no question."""
        if self.chat is None or self.chat.questions.current is None:
            return None
        if self._yes:
            self.chat.view.line("yes (--yes)", "bold")
            return TypedLine("y")
        line = await self._person.next()
        self.denied |= line is None or line.text.strip().lower() not in ("y", "yes")
        return line

    def mark_early(self) -> None:
        if self.typed:
            self._person.mark_early()


class Played(Struct):
    """A demo that was played, with its workspace."""

    workspace: DemoWorkspace
    statuses: list[int]
    """Exit statuses of the servers."""
    approved: bool
    """Whether everything was approved."""

    def checks(self) -> Iterator[tuple[str, bool]]:
        """Yield what is expected, and whether it is so."""
        sent = json.dumps([item for item in self._last_input() if item.get("role") == "user"])
        if self.approved:
            repaired = (self.workspace.repository / "greet.sh").read_text(encoding="utf-8") == REPAIRED
            yield "the patch was applied once it was approved", repaired
            passed = "passed: Hello, World!" in json.dumps(self._last_input()[-1])
            yield "the check passes, and the model was sent its output", passed
        yield (
            "the sandbox kept a command from writing outside of the folder",
            not self.workspace.outside.exists(),
        )
        yield "the rollout holds the conversation", self._is_stored()
        told = all(f'"{line}"' in sent for line in (*FIRST, *SECOND) if not line.startswith("/"))
        yield "the second server sent the model the conversation from its beginning", told
        yield "both servers left in good order", self.statuses == [0, 0]

    def _last_input(self) -> Sequence[dict[str, object]]:
        requests = self.workspace.model.requests
        return requests[-1]["input"] if requests else [{}]

    def _is_stored(self) -> bool:
        rollouts = [*self.workspace.home.glob("sessions/**/rollout-*.jsonl")]
        lines = rollouts[0].read_text(encoding="utf-8").splitlines() if len(rollouts) == 1 else []
        return len(lines) > 20 and json.loads(lines[0])["type"] == "session_meta"


def run_demo(*, yes: bool) -> int:
    """Play the demo. Return 0 only if all checks passed."""
    console = Console(force_terminal=False, highlight=False)
    approver = Approver(TypedLines(sys.stdin), yes=yes)
    status: int | None = 1
    try:
        status = anyio.run(until_signal, lambda: _play(console, approver))
    except* AppServerError as errors:
        for error in single_errors(errors):
            complain("app-server demo", printable(str(error)))
    if status is None:
        console.print("interrupted")
        return INTERRUPTED
    return status


async def _play(console: Console, approver: Approver) -> int:
    async with demo_surroundings(os.environ) as workspace:
        played = Played(workspace, [], approved=True)
        _title(console, "a chat in a small repository")
        await _chat(console, approver, played, Opening(lines=FIRST, start_options=THREAD))
        _title(console, "a second server resumes the stored thread")
        await _chat(console, approver, played, Opening(last=True, lines=SECOND))
        played.approved = not approver.denied
        _title(console, "the checks")
        return _report(console, approver, [*played.checks()])


async def _chat(console: Console, approver: Approver, played: Played, opening: Opening) -> None:
    """Play a chat with a server of its own. Raises AppServerError."""

    async def frontend(chat: ChatConversation, group: TaskGroup, home: Path | None) -> None:
        approver.chat = chat
        await PlainChat(chat, home, approver, time.monotonic, echoes=True).run()

    cwd = played.workspace.repository
    connector = SubprocessConnector(
        command=OWN_COMMAND,
        environment=played.workspace.environment,
        cwd=cwd,
        on_exit=played.statuses.append,
    )
    with anyio.move_on_after(None if approver.typed else ENDS_WITHIN) as in_time:
        await chat_session(connector, console, frontend, cwd, None, opening)
    if in_time.cancelled_caught:
        raise AppServerError(f"the chat did not end within {ENDS_WITHIN:g} s")


def _report(console: Console, approver: Approver, checks: Sequence[tuple[str, bool]]) -> int:
    """Print the checks, and return the exit status."""
    for what, happened in checks:
        console.print(f"✓ {what}" if happened else f"✗ expected: {what}")
    failed = sum(not happened for _, happened in checks)
    if failed:
        console.print(f"{failed} of {len(checks)} checks failed.")
        return 1
    if not approver.denied:
        console.print(f"{len(checks)} checks passed. The temporary folder is gone, with everything in it.")
        return 0
    console.print(
        f"{len(checks)} checks passed, but not everything was shown: something was denied. "
        "`app-server demo --yes` approves it."
    )
    return 1 if approver.ended else 0  # a person who denied something has seen the effect of that


def _title(console: Console, text: str) -> None:
    console.print(f"\n── {text}")
