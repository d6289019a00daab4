"""One attempt at a task, over the client library: its place, a thread, the commands around the turn, the turn; what
came of it, and whether another attempt may do better.
"""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from msgspec.structs import asdict, astuple

from app_server.batch import messages
from app_server.batch.checkout import Checkouts, TaskPatch, TaskPlace
from app_server.batch.gate import RunningTask, WorkerGate
from app_server.batch.messages import Ended, Ending, ResultError, Run, Setup, Status
from app_server.batch.secrets import masked_bytes
from app_server.client import approval_requests as asked
from app_server.client.app_server import AppServer
from app_server.client.failures import AppServerError, RequestRefused, ServerEnded
from app_server.client.options import TurnOptions
from app_server.client.thread_handle import ThreadHandle
from app_server.client.turn_handle import TurnResult
from app_server.core.config.safe_file import write_file_atomically
from app_server.core.errors import GitError
from app_server.headless.exec_report import JsonReport
from app_server.headless.output_schema import OutputSchema
from protocol.structs import Json
from protocol.v2 import commands
from protocol.v2.fields import InThread
from protocol.v2.server import CodexErrorKind, TurnError
from protocol.v2.thread_work import THREAD_BACKGROUND_TERMINALS_CLEAN

OUTPUT_CAP: Final = 1 << 16
SHOWN_OUTPUT: Final = 600
"""Characters of what a command printed, in an error."""
LEAVES_WITHIN: Final = 5.0
"""Seconds for the commands of a thread that go on to be ended."""
ALONE: Final[Mapping[str, Json]] = {
    "sandbox_workspace_write.exclude_slash_tmp": True,
    "sandbox_workspace_write.exclude_tmpdir_env_var": True,
}
"""Commands get a temporary folder of their own: in that of the machine they would meet other tasks."""

REFUSED: Final = (CodexErrorKind.UNAUTHORIZED, CodexErrorKind.USAGE_LIMIT_EXCEEDED)
"""What no task will get past."""
PASSING: Final = (
    CodexErrorKind.INTERNAL_SERVER_ERROR,
    CodexErrorKind.SERVER_OVERLOADED,
    CodexErrorKind.RATE_LIMIT_EXCEEDED,
)


class Attempt(RunningTask):
    """An attempt while it is made, and what came of it so far."""

    def __init__(self, run: Run, setup: Setup) -> None:
        super().__init__(run.task, setup.seconds)
        self.commit, started = run.commit, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.result = messages.Result(id=run.task.id, started_at=started, node=setup.node, meta=run.task.meta)
        self.ending: Ending = "final"
        self.thread: ThreadHandle | None = None
        self.patch, self.events = TaskPatch(), b""

    def fail(self, status: Status, error: str, ending: Ending = "final") -> None:
        self.result.status, self.result.error, self.ending = status, ResultError(error), ending


class Attempts:
    """Makes attempts, for one worker."""

    def __init__(
        self,
        setup: Setup,
        server: AppServer,
        gate: WorkerGate,
        checkouts: Checkouts,
        secrets: Mapping[str, str],
    ) -> None:
        self._setup, self._server, self._gate = setup, server, gate
        self._checkouts, self._secrets, self._clock = checkouts, secrets, anyio.current_time
        self._schema = None if setup.doing.schema is None else OutputSchema(setup.doing.schema)
        self._running: set[Attempt] = set()

    def interrupt(self) -> None:
        """Interrupt the attempts that are being made."""
        for attempt in self._running:
            attempt.stop("interrupted", "the batch was interrupted")

    async def make(self, run: Run) -> Ended:
        """Make one attempt. Raises ServerEnded."""
        attempt = Attempt(run, self._setup)
        self._running.add(attempt)
        with attempt.whole:
            try:
                await self._in_place(attempt)
            except (GitError, OSError, TimeoutError) as error:
                attempt.fail("failed", f"the task has no place to run in: {error}", "retry")
            except ServerEnded:
                raise
            except AppServerError as error:
                attempt.fail("failed", str(error))
            finally:
                self._running.remove(attempt)
        return self._ended(attempt)

    def _ended(self, attempt: Attempt) -> Ended:
        """Return what is said of an attempt, without the secrets of this process, which a provider may have quoted."""
        times = attempt.result.seconds
        times.queued = attempt.queued
        attempt.result.seconds = messages.Seconds(*(round(each, 3) for each in astuple(times)))
        said = masked_bytes(msgspec.json.encode(attempt.result), self._secrets)
        return Ended(
            result=msgspec.json.decode(said, type=messages.Result),
            ending="interrupted" if attempt.stopped == "interrupted" else attempt.ending,
            patch=masked_bytes(attempt.patch.content, self._secrets),
            events=masked_bytes(attempt.events, self._secrets),
            rollout=_rollout(attempt.thread, self._secrets, shared=self._setup.shared),
        )

    async def _in_place(self, attempt: Attempt) -> None:
        outcome, began = attempt.result, self._clock()
        async with self._checkouts.place(attempt.task, attempt.commit) as place:
            outcome.seconds.checkout = self._clock() - began
            async with self._thread(attempt, place) as thread:
                with attempt.scope:
                    attempt.start_clock()
                    await self._work(attempt, thread)
            if attempt.scope.cancelled_caught:
                status: Status = "overBudget" if attempt.stopped == "overBudget" else "timedOut"
                attempt.fail(status, attempt.why or f"it took more than {attempt.seconds:g} seconds")
            keeps = self._setup.keep == "all"
            try:
                attempt.patch = await self._checkouts.patch(place)
                outcome.files = attempt.patch.files
            except (GitError, OSError, TimeoutError) as error:
                attempt.fail("failed", f"no patch could be made, so the task's folder is kept: {error}")
                keeps = True
            if keeps or (self._setup.keep == "failed" and outcome.status != "completed"):
                await self._checkouts.keep(place)

    @asynccontextmanager
    async def _thread(self, attempt: Attempt, place: TaskPlace) -> AsyncIterator[ThreadHandle]:
        """Open the task's thread, and leave nothing of it running."""
        settings = asdict(attempt.task.settings).items()
        chosen = {name: value for name, value in settings if name != "effort" and value is not None}
        if (policy := self._setup.doing.overrides.approval_policy) is not None:
            chosen.setdefault("approval_policy", policy.value)
        options: Any = {"cwd": place.folder, "config": ALONE, **chosen}
        outcome = attempt.result

        async def decline(request: asked.ApprovalRequest) -> asked.ApprovalReply:
            outcome.declined += 1
            outcome.declined_requests = (*(outcome.declined_requests or ()), _what(request))
            return request.decline()

        attempt.thread = thread = await self._server.start_thread(on_approval=decline, **options)
        outcome.thread_id = thread.id
        with self._gate.following(thread.id, attempt):
            try:
                yield thread
            finally:
                with suppress(AppServerError), anyio.move_on_after(LEAVES_WITHIN, shield=True):
                    end = InThread(thread_id=thread.id)
                    await self._server.request(THREAD_BACKGROUND_TERMINALS_CLEAN, end)
                    await thread.close()

    async def _work(self, attempt: Attempt, thread: ThreadHandle) -> None:
        task, times = attempt.task, attempt.result.seconds
        if task.setup is not None:
            began = self._clock()
            failure = await self._failure_of("setup", task.setup, attempt, thread)
            times.setup = self._clock() - began
            if failure is not None:
                attempt.fail("failed", failure)
                return
        began = self._clock()
        try:
            result = await self._turn(attempt, thread)
        finally:
            times.turn = self._clock() - began - attempt.queued
        self._judge(result, attempt)
        if task.check is not None and result.completed:
            failure = await self._failure_of("check", task.check, attempt, thread)
            if failure is not None and attempt.result.status == "completed":
                attempt.fail("checkFailed", failure)

    async def _turn(self, attempt: Attempt, thread: ThreadHandle) -> TurnResult[None]:
        task, options = attempt.task, TurnOptions()
        if task.settings.effort is not None:
            options["effort"] = task.settings.effort
        if self._schema is not None:
            options["output_schema"] = self._schema.schema
        if self._setup.keep != "all":
            return await thread.run(task.prompt, **options)
        kept = io.StringIO()
        report = JsonReport(kept)
        report.opened(thread.opened)
        try:
            async with thread.stream(task.prompt, **options) as stream:
                async for event in stream:
                    report.event(event)
                return await stream.result()
        finally:
            attempt.events = kept.getvalue().encode("utf-8", "backslashreplace")

    def _judge(self, result: TurnResult[None], attempt: Attempt) -> None:
        outcome, error = attempt.result, result.error
        outcome.final_message = result.final_message
        if not result.completed:
            texts = (error.message, error.additional_details) if error else (f"the turn was {result.status}",)
            ending = _ending(error, attempt.refused)
            attempt.fail("failed", " ".join(filter(None, texts)), ending)
            return
        outcome.status = "completed"
        if self._schema is not None:
            mismatch = self._schema.mismatch(outcome.final_message or "")
            if mismatch is not None:
                attempt.fail("failed", mismatch)
            else:
                outcome.output = json.loads(outcome.final_message or "")

    async def _failure_of(
        self, name: str, command: tuple[str, ...], attempt: Attempt, thread: ThreadHandle
    ) -> str | None:
        """Run a command of the task in the thread's sandbox; return how it failed, None where it did not."""
        id, began = f"{thread.id}-{name}", self._clock()
        params = commands.CommandExecParams(
            command=command,
            process_id=id,
            cwd=thread.opened.cwd,
            disable_timeout=True,
            output_bytes_cap=OUTPUT_CAP,
            sandbox_policy=thread.opened.sandbox,
        )
        try:
            done = await self._server.request(commands.COMMAND_EXEC, params)
        except RequestRefused as refused:
            return f"{name} did not run: {refused.message}"
        except anyio.get_cancelled_exc_class():
            with suppress(AppServerError), anyio.move_on_after(LEAVES_WITHIN, shield=True):
                end = commands.OfCommand(process_id=id)
                await self._server.request(commands.COMMAND_EXEC_TERMINATE, end)
            raise
        if name == "check":
            attempt.result.check = messages.CheckResult(done.exit_code, round(self._clock() - began, 3))
        if done.exit_code == 0:
            return None
        printed = (done.stderr.strip() or done.stdout.strip())[-SHOWN_OUTPUT:]
        return f"{name} ended with exit code {done.exit_code}: {printed}"


def _ending(error: TurnError | None, refused: int | None) -> Ending:
    """Say what a failed turn means for its task. `refused` is the status with which the last request was refused."""
    kind = None if error is None else error.codex_error_info
    if kind in REFUSED or refused in (401, 403):
        return "refused"
    if kind is None or isinstance(kind, CodexErrorKind):
        return "retry" if kind in PASSING else "final"
    bad_request = refused is not None and 400 <= refused < 500 and refused not in (408, 429)
    return "final" if bad_request else "retry"


def _what(request: asked.ApprovalRequest) -> str:
    """Name what would have needed an approval."""
    match request:
        case asked.CommandApprovalRequest():
            return f"command: {request.command}"
        case asked.PatchApprovalRequest():
            return f"patch: {', '.join(change.path for change in request.changes)}"
        case asked.McpElicitationRequest():
            return f"MCP server: {request.message}"
        case _:
            return type(request).__name__.removesuffix("Request")


def _rollout(
    thread: ThreadHandle | None, secrets: Mapping[str, str], *, shared: bool
) -> tuple[str, bytes] | None:
    """Take secrets out of the file of a thread that has ended, too. Where the coordinator does not see the home of
    threads, return the file, by its place there.
    """
    path = Path("" if thread is None else thread.opened.thread.path or "")
    try:
        content = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None  # nothing was said in it
    masked = masked_bytes(content, secrets)
    if not shared:
        return f"sessions/{path.as_posix().rpartition('/sessions/')[2]}", masked
    if masked != content:
        write_file_atomically(path, masked, 0o600)
    return None
