"""One attempt at a task, over the client library.

The module runs the attempt (its folder, a thread, the commands around the turn, the turn), and returns its outcome, and
whether another attempt may succeed.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct, structs

from app_server.cli.batch import worker_messages as messages
from app_server.cli.batch.batch_tasks import Task
from app_server.cli.batch.checkout import FILE, Checkouts, TaskPlace
from app_server.cli.batch.secrets import holders_of, masked_lines, stored_result
from app_server.cli.batch.worker_messages import CheckResult, Ended, Ending, ResultError, Setup, Status
from app_server.cli.exec.exec_report import NotificationReport
from app_server.cli.exec.output_schema import OutputSchema
from app_server.client import approval_requests as asked
from app_server.client.app_server import AppServer
from app_server.client.failures import AppServerError, RequestRefused, ServerEnded
from app_server.client.options import TurnOptions
from app_server.client.thread_handle import ThreadHandle
from app_server.client.turn_handle import TurnResult
from app_server.engine.config.safe_file import write_file_atomically
from app_server.engine.support.engine_errors import GitError
from app_server_protocol.encoding import Json
from app_server_protocol.v2 import commands
from app_server_protocol.v2.fields import InThread
from app_server_protocol.v2.items import CommandExecutionThreadItem, FileChangeThreadItem, ThreadItem
from app_server_protocol.v2.server import CodexErrorKind, TurnError
from app_server_protocol.v2.thread_work import THREAD_BACKGROUND_TERMINALS_CLEAN

log = logging.getLogger(__name__)

OUTPUT_CAP: Final = 1 << 16
SHOWN_OUTPUT: Final = 600
"""Maximum length of a command's output in an error, in characters."""
LEAVES_WITHIN: Final = 5.0
"""Timeout for ending a thread's commands that continue, in seconds."""
ALONE: Final[dict[str, Json]] = {
    "sandbox_workspace_write.exclude_slash_tmp": True,
    "sandbox_workspace_write.exclude_tmpdir_env_var": True,
}
"""Settings that give commands a temporary folder of their own: in the machine's they would meet other tasks."""
NEVER_UNDONE: Final[dict[str, Json]] = {"features.ghost_commit": False}
"""Settings that turn off snapshots for undoing, in a folder that is used by one task alone: its changes are returned as
a patch.
"""

KNOWN_TO_BE_STORABLE: Final = (
    "id",
    "status",
    "error",
    "started_at",
    "node",
    "seconds",
    "thread_id",
    "declined",
)
"""Fields of a result that can always be stored. They are kept if the texts of its other fields cannot be stored."""

REFUSED: Final = (CodexErrorKind.UNAUTHORIZED, CodexErrorKind.USAGE_LIMIT_EXCEEDED)
"""Errors that every task would get."""
PASSING: Final = (
    CodexErrorKind.INTERNAL_SERVER_ERROR,
    CodexErrorKind.SERVER_OVERLOADED,
    CodexErrorKind.RATE_LIMIT_EXCEEDED,
)


class RunningTask:
    """One attempt while it runs: its clock, its usage, and the reason why it has to end."""

    def __init__(self, task: Task, seconds: float) -> None:
        self.task, self.seconds = task, task.budget.seconds or seconds
        self.whole, self.scope = anyio.CancelScope(), anyio.CancelScope()
        """Two cancel scopes: of the attempt, to interrupt it; and of its work, without the comparison of its folder."""
        self.passes = anyio.Event()
        """Event that is set when the waiting request may be sent; there is a new one for each request."""
        self.used_up = ""
        """Reason of the end, if a budget is used up. Otherwise empty."""
        self.reached = False
        """Whether a request was sent."""
        self.requests = self.tokens = 0
        """Usage that counts for the task's budget. Requests that a provider refused temporarily do not count."""
        self.refused: int | None = None
        """Status with which the provider refused the last request. None if it did not."""
        self.queued = 0.0

    def end(self, used_up: str) -> None:
        """End it because a budget is used up; the first reason counts."""
        self.used_up = self.used_up or used_up
        self.scope.cancel()

    def answer(self, *, never: bool) -> None:
        """Apply the coordinator's answer to the waiting request."""
        if never:
            self.end("a budget of the whole batch is used up")
        else:
            self.passes.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Stop the clock while the block runs."""
        since, deadline = anyio.current_time(), self.scope.deadline
        self.scope.deadline = float("inf")
        try:
            yield
        finally:
            waited = anyio.current_time() - since
            self.queued += waited
            self.scope.deadline = deadline + waited

    def over_budget(self) -> bool:
        """End it if the task's own budget is used up. Return whether a budget is used up."""
        budget = self.task.budget
        for name, used, most in (
            ("requests", self.requests, budget.requests),
            ("tokens", self.tokens, budget.tokens),
        ):
            if most is not None and used >= most:
                self.end(f"the task's budget of {most} {name} is used up")
        return bool(self.used_up)


class WorkerParts(Struct, frozen=True):
    """Objects of a worker that all its attempts use."""

    setup: Setup
    server: AppServer
    running: dict[str, RunningTask]
    """Running tasks by thread id, to find the task of a request."""
    checkouts: Checkouts
    secrets: Mapping[str, str]
    """Values that are replaced in all texts about a task, by what holds them."""
    credentials: Mapping[str, str]
    """Values that no patch may contain, by what holds them: patches are not changed."""
    schema: OutputSchema | None


class Attempt(RunningTask):
    """An attempt while it is made, with its outcome so far."""

    def __init__(self, task: Task, parts: WorkerParts) -> None:
        super().__init__(task, parts.setup.seconds)
        self._parts = parts
        self._result = messages.Result(
            id=task.id,
            started_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            node=parts.setup.node,
            meta=task.meta,
        )
        self._ending: Ending = "final"
        self._rollout, self._patch, self._events = Path(), b"", io.StringIO()
        self._asked: set[str] = set()
        """Ids of the items for which an approval was requested."""

    async def make(self) -> Ended:
        """Make the attempt and return its outcome, without the secrets of this process, which a provider may have
        quoted. An error in it ends no other attempt. Raises ServerEnded.
        """
        with self.whole:
            try:
                await self._in_place()
            except (GitError, OSError, TimeoutError) as error:
                self._fail("failed", f"the task has no place to run in: {error}", "retry")
            except ServerEnded:
                raise
            except AppServerError as error:
                self._fail("failed", str(error))
            except Exception as error:
                self._fail_unforeseen(error)
        times = self._result.seconds
        times.queued, times.turn = self.queued, max(times.turn - self.queued, 0.0)
        self._result.seconds = messages.Seconds(*(round(each, 3) for each in structs.astuple(times)))
        try:
            return self._ended(stored_result(self._result, self._parts.secrets))
        except Exception as error:
            self._fail_unforeseen(error)
            result = messages.Result(**{name: getattr(self._result, name) for name in KNOWN_TO_BE_STORABLE})
            return Ended(result=result, ending=self._ending_now())

    def _ended(self, result: messages.Result) -> Ended:
        events = self._events.getvalue().encode("utf-8", "backslashreplace")
        return Ended(
            result=result,
            ending=self._ending_now(),
            patch=self._patch,
            events=masked_lines(events, self._parts.secrets),
            rollout=_masked_rollout(self._rollout, self._parts),
        )

    def _ending_now(self) -> Ending:
        return "interrupted" if self.whole.cancel_called else self._ending

    def _fail_unforeseen(self, error: Exception) -> None:
        log.exception("an attempt at the task %r failed", self.task.id)
        self._fail("failed", f"the attempt failed: {messages.storable(repr(error))}")

    def _fail(self, status: Status, error: str, ending: Ending = "final") -> None:
        self._result.status, self._result.error, self._ending = status, ResultError(error), ending

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        began = anyio.current_time()
        try:
            yield
        finally:
            setattr(self._result.seconds, part, anyio.current_time() - began)

    async def _in_place(self) -> None:
        checkouts, keep, began = self._parts.checkouts, self._parts.setup.keep, anyio.current_time()
        async with checkouts.place(self.task) as place:
            self._result.seconds.checkout = anyio.current_time() - began
            async with self._thread(place) as thread:
                with self.scope:
                    self.scope.deadline = anyio.current_time() + self.seconds
                    await self._work(thread)
            if self.scope.cancelled_caught:
                status: Status = "overBudget" if self.used_up else "timedOut"
                self._fail(status, self.used_up or f"it took more than {self.seconds:g} seconds")
            try:
                self._patch = await checkouts.patch(place)
                self._result.files = len(FILE.findall(self._patch))
            except (GitError, OSError, TimeoutError) as error:
                self._fail("failed", f"no patch could be made, so the task's folder is kept: {error}")
                keep = "all"
            if holders := holders_of(self._patch, self._parts.credentials):
                why = f"the patch has the value of {holders[0]} in it, so it is not stored; the task's folder is kept"
                self._patch, keep = b"", "all"
                self._fail("failed", why)
            if keep == "all" or (keep == "failed" and self._result.status != "completed"):
                await checkouts.keep(place, self.task)

    @asynccontextmanager
    async def _thread(self, place: TaskPlace) -> AsyncIterator[ThreadHandle]:
        """Open the task's thread. At the end, close it and end its commands."""
        server, result = self._parts.server, self._result
        settings = structs.asdict(self.task.settings).items()
        chosen = {name: value for name, value in settings if name != "effort" and value is not None}
        config = ALONE | NEVER_UNDONE if place.own else ALONE
        options: Any = {"cwd": place.folder, "config": config, **chosen}

        async def decline(request: asked.ApprovalRequest) -> asked.ApprovalReply:
            result.declined += 1
            self._asked.add(getattr(request.params, "item_id", ""))
            result.declined_requests = (*(result.declined_requests or ()), _what(request))
            return request.decline()

        thread = await server.start_thread(on_approval=decline, **options)
        result.thread_id, self._rollout = thread.id, Path(thread.opened.thread.path or "")
        self._parts.running[thread.id] = self
        try:
            yield thread
        finally:
            with suppress(AppServerError), anyio.move_on_after(LEAVES_WITHIN, shield=True):
                await server.request(THREAD_BACKGROUND_TERMINALS_CLEAN, InThread(thread_id=thread.id))
                await thread.close()
            del self._parts.running[thread.id]

    async def _work(self, thread: ThreadHandle) -> None:
        if self.task.setup is not None:
            with self._timed("setup"):
                failure = await self._failure_of("setup", self.task.setup, thread)
            if failure is not None:
                self._fail("failed", failure)
                return
        with self._timed("turn"):
            turn = await self._turn(thread)
        self._count_declined(turn)
        await self._judge(turn)
        if self.task.check is not None and turn.completed:
            failure = await self._failure_of("check", self.task.check, thread)
            if failure is not None and self._result.status == "completed":
                self._fail("checkFailed", failure)

    async def _turn(self, thread: ThreadHandle) -> TurnResult[None]:
        task, options = self.task, TurnOptions()
        if task.settings.effort is not None:
            options["effort"] = task.settings.effort
        if self._parts.schema is not None:
            options["output_schema"] = self._parts.schema.schema
        if self._parts.setup.keep != "all":
            return await thread.run(task.prompt, **options)
        report = NotificationReport(self._events)
        report.opened(thread.opened)
        async with thread.stream(task.prompt, **options) as stream:
            async for event in stream:
                report.event(event)
            return await stream.result()

    def _count_declined(self, turn: TurnResult[None]) -> None:
        """Count items that were declined without a question, too: if nobody is asked, the server declines by itself."""
        declined = [item for item in turn.items if getattr(item, "status", None) == "declined"]
        unasked = [item for item in declined if item.id not in self._asked]
        self._result.declined += len(unasked)
        if unasked:
            before = self._result.declined_requests or ()
            self._result.declined_requests = (*before, *map(_what_item, unasked))

    async def _judge(self, turn: TurnResult[None]) -> None:
        error, schema = turn.error, self._parts.schema
        message = turn.final_message or ""
        self._result.status, self._result.final_message = "completed", turn.final_message
        if not turn.completed:
            texts = (error.message, error.additional_details) if error else (f"the turn was {turn.status}",)
            self._fail("failed", " ".join(filter(None, texts)), _ending(error, self.refused))
        elif schema is not None and (mismatch := await schema.mismatch(message)) is not None:
            self._fail("failed", mismatch)
        elif schema is not None:
            self._result.output = json.loads(message)

    async def _failure_of(self, name: str, command: tuple[str, ...], thread: ThreadHandle) -> str | None:
        """Run a command of the task in the thread's sandbox. Return the text of its failure, or None."""
        server, id, began = self._parts.server, f"{thread.id}-{name}", anyio.current_time()
        params = commands.CommandExecParams(
            command=command,
            process_id=id,
            cwd=thread.opened.cwd,
            disable_timeout=True,
            output_bytes_cap=OUTPUT_CAP,
            sandbox_policy=thread.opened.sandbox,
        )
        try:
            done = await server.request(commands.COMMAND_EXEC, params)
        except RequestRefused as refused:
            return f"{name} did not run: {refused.message}"
        except anyio.get_cancelled_exc_class():
            with suppress(AppServerError), anyio.move_on_after(LEAVES_WITHIN, shield=True):
                await server.request(commands.COMMAND_EXEC_TERMINATE, commands.OfCommand(process_id=id))
            raise
        if name == "check":
            self._result.check = CheckResult(done.exit_code, round(anyio.current_time() - began, 3))
        if done.exit_code == 0:
            return None
        printed = (done.stderr.strip() or done.stdout.strip())[-SHOWN_OUTPUT:]
        return f"{name} ended with exit code {done.exit_code}: {printed}"


def _masked_rollout(rollout: Path, parts: WorkerParts) -> tuple[str, bytes] | None:
    """Mask secrets in the rollout file of a thread that has ended. If the coordinator does not see the home of threads,
    return the file's place there, and its content.
    """
    try:
        content = rollout.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None  # the thread has no messages
    masked = masked_lines(content, parts.secrets)
    if not parts.setup.shared:
        return f"sessions/{rollout.as_posix().rpartition('/sessions/')[2]}", masked
    if masked != content:
        write_file_atomically(rollout, masked, 0o600)
    return None


def _ending(error: TurnError | None, refused: int | None) -> Ending:
    """Return the meaning of a failed turn for its task. `refused` is the status with which the last request was
    refused.
    """
    kind = None if error is None else error.codex_error_info
    if kind in REFUSED or refused in (401, 403):
        return "refused"
    if kind is None or isinstance(kind, CodexErrorKind):
        return "retry" if kind in PASSING else "final"
    bad_request = refused is not None and 400 <= refused < 500 and refused not in (408, 429)
    return "final" if bad_request else "retry"


def _what_item(item: ThreadItem) -> str:
    """Return a description of the declined item, in the form of `_what`."""
    match item:
        case CommandExecutionThreadItem():
            return f"command: {item.command}"
        case FileChangeThreadItem():
            return f"patch: {', '.join(change.path for change in item.changes)}"
        case _:
            return type(item).__name__.removesuffix("ThreadItem")


def _what(request: asked.ApprovalRequest) -> str:
    """Return a description of the request that needed an approval."""
    match request:
        case asked.CommandApprovalRequest():
            return f"command: {request.command}"
        case asked.PatchApprovalRequest():
            return f"patch: {', '.join(change.path for change in request.changes)}"
        case asked.McpElicitationRequest():
            return f"MCP server: {request.message}"
        case _:
            return type(request).__name__.removesuffix("Request")
