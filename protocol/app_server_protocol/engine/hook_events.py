"""The events at which hooks run, and where a hook comes from. Words of hook files, of settings and of each API."""

from __future__ import annotations

from enum import Flag, StrEnum, auto


class HookRole(Flag):
    """Roles of the hooks of an event: what they may do, and how they run."""

    TOLD = 0
    """The hooks are only told of the event."""
    GUARDS = auto()
    """The hooks decide whether something happens. What a failure of one means is a setting: `hooks.on_failure`."""
    BLOCKS = auto()
    """The hooks can block."""
    ENDS_TURN = auto()
    ADDS_CONTEXT = auto()
    """The hooks can add context. A limit for it in other hooks means nothing, and is not in the digest."""
    TEXT_IS_CONTEXT = auto()
    """The plain text that a hook prints is context."""
    UNMATCHED = auto()
    """The event has no matcher: all its hooks run."""
    SHORT = auto()
    """Nothing waits for the hooks for long: the thread or its turn is over."""
    OF_THREAD = auto()
    """The event concerns the thread as a whole, and not a turn of it."""


_CAN_BLOCK = HookRole.BLOCKS | HookRole.ENDS_TURN
_CAN_ADD = HookRole.ENDS_TURN | HookRole.ADDS_CONTEXT
_TEXT = _CAN_ADD | HookRole.TEXT_IS_CONTEXT


class HookEvent(StrEnum):
    """A moment of a thread at which hooks run: its name in hook files, which is the value, and the roles of its hooks.
    A member without roles cannot be made: whether its hooks guard something is decided here.
    """

    PRE_MODEL_REQUEST = "PreModelRequest", HookRole.UNMATCHED
    POST_MODEL_REQUEST = "PostModelRequest", HookRole.UNMATCHED
    PRE_TOOL_USE = "PreToolUse", HookRole.GUARDS | _CAN_BLOCK | _CAN_ADD
    PERMISSION_REQUEST = "PermissionRequest", HookRole.GUARDS | _CAN_BLOCK
    POST_TOOL_USE = "PostToolUse", _CAN_BLOCK | _CAN_ADD
    PRE_COMPACT = "PreCompact", _CAN_BLOCK
    POST_COMPACT = "PostCompact", HookRole.ENDS_TURN
    SESSION_START = "SessionStart", HookRole.OF_THREAD | _TEXT
    SESSION_END = "SessionEnd", HookRole.OF_THREAD | HookRole.SHORT
    USER_PROMPT_SUBMIT = "UserPromptSubmit", HookRole.UNMATCHED | HookRole.GUARDS | _CAN_BLOCK | _TEXT
    SUBAGENT_START = "SubagentStart", _TEXT
    SUBAGENT_STOP = "SubagentStop", _CAN_BLOCK
    STOP = "Stop", HookRole.UNMATCHED | _CAN_BLOCK
    INTERRUPT = "Interrupt", HookRole.UNMATCHED | HookRole.SHORT

    roles: HookRole

    def __new__(cls, name: str, roles: HookRole) -> HookEvent:
        event = str.__new__(cls, name)
        event._value_, event.roles = name, roles
        return event

    def has(self, role: HookRole) -> bool:
        return role in self.roles

    @property
    def snake(self) -> str:
        """The name in keys of settings and in digests: `pre_tool_use`."""
        return self.name.lower()

    @property
    def camel(self) -> str:
        """The name in the thread API: `preToolUse`."""
        return self.value[0].lower() + self.value[1:]


class HookSource(StrEnum):
    """The owner of a hook."""

    USER = "user"
    """A file of the home."""
    PROJECT = "project"
    """A file of a trusted project."""
    SESSION = "sessionFlags"
    """The command line of the server, or the `config` of the request that opened the thread."""
    CLIENT = "client"
    """A callback of a client, without a file."""


class HookHandlerType(StrEnum):
    """The kind of a handler. Only commands and callbacks run."""

    COMMAND = "command"
    MCP_TOOL = "mcpTool"
    PROMPT = "prompt"
    AGENT = "agent"
    CALLBACK = "callback"
    """A request to the client (`hook/run`)."""


class HookRunStatus(StrEnum):
    """State of one run of a hook."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    """The hook did not answer, or its answer could not be understood."""
    BLOCKED = "blocked"
    """The hook forbade what it guards."""
    STOPPED = "stopped"
    """The hook ended the turn."""


class HookEntryKind(StrEnum):
    """Purpose of a text that a hook has brought."""

    WARNING = "warning"
    STOP = "stop"
    FEEDBACK = "feedback"
    CONTEXT = "context"
    ERROR = "error"
