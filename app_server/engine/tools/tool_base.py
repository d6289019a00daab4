"""The interface of a tool: its calls, its output and the services that it may use.

A tool raises `ToolFailure` if it cannot serve a call; `runtime` sends the text to the model and the turn continues. Any
other exception is a bug: `runtime` logs it, reports a failure to the model, and the turn continues as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec import Struct

from app_server.engine.approvals.broker import ApprovalAnswer, ApprovalBroker, PendingAnswers
from app_server.engine.approvals.consent import ApprovalMemory
from app_server.engine.approvals.exec_policy import ExecPolicy
from app_server.engine.client_context import ActiveClient
from app_server.engine.config.client_limits import temporary_folder
from app_server.engine.config.config_values import Config
from app_server.engine.config.file_rules import MayRead, reads_all
from app_server.engine.context.text_for_model import STANDARD_OUTPUT, OutputLimit
from app_server.engine.hooks.turn_hooks import NO_TURN_HOOKS, TurnHooks
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.model.prompt import ToolSpec
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.plan import RootOptions, SandboxPlan
from app_server.engine.sandbox.roots import ConversationRoots
from app_server.engine.session.goals import GoalState
from app_server.engine.telemetry.telemetry_events import NO_TELEMETRY, ConversationTelemetry
from app_server.engine.tools.terminals import Terminals
from app_server.engine.tools.tool_events import TurnEvents
from app_server.engine.workspace.patch import changes
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EngineEvent
from app_server_protocol.engine.questions import (
    McpCallDecision,
    PatchApprovalQuestion,
    Question,
    ToolCallAnswer,
    UserInputAnswer,
)
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.policy import PermissionProfile, ReviewDecision, SandboxPolicy
from app_server_protocol.responses import FunctionCallOutputPayload, ResponseItem

if TYPE_CHECKING:
    from app_server.engine.workspace.patch.planner import PatchPlan

TurnDiff = Callable[[Sequence["PatchPlan"], str | None, str | None], str | None]


class TurnDiffTracker:
    """The diff of one turn's patches. Callers call `record` before they write a patch."""

    def __init__(self, home: str | None = None, base: str | None = None) -> None:
        """`home` and `base` are those of `changes.turn_diff`."""
        self._home, self._base = home, base
        self._plans: list[PatchPlan] = []
        self.touched = False
        """Whether any patch was recorded; without one there is no diff to compute."""

    def record(self, plan: PatchPlan) -> None:
        """Record a patch that is about to be written."""
        self._plans.append(plan)
        self.touched = True

    def unified_diff(self) -> str | None:
        """Compare the files of all patches with the disk; return None if nothing differs. Blocks while it reads."""
        return changes.turn_diff(self._plans, self._home, self._base) if self._plans else None


SHELL_TOOLS: Final = frozenset({"shell", "container.exec", "local_shell", "exec_command", "shell_command"})
"""Names of the tools that run a command line: hooks know their calls as `Bash`, and an interrupted call is reported as
an interrupted command.
"""
COARSE_NS: Final = 20_000_000
"""Tolerance at the begin of a span, in nanoseconds: the file system's clock is coarse, so a file's modification time
may be earlier than the change.
"""
MOST_SPANS: Final = 1000


class EditorFiles(Protocol):
    """The files in the client's editor. Calls may finish in any order, and may never finish."""

    async def read(self, path: str) -> str | None:
        """Return the text of a file as the editor has it; None if the editor does not report it."""
        ...

    async def write(self, path: str, text: str) -> bool:
        """Put a text into the editor and save it. Return False if that failed."""
        ...


class DiskChanges:
    """The time spans in which commands and patches of a conversation changed files.

    The editor's text of a file that changed within such a span may be out of date.
    """

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` returns nanoseconds since 1970, the unit of files' modification times."""
        self._now_ns = now_ns
        self._spans: list[tuple[int, int]] = []
        self._since: int | None = None
        """Begin of an unbounded span: a command runs, or has run, whose end is not known. None if there is none."""

    @contextmanager
    def span(self) -> Iterator[None]:
        begin = self._now_ns() - COARSE_NS
        try:
            yield
        finally:
            self._spans.append((begin, self._now_ns()))
            if len(self._spans) > MOST_SPANS:
                first, second, *rest = self._spans
                self._spans = [(first[0], second[1]), *rest]

    def open_end(self) -> None:
        """Record that from now on commands may change any file at any time."""
        if self._since is None:
            self._since = self._now_ns() - COARSE_NS

    def cover(self, changed_ns: int) -> bool:
        if self._since is not None and changed_ns >= self._since:
            return True
        return any(begin <= changed_ns <= end for begin, end in self._spans)


class EditorAccess(Struct, frozen=True):
    """Access of one conversation to the editor."""

    files: EditorFiles
    changes: DiskChanges


class ChangeLog:
    """Records what changes files in a turn. This one records nothing."""

    def command(self, *, lasts: bool = False) -> AbstractAsyncContextManager[None]:
        """Return the context in which a command runs. `lasts`: it may run on afterwards."""
        return nullcontext()

    def patch(self, plan: PatchPlan) -> AbstractAsyncContextManager[None]:
        """Return the context in which a patch is written."""
        return nullcontext()


NOT_RECORDED: Final = ChangeLog()

ClientQuestions = PendingAnswers[str, ToolCallAnswer | UserInputAnswer | McpCallDecision | None]


class ToolFailure(Exception):
    """The tool cannot serve the call; the message is sent to the model."""

    is_denial = False
    """Whether hooks answered the question about the call with no."""


class HookWord(Struct, frozen=True):
    """Word of hooks about a call that they did not deny."""

    asks: str | None = None
    """Reason of a question that is due because of hooks; None if none is."""
    approves: bool = False
    """Whether it answers the question about this call with yes. What a policy or a rule forbids stays forbidden."""


NO_WORD: Final = HookWord()


class HookedCall(Struct, frozen=True):
    """A call in the words of hooks."""

    name: str
    names: tuple[str, ...]
    """Names that matchers are held against."""
    input: Json
    call_id: str = ""


class ToolCall(Struct, frozen=True):
    """One tool call of the model, independent of the kind of response item."""

    call_id: str
    name: str
    arguments: str
    """JSON text of a function call, or free text of a custom tool call."""
    custom: bool = False
    local_shell: bool = False
    word: HookWord = NO_WORD


class ToolOutput(Struct, frozen=True):
    """The output for the model, and items that follow it in the history."""

    payload: FunctionCallOutputPayload
    followup_items: tuple[ResponseItem, ...] = ()
    response: Json = None
    """The result as hooks are told it; None if it is the text for the model."""


def text_output(text: str, success: bool | None = True) -> ToolOutput:
    return ToolOutput(FunctionCallOutputPayload(content=text, success=success))


class CommandServices(Struct):
    """Services by which tools run commands and write patches. All turns of a conversation share them."""

    runner: CommandRunner
    roots: ConversationRoots
    """The real paths of writable roots in this conversation."""
    terminals: Terminals
    """Commands of the conversation that keep running between calls."""
    shell_path: str
    """The user's shell, for tools that take a shell line."""
    caller: ActiveClient
    """The client in whose environment commands run."""
    shown_once: set[str] = msgspec.field(default_factory=set)
    """Keys of warnings that this conversation has emitted; each is emitted once."""
    exposed_folders: set[str] = msgspec.field(default_factory=set)
    """Real directories in which commands or repositories of this conversation may have created files, in any turn."""
    editor: EditorAccess | None = None
    """Access to the files that the client's editor has open. None if the client does not let the server read and write
    them.
    """

    def may_read(self, policy: SandboxPolicy, cwd: str) -> MayRead:
        """Return the check of what commands may read under a policy. All reads of the server for the model obey it too.
        Reads the disk.
        """
        if not isinstance(policy, PermissionProfile):
            return reads_all
        plan = self.runner.plan(policy, cwd, self.roots)
        return reads_all if plan is None else plan.view.may_read


class ApprovalServices(Struct, frozen=True):
    """Services by which tools request approvals. All turns of a conversation share them."""

    broker: ApprovalBroker
    remembered: ApprovalMemory
    flush: Callable[[], Awaitable[None]]
    """Function that returns once all events emitted so far are stored; a decision takes effect only after that."""
    rules: ExecPolicy = msgspec.field(default_factory=ExecPolicy)
    questions: ClientQuestions = msgspec.field(default_factory=PendingAnswers)
    """Pending questions of tools to the client, by call id."""


class ClockAndIds(Struct, frozen=True, kw_only=True):
    clock: Callable[[], float]
    """Monotonic clock, in seconds."""
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    """Generator of random UUIDs as text."""
    new_turn_id: Callable[[], str]
    """Generator of UUIDv7 identifiers as text."""
    wall_clock: Callable[[], float]
    """Wall clock, in seconds since 1970."""


class Strictness(Struct, frozen=True):
    """Optional checks, which are off for clients of an older API."""

    pictures: bool = True
    """Whether an image with a wrong checksum is treated as broken."""
    silent_tools: bool = True
    """Whether MCP tools without hints fail if the approval policy asks nobody."""


STRICT: Final = Strictness()


class ToolContext(Struct, eq=False):
    """Parts of its turn that a tool can use."""

    id: str
    settings: ThreadSettings
    config: Config
    items: TurnEvents
    commands: CommandServices
    approvals: ApprovalServices
    mcp: McpManager
    diffs: TurnDiffTracker
    sources: ClockAndIds
    telemetry: ConversationTelemetry = NO_TELEMETRY
    goals: GoalState | None = None
    """Access to the goal of the thread, in turns of APIs that have goals. None in other turns."""
    output_limit: OutputLimit = STANDARD_OUTPUT
    strictness: Strictness = STRICT
    changes: ChangeLog = NOT_RECORDED
    hooks: TurnHooks = NO_TURN_HOOKS
    hooked: dict[str, HookedCall] = msgspec.field(default_factory=dict)
    """Running calls in the words of hooks, by call id; empty in a turn without hooks."""

    def emit(self, event: EngineEvent) -> None:
        self.items.emit(event)

    @property
    def root_options(self) -> RootOptions:
        tmpdir = temporary_folder(self.config.fence, self.commands.caller.environment)
        return RootOptions(tmpdir, self.config.permissions.protected_folders)

    def plan(self) -> SandboxPlan | None:
        """Return the sandbox plan of the turn's policy; None for full access. Reads the disk."""
        settings, commands = self.settings, self.commands
        return commands.runner.plan(settings.sandbox_policy, settings.cwd, commands.roots, self.root_options)

    def approved_plan(self) -> SandboxPlan | None:
        """Return the plan of a command that the user allowed to run without the sandbox.

        It is None unless the turn's policy hides files. Reads the disk.
        """
        settings, commands = self.settings, self.commands
        return commands.runner.approved_plan(
            settings.sandbox_policy, settings.cwd, commands.roots, self.root_options
        )

    async def request_approval(self, call_id: str, event: Question) -> ApprovalAnswer:
        """Ask the user. If the decision is to abort, the turn is cancelled and this never returns."""
        answer = await self.approvals.broker.request_decision(call_id, self.id, lambda: self.emit(event))
        tool = "apply_patch" if isinstance(event, PatchApprovalQuestion) else "shell"
        self.report_decision(tool, call_id, answer.decision, by_user=True)
        await self.approvals.flush()
        return answer

    def report_decision(
        self, tool: str, call_id: str, decision: ReviewDecision, *, by_user: bool = False
    ) -> None:
        """Report to telemetry whether a call may run, and whether the user or the configuration decided."""
        self.telemetry.tool_decision(tool, call_id, decision.value, "user" if by_user else "config")


class Tool(Protocol):
    """One tool. It has no state: each call carries its turn."""

    @property
    def name(self) -> str: ...
    @property
    def parallel(self) -> bool:
        """Whether its calls may run concurrently with other calls."""
        ...

    def spec(self) -> ToolSpec: ...

    async def invoke(self, call: ToolCall, turn: ToolContext) -> ToolOutput: ...


Tools = Mapping[str, Tool]
