"""One turn from an editor's view: its events are shown, approval requests are answered, and both are recorded.

The module also has the expectations for each turn of the demo: the events, the files on the disk, and the requests to
the model.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import anyio
import msgspec
from msgspec import Struct

from app_server.cli.demo import demo_script as script
from app_server.cli.demo.screen import Checks, DemoStopped, Person, Screen
from app_server.cli.demo.scripted_model import ScriptedModel
from app_server.cli.demo.workspace import DemoWorkspace
from app_server.client.answering import ApprovalAnswer
from app_server.client.approval_requests import ApprovalRequest, CommandApprovalRequest, PatchApprovalRequest
from app_server.client.event_stream import TurnStream
from app_server.client.events import ThreadEvent
from app_server.client.turn_handle import TurnResult
from app_server_protocol.v2 import items as wire
from app_server_protocol.v2.item_parts import CommandExecutionStatus, PatchApplyStatus
from app_server_protocol.v2.server import ErrorNotification, WarningNotification
from app_server_protocol.v2.thread import ThreadTokenUsage, ThreadTokenUsageUpdatedNotification
from app_server_protocol.v2.turn import TurnDiffUpdatedNotification

LIMIT = 60.0
"""Maximum time of a turn between two approvals, in seconds; the person may take longer."""


class PlayedTurn(Struct):
    """Record of a turn."""

    deltas: list[str] = msgspec.field(default_factory=list)
    asked: dict[str, ApprovalRequest] = msgspec.field(default_factory=dict)
    """Approval requests, by item id."""
    approved: dict[str, bool] = msgspec.field(default_factory=dict)
    ended: dict[str, wire.ThreadItem] = msgspec.field(default_factory=dict)
    """Items in their final state, by id."""
    diff: str = ""
    usage: ThreadTokenUsage | None = None
    result: TurnResult[None] | None = None

    @property
    def messages(self) -> list[str]:
        return [item.text for item in self.ended.values() if isinstance(item, wire.AgentMessageThreadItem)]

    def command(self, id: str) -> wire.CommandExecutionThreadItem | None:
        item = self.ended.get(id)
        return item if isinstance(item, wire.CommandExecutionThreadItem) else None

    def patch(self, id: str) -> wire.FileChangeThreadItem | None:
        item = self.ended.get(id)
        return item if isinstance(item, wire.FileChangeThreadItem) else None


class TurnRecorder:
    """Records one turn until its end."""

    def __init__(
        self, screen: Screen, person: Person, before_answer: Callable[[ApprovalRequest], None]
    ) -> None:
        """`before_answer` is called while an approval request is open."""
        self._screen, self._person, self._before_answer = screen, person, before_answer
        self._seen = PlayedTurn()
        self._stream: TurnStream | None = None
        self._limit = anyio.CancelScope()

    async def record(self, stream: TurnStream) -> PlayedTurn:
        """Record the turn. Raises DemoStopped if the turn does not complete or takes too long."""
        self._stream = stream
        with anyio.move_on_after(LIMIT) as self._limit:
            async for event in stream:
                self._show(event)
            self._seen.result = result = await stream.result()
            if not result.completed:
                reason = result.error.message if result.error else "no reason was given"
                raise DemoStopped(f"the turn was {result.status}: {reason}")
            return self._seen
        raise DemoStopped(f"the turn did not end within {LIMIT:g} s")

    async def decide(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Handle the turn's approval requests."""
        if self._stream is not None:
            await self._stream.read_up()  # so that the question comes after the events that led to it
        match request:
            case CommandApprovalRequest():
                question = "May this command run?"
            case PatchApprovalRequest():
                for change in request.changes:
                    self._screen.note("patch", change.path)
                    self._screen.diff(change.diff)
                question = "May this change be made?"
            case _:
                raise DemoStopped(
                    f"the server sent a {type(request).__name__}, which the demo does not support"
                )
        self._before_answer(request)
        yes = await self._person.decide(question)
        item = request.params.item_id
        self._seen.asked[item], self._seen.approved[item] = request, yes
        self._limit.deadline = anyio.current_time() + LIMIT
        return yes

    def _show(self, event: ThreadEvent) -> None:
        seen, screen = self._seen, self._screen
        match event:
            case wire.AgentMessageDeltaNotification(delta=text):
                seen.deltas.append(text)
                screen.word(text)
            case wire.ItemStartedNotification(item=wire.CommandExecutionThreadItem(command=command)):
                screen.command(shlex.split(command))
            case wire.ItemCompletedNotification(item=item):
                seen.ended[item.id] = item
                self._item(item)
            case TurnDiffUpdatedNotification(diff=diff):
                seen.diff = diff
            case ThreadTokenUsageUpdatedNotification(token_usage=usage):
                seen.usage = usage
            case WarningNotification(message=text):
                screen.warning(text)
            case ErrorNotification(error=error):
                screen.warning(error.message)
            case _:
                pass

    def _item(self, item: wire.ThreadItem) -> None:
        match item:
            case wire.CommandExecutionThreadItem():
                ending = "was not run" if item.exit_code is None else f"exit code {item.exit_code}"
                self._screen.output(item.aggregated_output or "", ending)
            case wire.FileChangeThreadItem():
                applied = item.status is PatchApplyStatus.COMPLETED
                self._screen.output("", "applied" if applied else "not applied")
            case _:
                pass


class Expectations(Struct, frozen=True):
    """The expectations of the demo: one method for each part that is shown."""

    workspace: DemoWorkspace
    model: ScriptedModel
    script: script.Script
    screen: Screen
    checks: Checks

    def untouched(self, question: ApprovalRequest) -> None:
        """Expect that no part of a patch is written while its approval request is open."""
        if isinstance(question, PatchApprovalRequest):
            text = self._greeting()
            self.checks.expect("nothing is written before the answer", text == script.FILES["greet.sh"], text)

    def answer(self, seen: PlayedTurn) -> None:
        streamed, whole = "".join(seen.deltas), "".join(seen.messages)
        final = seen.result.final_message if seen.result else None
        ended = bool(seen.messages) and final == seen.messages[-1]
        self.checks.expect(
            f"the text streamed in {len(seen.deltas)} pieces and came whole at the end",
            len(seen.deltas) > len(seen.messages) and streamed == whole and ended,
            (streamed, whole, final),
        )
        self._tokens(seen)

    def _tokens(self, seen: PlayedTurn) -> None:
        charged = self.script.usages
        usage = seen.usage
        found = usage and (usage.last.total_tokens, usage.total.total_tokens)
        if found:
            latest, since = found
            self.screen.note("tokens", f"{since} since the thread began, {latest} in its last request")
        expected = (charged[-1].total, sum(each.total for each in charged))
        self.checks.expect("the tokens are counted", found == expected, (found, expected))

    def repair(self, seen: PlayedTurn) -> None:
        read = seen.command("call-read")
        self.checks.expect(
            "a command that only reads ran unasked",
            read is not None and read.exit_code == 0 and "call-read" not in seen.asked,
            read,
        )
        self._command(seen, "call-check", 1, "failed: expected")
        self._patch(seen, "call-patch")

    def _command(self, seen: PlayedTurn, call: str, exit_code: int, words: str) -> None:
        ended, question = seen.command(call), seen.asked.get(call)
        asked = isinstance(question, CommandApprovalRequest) and question.command == shlex.join(script.CHECK)
        self.checks.expect("a command that could do more was asked about", asked, question)
        if seen.approved.get(call):
            output = (ended.aggregated_output or "") if ended else ""
            ran = ended is not None and ended.exit_code == exit_code and words in output
            self.checks.expect("it ran once it was approved, and its output is here", ran, ended)
        else:
            self.checks.denied += 1
            declined = ended is not None and ended.status is CommandExecutionStatus.DECLINED
            self.checks.expect("it did not run, because it was denied", declined, ended)

    def _patch(self, seen: PlayedTurn, call: str) -> None:
        path, text = str(self.workspace.repository / "greet.sh"), self._greeting()
        question, ended = seen.asked.get(call), seen.patch(call)
        asked = isinstance(question, PatchApprovalRequest) and [c.path for c in question.changes] == [path]
        self.checks.expect("the patch was asked about", asked, question)
        if seen.approved.get(call):
            completed = ended is not None and ended.status is PatchApplyStatus.COMPLETED
            applied = completed and text == script.REPAIRED
            self.checks.expect("it was applied once it was approved", applied, text)
            whole = seen.diff.startswith("diff --git ") and '+echo "Hello, $1!"' in seen.diff
            self.checks.expect("the turn's diff shows it as git would", whole, seen.diff)
        else:
            self.checks.denied += 1
            self.checks.expect(
                "the file is as it was, because it was denied", text == script.FILES["greet.sh"], text
            )

    def confinement(self, seen: PlayedTurn) -> None:
        ended, outside = seen.command("call-note"), self.workspace.outside
        self.checks.expect("nobody was asked", not seen.asked, seen.asked)
        self.checks.expect("the command failed", bool(ended and ended.exit_code), ended)
        self.checks.expect(
            "the sandbox kept it from writing outside of the workspace", not outside.exists(), str(outside)
        )

    def memory(self, seen: PlayedTurn) -> None:
        texts = [
            part.get("text")
            for item in self.model.requests[-1]["input"]
            for part in item.get("content") or ()
        ]
        self.checks.expect(
            "the model was sent the conversation from its beginning",
            script.REPAIR in texts and script.LEAVE_A_NOTE in texts,
            texts,
        )
        repaired = self._greeting() == script.REPAIRED
        self._command(
            seen, "call-again", *((0, "passed: Hello, World!") if repaired else (1, "failed: expected"))
        )

    def _greeting(self) -> str:
        return (self.workspace.repository / "greet.sh").read_text(encoding="utf-8")
