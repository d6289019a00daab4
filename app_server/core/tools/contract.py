"""What a tool is, what it is given and what it may answer.

A tool that cannot do what it was asked raises `ToolFailure`; its text goes to the model and the turn goes on. Any other
exception is our bug: `runtime` logs it, tells the model that the tool failed, and the turn goes on as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Protocol

from app_server.core.approvals.broker import ApprovalBroker
from app_server.core.approvals.memory import ApprovalMemory
from app_server.core.config.types import Config
from app_server.core.exec.runner import CommandRunner
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.prompt import ToolSpec
from app_server.core.patch.turn_diff import TurnDiffTracker
from app_server.core.sandbox.roots import ConversationRoots
from app_server.core.telemetry.conversation_telemetry import NO_TELEMETRY, ConversationTelemetry
from app_server.core.tools.events import TurnEvents
from app_server.core.tools.terminals import Terminals
from protocol.engine.events import EngineEvent, Question
from protocol.events.patches import ApplyPatchApprovalRequestEvent
from protocol.policy import AskForApproval, ReviewDecision, SandboxPolicy
from protocol.records import dataclass
from protocol.responses import FunctionCallOutputPayload, ResponseItem


class ToolFailure(Exception):
    """The tool cannot do it; the message is for the model."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of the model's, whatever kind of item it came as."""

    call_id: str
    name: str
    arguments: str
    """JSON text for a function, free text for a custom tool."""
    custom: bool = False
    local_shell: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What the model is given back, and items that follow it in the history."""

    payload: FunctionCallOutputPayload
    then: tuple[ResponseItem, ...] = ()


def text_output(text: str, success: bool | None = True) -> ToolOutput:
    return ToolOutput(FunctionCallOutputPayload(content=text, success=success))


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """What holds for one turn."""

    cwd: str
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy


@dataclass(slots=True)
class ToolTurn:
    """What a tool sees of the turn that it runs in."""

    id: str
    settings: TurnSettings
    config: Config
    items: TurnEvents
    broker: ApprovalBroker
    approved: ApprovalMemory
    runner: CommandRunner
    roots: ConversationRoots
    """What the names of writable roots stand for in this conversation."""
    mcp: McpManager
    diffs: TurnDiffTracker
    store: Callable[[], Awaitable[None]]
    """Returns once everything said so far is on the disk; an approval's answer waits for it."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    new_id: Callable[[], str]
    """A random UUID as text."""
    terminals: Terminals
    """Commands of the conversation that go on between calls."""
    shell_path: str
    """The user's shell, for tools that take a line of it."""
    telemetry: ConversationTelemetry = NO_TELEMETRY
    exposed_folders: set[str] = field(default_factory=set)
    """Real directories whose files commands or repositories of this conversation may have made, in any of its turns."""
    notices: set[str] = field(default_factory=set)
    """What the client of this conversation was told and need not hear again."""

    def emit(self, event: EngineEvent) -> None:
        self.items.emit(event)

    async def ask(self, call_id: str, event: Question) -> ReviewDecision:
        """Put a question to the user. Where the answer is to abort, the turn is cancelled and this never returns."""
        decision = await self.broker.ask(call_id, self.id, lambda: self.emit(event))
        asked_by = "apply_patch" if isinstance(event, ApplyPatchApprovalRequestEvent) else "shell"
        self.decided(asked_by, call_id, decision, by_user=True)
        await self.store()
        return decision

    def decided(self, tool: str, call_id: str, decision: ReviewDecision, *, by_user: bool = False) -> None:
        """Tell telemetry whether a call may go on, and whether the user said so or the configuration."""
        self.telemetry.tool_decision(tool, call_id, decision.value, "user" if by_user else "config")


class Tool(Protocol):
    """One tool. Stateless: what a call needs comes with it."""

    name: str
    parallel: bool
    """Whether calls may run beside other calls."""

    def spec(self) -> ToolSpec: ...

    async def run(self, call: ToolCall, turn: ToolTurn) -> ToolOutput: ...


Tools = Mapping[str, Tool]
