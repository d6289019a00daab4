"""The flow of a patch: parse → judge its targets → plan → approve → write inside the sandbox.

1. The targets are judged by their real paths: the patch is applied, needs approval, or is rejected. No file of a
rejected patch is read: the model must not even learn whether its hunks fit.
2. Every hunk of every file is located, before any approval or write.
3. A separate process writes the patch inside the sandbox. If the sandbox denied that and the user approved the patch,
it is written again without the sandbox: the approval was for these changes in these files, and the writer does nothing
else and follows no link. Either everything is written or nothing.
"""

from __future__ import annotations

import os
import os.path
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from msgspec import Struct

from app_server.engine.approvals.consent import EVERYTHING, Consent, PatchSubject, rights_of
from app_server.engine.approvals.decide import may_ask_after_denial
from app_server.engine.config.file_rules import Right
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.sandbox.plan import SandboxPlan, for_own_program
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.support.helpers import writer_command
from app_server.engine.support.private_folders import temporary_folder
from app_server.engine.support.real_path import real_path, within
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools.editor_files import (
    PlannedPatch,
    check_unchanged,
    plan_with_editor,
    write_through_editor,
)
from app_server.engine.tools.orchestrator import RETRY_REASON, Command, command_tool_output
from app_server.engine.tools.rights import confinement, has_consent
from app_server.engine.tools.tool_base import (
    NO_WORD,
    HookWord,
    ToolCall,
    ToolContext,
    ToolFailure,
    ToolOutput,
)
from app_server.engine.tools.tool_events import OutputDeltas, decode, shown_output
from app_server.engine.tools.tool_schemas import PatchArguments, parse_arguments
from app_server.engine.workspace.patch.changes import refused_changes, shown_changes, shown_texts
from app_server.engine.workspace.patch.disk_files import DiskFiles, git_directories
from app_server.engine.workspace.patch.parse import Patch, PatchError, parse_patch
from app_server.engine.workspace.patch.planner import PatchPlan, Place, named_places
from app_server.engine.workspace.patch.safety import AskUser, Reject, Verdict, WriteScope, assess
from app_server.engine.workspace.patch.shell_forms import ParseProblem, PatchCall, find_patch
from app_server_protocol.engine.events import PatchWriting
from app_server_protocol.engine.items import FileChange, ItemStatus
from app_server_protocol.engine.questions import PatchApprovalQuestion
from app_server_protocol.policy import AskForApproval, DangerFullAccess, ReviewDecision, TurnMode
from app_server_protocol.values import replace

REJECTED = "patch rejected by user"
TIMEOUT_MS = 60_000
REFUSED = "Failed to "
"""Prefix of the writer's message if it lacks the rights; other failures name their reason."""


class PatchFlow(Struct, frozen=True):
    """The flow of one patch of one call."""

    call_id: str
    text: str
    cwd: str
    turn: ToolContext
    word: HookWord = NO_WORD

    async def output(self) -> ToolOutput:
        """Apply the patch and return the output for the model. Raises ToolFailure if nothing was written."""
        result = await self.apply()
        return command_tool_output(
            result, shown_output(result, decode(result.aggregated), self.turn.output_limit)
        )

    async def apply(self) -> ExecResult:
        """Apply the patch and return the output of the writer. Raises ToolFailure if nothing was written."""
        if self.turn.settings.mode.kind is TurnMode.PLAN:
            raise ToolFailure("patch rejected: no files are changed in plan mode")
        turn, disk = self.turn, DiskFiles(self.turn.commands.runner.home)
        try:
            patch = parse_patch(self.text)
            places = await run_in_thread(named_places, patch, self.cwd, disk, abandon_on_cancel=True)
            allowed = await confinement(turn)
            verdict = self._judge(patch, places, allowed)
            editor = None if turn.commands.runner.busy else turn.commands.editor
            # Before the user has approved, the editor must not reveal text from outside of the workspace.
            names = turn.config.permissions.protected_folders
            scope = WriteScope((real_path(turn.settings.cwd),), protected_folders=names)
            shown = scope if isinstance(verdict, AskUser) else None
            planned = await plan_with_editor(patch, self.cwd, disk, editor, shown)
        except PatchError as error:
            raise ToolFailure(error.for_model()) from error
        plan = planned.plan
        # The targets of the patch's paths may have changed since the first check.
        verdict = self._judge(patch, plan.places(), allowed)
        item = FileChange(id=self.call_id, changes=shown_changes(plan), texts=shown_texts(plan))
        turn.items.start(item)
        try:
            approved = await self._approve(plan, allowed, verdict)
        except ToolFailure as failure:
            turn.items.complete(replace(item, status=ItemStatus.DECLINED, stderr=str(failure)))
            raise
        turn.diffs.record(plan)
        turn.emit(PatchWriting(item, asked=approved))
        try:
            async with turn.changes.patch(plan):
                result = await self._write_planned(planned, allowed, approved)
        except (CoreError, ToolFailure, OSError) as error:
            turn.items.complete(replace(item, status=ItemStatus.FAILED, stderr=str(error)))
            raise ToolFailure(str(error)) from error
        status = ItemStatus.COMPLETED if result.exit_code == 0 else ItemStatus.FAILED
        output, errors = decode(result.stdout), decode(result.stderr)
        turn.items.complete(replace(item, status=status, stdout=output, stderr=errors))
        return result

    # --- step 1
    def _judge(self, patch: Patch, places: Sequence[Place], allowed: SandboxPlan | None) -> AskUser | None:
        """Judge a patch by its targets. Raises ToolFailure for a rejected patch, without showing any content."""
        hidden = next((place for place in places if allowed and _is_hidden(place.real, allowed)), None)
        if allowed is not None and hidden is not None:
            verdict: Verdict = Reject(f"the permission profile `{allowed.view.profile}` hides {hidden.label}")
        else:
            verdict = assess(places, self._policy, self._write_scope(places, allowed))
        if not isinstance(verdict, Reject):
            return verdict if self.word.asks is None else AskUser(self.word.asks)
        turn, reason = self.turn, verdict.for_model()
        turn.report_decision("apply_patch", self.call_id, ReviewDecision.DENIED)
        if places:
            item = FileChange(id=self.call_id, changes=refused_changes(patch, self.cwd))
            turn.items.start(item)
            turn.items.complete(replace(item, status=ItemStatus.DECLINED, stderr=reason))
        raise ToolFailure(reason)

    # --- step 2
    async def _approve(self, plan: PatchPlan, allowed: SandboxPlan | None, verdict: AskUser | None) -> bool:
        """Return whether the user approved it; False if no approval was needed."""
        if verdict is None:
            self.turn.report_decision("apply_patch", self.call_id, ReviewDecision.APPROVED)
            return False
        if self.word.approves:
            self.turn.report_decision("apply_patch", self.call_id, ReviewDecision.APPROVED)
        else:
            await self._request_approval(plan, allowed, verdict.reason, anew=self.word.asks is not None)
        return True

    @property
    def _policy(self) -> AskForApproval:
        """The effective approval policy. If the user is not asked about the sandbox, a patch that leaves it is
        refused.
        """
        settings = self.turn.settings
        asks = settings.granular is None or settings.granular.sandbox_approval
        return settings.approval_policy if asks else AskForApproval.NEVER

    def _write_scope(self, places: Sequence[Place], allowed: SandboxPlan | None) -> WriteScope | None:
        if isinstance(self.turn.settings.sandbox_policy, DangerFullAccess) or allowed is None:
            return None
        protected = git_directories([place.real for place in places], allowed.written, allowed.home)
        # If the plan has a writable root within the home, it was granted there on purpose.
        home = () if any(within(root, allowed.home) for root in allowed.written) else (allowed.home,)
        closed = (*allowed.protected, *allowed.reserved, *allowed.view.hidden, *home, *protected)
        names = self.turn.config.permissions.protected_folders
        return WriteScope(allowed.written, closed, allowed.view.reopened, names)

    async def _request_approval(
        self, plan: PatchPlan, allowed: SandboxPlan | None, reason: str | None, *, anew: bool = False
    ) -> None:
        event = PatchApprovalQuestion(call_id=self.call_id, changes=shown_changes(plan), reason=reason)
        subject = PatchSubject(self.text, tuple(place.real for place in plan.places()))
        consent = Consent(subject, run=EVERYTHING, policy=rights_of(allowed))
        if not await has_consent(event, consent, self.turn, anew=anew):
            raise ToolFailure(REJECTED)

    # --- step 3
    async def _write_planned(
        self, planned: PlannedPatch, allowed: SandboxPlan | None, approved: bool
    ) -> ExecResult:
        """Write to the disk first, completely or not at all, then to the editor. Files that the editor does not save
        are written to the disk.
        """
        edits, editor = planned.through_editor(), self.turn.commands.editor
        if not edits or editor is None:
            return await self._write_with_retry(planned.plan, allowed, approved)
        try:
            await check_unchanged(editor, edits)
        except PatchError as error:
            raise ToolFailure(error.for_model()) from error
        result = await self._write_with_retry(planned.for_disk(), allowed, approved)
        if result.exit_code != 0:
            return result
        failed = edits if self.turn.commands.runner.busy else await write_through_editor(editor, edits)
        if not failed:
            return result
        rest = await self._write_with_retry(planned.fallback(failed), allowed, approved)
        return result if rest.exit_code == 0 else rest

    async def _write_with_retry(
        self, plan: PatchPlan, allowed: SandboxPlan | None, approved: bool
    ) -> ExecResult:
        result = await self._write(plan, allowed)
        denied = allowed is not None and result.exit_code != 0 and decode(result.stderr).startswith(REFUSED)
        if not denied:
            return result
        if not approved:
            if not may_ask_after_denial(self.turn.settings.approval_policy):
                return result
            await self._request_approval(plan, allowed, RETRY_REASON)
        return await self._write(plan, None)

    async def _write(self, plan: PatchPlan, allowed: SandboxPlan | None) -> ExecResult:
        # Only a confined writer may recover what a killed writer left: it has no more rights than any command. The id
        # is new, because the call's id comes from the model and would be part of names of temporary files.
        document = plan.document(self.turn.sources.new_id(), recover=allowed is not None)
        path = await run_in_thread(_spool, Path(self.turn.commands.runner.home), document)
        try:
            spec = CommandSpec(
                argv=("/bin/sh", "-c", 'exec "$@" < "$0"', path, *writer_command(sys.executable)),
                cwd="/",  # every path in the document is absolute
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                timeout_ms=TIMEOUT_MS,
                sandbox=for_own_program(allowed, os.path.realpath(path)),
            )
            editor = self.turn.commands.editor
            with nullcontext() if editor is None else editor.changes.span():
                return await self.turn.commands.runner.run(
                    spec, OutputDeltas(self.call_id, self.turn.emit).emit_output
                )
        finally:
            os.unlink(path)


def _is_hidden(real: str, allowed: SandboxPlan) -> bool:
    """Return whether a path is denied, or exists without a rule that lets commands see it: no patch may reveal its
    content.
    """
    rules = allowed.view.rules
    right = Right.READ if rules is None else rules.right(real)
    return right is Right.DENIED or (right is Right.ABSENT and os.path.lexists(real))


def _spool(home: Path, document: bytes) -> str:
    """Write the plan to a file that the writer can read from inside the sandbox. Return its path."""
    fd, path = tempfile.mkstemp(prefix="patch-", dir=temporary_folder(home))
    with os.fdopen(fd, "wb") as file:
        file.write(document)
    return path


async def invoke(call: ToolCall, turn: ToolContext) -> ToolOutput:
    """Serve a call of `apply_patch`."""
    text = call.arguments if call.custom else parse_arguments(call.arguments, PatchArguments).input
    return await PatchFlow(call.call_id, text, turn.settings.cwd, turn, call.word).output()


async def apply_if_patch(command: Command, turn: ToolContext) -> ToolOutput | None:
    """Apply the patch if the command is one; return None otherwise."""
    match find_patch(command.argv):
        case PatchCall(patch, workdir):
            cwd = os.path.normpath(os.path.join(command.cwd, workdir or ""))
            return await PatchFlow(command.call_id, patch, cwd, turn, command.word).output()
        case ParseProblem(message):
            raise ToolFailure(message)
        case _:
            return None
