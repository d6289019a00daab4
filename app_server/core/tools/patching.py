"""The one road of a patch: understand → judge where it writes → ask → write it with the sandbox's rights.

1. The patch is parsed and every hunk of every file is placed, before anything is asked or written.
2. Where it writes is judged by real paths, links resolved: applied, asked about, or refused.
3. It is written by a process of its own inside the sandbox; one that the user approved is written again without
   it where the sandbox stood in the way: the yes was for these changes in these places, and the writer does nothing
   else and follows no link to another place. Either everything is written or nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from app_server.core.approvals.consent import EVERYTHING, Consent, PatchSubject, rights_of
from app_server.core.approvals.decide import may_ask_after_denial
from app_server.core.errors import CoreError
from app_server.core.exec.command import CommandSpec, ExecResult
from app_server.core.patch.changes import shown_changes
from app_server.core.patch.disk_files import DiskFiles
from app_server.core.patch.git_directories import git_directories
from app_server.core.patch.parse import parse_patch
from app_server.core.patch.patch_error import PatchError
from app_server.core.patch.patch_plan import PatchPlan, writer_command
from app_server.core.patch.planner import plan_patch
from app_server.core.patch.safety import AutoApprove, Reject, WriteScope, assess
from app_server.core.sandbox.plan import SandboxPlan
from app_server.core.threads import run_in_thread
from app_server.core.tools.confinement import confinement
from app_server.core.tools.consent import has_consent
from app_server.core.tools.contract import ToolFailure, ToolTurn
from app_server.core.tools.orchestrator import RETRY_REASON
from app_server.core.tools.output_events import OutputDeltas, decode
from protocol.engine.events import PatchWriting
from protocol.engine.items import FileChange, ItemStatus
from protocol.events.patches import ApplyPatchApprovalRequestEvent
from protocol.policy import DangerFullAccess, ReviewDecision
from protocol.records import dataclass

REJECTED = "patch rejected by user"
TIMEOUT_MS = 60_000
REFUSED = "Failed to "
"""How the writer begins to say that it lacks the rights; other failures name their reason."""


@dataclass(frozen=True, slots=True)
class Patching:
    """One patch of one call."""

    call_id: str
    text: str
    cwd: str
    turn: ToolTurn

    async def through(self) -> ExecResult:
        """Returns what the writer printed. Raises ToolFailure where nothing was written."""
        plan = await self._understood()
        allowed = await confinement(self.turn)
        turn = self.turn
        item = FileChange(id=self.call_id, changes=shown_changes(plan))
        turn.items.start(item)
        try:
            approved = await self._approved(plan, allowed)
        except ToolFailure as failure:
            turn.items.complete(replace(item, status=ItemStatus.DECLINED, stderr=str(failure)))
            raise
        turn.diffs.record(plan)
        turn.emit(PatchWriting(item, asked=approved))
        try:
            result = await self._written(plan, allowed, approved)
        except (CoreError, ToolFailure, OSError) as error:
            turn.items.complete(replace(item, status=ItemStatus.FAILED, stderr=str(error)))
            raise ToolFailure(str(error)) from error
        status = ItemStatus.COMPLETED if result.exit_code == 0 else ItemStatus.FAILED
        output, errors = decode(result.stdout), decode(result.stderr)
        turn.items.complete(replace(item, status=status, stdout=output, stderr=errors))
        return result

    async def _understood(self) -> PatchPlan:
        def read() -> PatchPlan:
            return plan_patch(parse_patch(self.text), self.cwd, DiskFiles())

        try:
            return await run_in_thread(read, abandon_on_cancel=True)
        except PatchError as error:
            raise ToolFailure(error.for_model()) from error

    # --- step 2
    async def _approved(self, plan: PatchPlan, allowed: SandboxPlan | None) -> bool:
        """Whether the user said yes; False: nobody needed to be asked."""
        verdict = assess(plan.places(), self.turn.settings.approval_policy, self._territory(plan, allowed))
        if isinstance(verdict, AutoApprove):
            self.turn.decided("apply_patch", self.call_id, ReviewDecision.APPROVED)
            return False
        if isinstance(verdict, Reject):
            self.turn.decided("apply_patch", self.call_id, ReviewDecision.DENIED)
            raise ToolFailure(verdict.for_model())
        await self._ask(plan, allowed, verdict.reason, verdict.grant_root)
        return True

    def _territory(self, plan: PatchPlan, allowed: SandboxPlan | None) -> WriteScope | None:
        if isinstance(self.turn.settings.sandbox_policy, DangerFullAccess) or allowed is None:
            return None
        roots = tuple(allowed.writable_roots)
        fences = git_directories([place.real for place in plan.places()], roots)
        return WriteScope(roots, (*allowed.fences, *allowed.reserved, allowed.home, *fences))

    async def _ask(
        self, plan: PatchPlan, allowed: SandboxPlan | None, reason: str | None, grant_root: str | None = None
    ) -> None:
        event = ApplyPatchApprovalRequestEvent(
            call_id=self.call_id, changes=shown_changes(plan), reason=reason, grant_root=grant_root
        )
        subject = PatchSubject(self.text, tuple(place.real for place in plan.places()))
        consent = Consent(subject, run=EVERYTHING, policy=rights_of(allowed))
        if not await has_consent(event, consent, self.turn):
            raise ToolFailure(REJECTED)

    # --- step 3
    async def _written(self, plan: PatchPlan, allowed: SandboxPlan | None, approved: bool) -> ExecResult:
        result = await self._write(plan, allowed)
        stopped = allowed is not None and result.exit_code != 0 and decode(result.stderr).startswith(REFUSED)
        if not stopped:
            return result
        if not approved:
            if not may_ask_after_denial(self.turn.settings.approval_policy):
                return result
            await self._ask(plan, allowed, RETRY_REASON)
        return await self._write(plan, None)

    async def _write(self, plan: PatchPlan, allowed: SandboxPlan | None) -> ExecResult:
        # What a killed writer left may be finished only by one that has no more rights than any command.
        # A new id, not the call's: that is the model's, and becomes part of the names of temporary files.
        document = plan.document(self.turn.new_id(), recover=allowed is not None)
        path = await run_in_thread(_spool, Path(self.turn.runner.home), document)
        try:
            spec = CommandSpec(
                argv=("/bin/sh", "-c", 'exec "$@" < "$0"', path, *writer_command(sys.executable)),
                cwd="/",  # every path in the document is absolute
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
                timeout_ms=TIMEOUT_MS,
                sandbox=allowed,
            )
            return await self.turn.runner.run(spec, OutputDeltas(self.call_id, self.turn.emit).take)
        finally:
            os.unlink(path)


def _spool(home: Path, document: bytes) -> str:
    """The plan as a file that the writer can read from inside the sandbox."""
    folder = home / "tmp"
    folder.mkdir(mode=0o700, exist_ok=True)
    fd, path = tempfile.mkstemp(prefix="patch-", dir=folder)
    with os.fdopen(fd, "wb") as file:
        file.write(document)
    return path
