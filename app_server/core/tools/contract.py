"""The interface of a tool: its calls, its output and the services that it may use.

A tool raises `ToolFailure` if it cannot serve a call; `runtime` sends the text to the model and the turn continues. Any
other exception is a bug: `runtime` logs it, reports a failure to the model, and the turn continues as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from msgspec import Struct

from app_server.core.approvals.broker import ApprovalAnswer, ApprovalBroker, PendingAnswers
from app_server.core.approvals.consent import ApprovalMemory
from app_server.core.approvals.rule_book import RuleBook
from app_server.core.caller import CurrentCaller
from app_server.core.config.fence import temporary_folder
from app_server.core.config.types import Config
from app_server.core.context.text_for_model import STANDARD_OUTPUT, OutputLimit
from app_server.core.exec.runner import CommandRunner
from app_server.core.file_rules import MayRead, reads_all
from app_server.core.goals import GoalKeeper
from app_server.core.lazy import Lazy
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.prompt import ToolSpec
from app_server.core.sandbox.plan import SandboxPlan
from app_server.core.sandbox.roots import ConversationRoots
from app_server.core.telemetry.telemetry_events import NO_TELEMETRY, ConversationTelemetry
from app_server.core.tools.events import TurnEvents
from app_server.core.tools.terminals import Terminals
from app_server_protocol.engine.events import EngineEvent, Question
from app_server_protocol.engine.questions import McpCallDecision, ToolCallAnswer, UserInputAnswer
from app_server_protocol.engine.settings import Settings
from app_server_protocol.events.commands import ApplyPatchApprovalRequestEvent
from app_server_protocol.policy import PermissionProfile, ReviewDecision, SandboxPolicy
from app_server_protocol.responses import FunctionCallOutputPayload, ResponseItem

if TYPE_CHECKING:
    from app_server.core.patch.planner import PatchPlan

TurnDiff = Callable[[Sequence["PatchPlan"], str | None, str | None], str | None]

_TURN_DIFF: Lazy[TurnDiff] = Lazy(lambda: import_module("app_server.core.patch.changes").turn_diff)


class TurnDiffTracker:
    """One per turn. Call `record` before a patch is written."""

    def __init__(self, home: str | None = None, base: str | None = None) -> None:
        """`home` and `base` as in `changes.turn_diff`."""
        self._home, self._base = home, base
        self._plans: list[PatchPlan] = []

    @property
    def touched(self) -> bool:
        """Whether any patch was recorded; without one there is no diff to compute."""
        return bool(self._plans)

    def record(self, plan: PatchPlan) -> None:
        """Note a patch that is about to be written."""
        self._plans.append(plan)

    def unified_diff(self) -> str | None:
        """Compare the files of all patches with the disk; None where nothing differs. Blocks while it reads."""
        return _TURN_DIFF.get()(self._plans, self._home, self._base) if self._plans else None


COARSE_NS: Final = 20_000_000
"""So much earlier than it was may the time of a file's change be, for the system's clock of files is coarse."""
MOST_SPANS: Final = 1000


class EditorFiles(Protocol):
    """The client's editor. Both answer in any order, and may never answer."""

    async def read(self, path: str) -> str | None:
        """Return the text of a file as the editor has it; None where it does not say."""
        ...

    async def write(self, path: str, text: str) -> bool:
        """Put a text into the editor and save it; False where that failed."""
        ...


class DiskChanges:
    """When commands and patches of a conversation changed files: what the editor shows of those may be old."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` gives nanoseconds since 1970, as times of files are."""
        self._now_ns = now_ns
        self._spans: list[tuple[int, int]] = []
        self._since: int | None = None
        """A command runs, or has run, whose end is not known."""

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
        """Note that from now on any file may be changed at any time."""
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


ClientQuestions = PendingAnswers[str, ToolCallAnswer | UserInputAnswer | McpCallDecision | None]


class ToolFailure(Exception):
    """The tool cannot serve the call; the message is for the model."""


class ToolCall(Struct, frozen=True):
    """One tool call of the model, independent of the kind of response item."""

    call_id: str
    name: str
    arguments: str
    """JSON text for a function, free text for a custom tool."""
    custom: bool = False
    local_shell: bool = False


class ToolOutput(Struct, frozen=True):
    """The output for the model, and items that follow it in the history."""

    payload: FunctionCallOutputPayload
    followup_items: tuple[ResponseItem, ...] = ()


def text_output(text: str, success: bool | None = True) -> ToolOutput:
    return ToolOutput(FunctionCallOutputPayload(content=text, success=success))


class CommandServices(Struct):
    """Services by which tools run commands and write patches; the same for all turns of a conversation."""

    runner: CommandRunner
    roots: ConversationRoots
    """The real paths of writable roots in this conversation."""
    terminals: Terminals
    """Commands of the conversation that keep running between calls."""
    shell_path: str
    """The user's shell, for tools that take a shell line."""
    caller: CurrentCaller
    """The client in whose environment commands run."""
    shown_once: set[str] = msgspec.field(default_factory=set)
    """Warnings that this conversation has emitted; each is emitted once."""
    exposed_folders: set[str] = msgspec.field(default_factory=set)
    """Real directories in which commands or repositories of this conversation may have created files, in any turn."""
    editor: EditorAccess | None = None
    """The files that the client's editor has open, where it lets us read and write them."""

    def may_read(self, policy: SandboxPolicy, cwd: str) -> MayRead:
        """Return what commands may read under a policy: whatever the server reads for the model obeys the same rules.
        Reads the disk.
        """
        if not isinstance(policy, PermissionProfile):
            return reads_all
        plan = self.runner.plan(policy, cwd, self.roots)
        return reads_all if plan is None else plan.view.may_read


class ApprovalServices(Struct, frozen=True):
    """Services by which tools request approvals; the same for all turns of a conversation."""

    broker: ApprovalBroker
    remembered: ApprovalMemory
    store: Callable[[], Awaitable[None]]
    """Returns once all events emitted so far are stored; a decision takes effect only after that."""
    rules: RuleBook = msgspec.field(default_factory=RuleBook)
    questions: ClientQuestions = msgspec.field(default_factory=PendingAnswers)
    """Of tools, to the client; by call id."""


class ClockAndIds(Struct, frozen=True, kw_only=True):
    clock: Callable[[], float]
    """Monotonic seconds."""
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    """A random UUID as text."""
    new_turn_id: Callable[[], str]
    """A UUIDv7 as text."""
    wall_clock: Callable[[], float]
    """Seconds since 1970."""


class Strictness(Struct, frozen=True):
    """Checks that clients of an older API do without."""

    pictures: bool = True
    """Whether a picture with a wrong checksum is a broken one."""
    silent_tools: bool = True
    """Whether MCP tools that give no hints fail where nobody is asked."""


STRICT: Final = Strictness()


class ToolTurn(Struct, eq=False):
    """Parts of its turn that a tool can use."""

    id: str
    settings: Settings
    config: Config
    items: TurnEvents
    commands: CommandServices
    approvals: ApprovalServices
    mcp: McpManager
    diffs: TurnDiffTracker
    sources: ClockAndIds
    telemetry: ConversationTelemetry = NO_TELEMETRY
    goals: GoalKeeper | None = None
    """Set in turns of APIs that know goals."""
    output_limit: OutputLimit = STANDARD_OUTPUT
    strictness: Strictness = STRICT

    def emit(self, event: EngineEvent) -> None:
        self.items.emit(event)

    def plan(self) -> SandboxPlan | None:
        """Make the sandbox plan of the turn's policy; None for full access. Reads the disk."""
        settings, commands = self.settings, self.commands
        tmpdir = temporary_folder(self.config.fence, commands.caller.environment)
        return commands.runner.plan(settings.sandbox_policy, settings.cwd, commands.roots, tmpdir=tmpdir)

    def approved_plan(self) -> SandboxPlan | None:
        """Make the plan of a command that the user allowed to run without the sandbox: None, unless the turn's policy
        hides files. Reads the disk.
        """
        settings, commands = self.settings, self.commands
        tmpdir = temporary_folder(self.config.fence, commands.caller.environment)
        return commands.runner.approved_plan(
            settings.sandbox_policy, settings.cwd, commands.roots, tmpdir=tmpdir
        )

    async def request_approval(self, call_id: str, event: Question) -> ApprovalAnswer:
        """Ask the user. If the decision is to abort, the turn is cancelled and this never returns."""
        answer = await self.approvals.broker.request_decision(call_id, self.id, lambda: self.emit(event))
        tool = "apply_patch" if isinstance(event, ApplyPatchApprovalRequestEvent) else "shell"
        self.report_decision(tool, call_id, answer.decision, by_user=True)
        await self.approvals.store()
        return answer

    def report_decision(
        self, tool: str, call_id: str, decision: ReviewDecision, *, by_user: bool = False
    ) -> None:
        """Report to telemetry whether a call may run, and whether the user or the configuration decided."""
        self.telemetry.tool_decision(tool, call_id, decision.value, "user" if by_user else "config")


class Tool(Protocol):
    """One tool. Stateless: each call brings its turn."""

    @property
    def name(self) -> str: ...
    @property
    def parallel(self) -> bool:
        """Whether its calls may run concurrently with other calls."""
        ...

    def spec(self) -> ToolSpec: ...

    async def invoke(self, call: ToolCall, turn: ToolTurn) -> ToolOutput: ...


Tools = Mapping[str, Tool]
