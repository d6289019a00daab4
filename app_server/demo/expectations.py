"""What is expected of each turn of the demo: what was seen, what is on disk, what the model was sent."""

from __future__ import annotations

import shlex

from msgspec import Struct

from app_server.client.approval_requests import ApprovalRequest, CommandApprovalRequest, PatchApprovalRequest
from app_server.demo import script
from app_server.demo.screen import Checks, Screen
from app_server.demo.scripted_model import ScriptedModel
from app_server.demo.turn import PlayedTurn
from app_server.demo.workspace import DemoWorkspace
from protocol.v2.item_parts import CommandExecutionStatus, PatchApplyStatus


class Expectations(Struct, frozen=True):
    """One method for each thing that is shown."""

    workspace: DemoWorkspace
    model: ScriptedModel
    script: script.Script
    screen: Screen
    checks: Checks

    def untouched(self, question: ApprovalRequest) -> None:
        """Expect that nothing of a patch is written while it is asked about."""
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
