"""The events at which hooks run, and where a hook comes from. Words of hook files, of settings and of each API."""

from enum import StrEnum


class HookEvent(StrEnum):
    """A moment of a thread at which hooks run. The value is the name in hook files."""

    PRE_MODEL_REQUEST = "PreModelRequest"
    POST_MODEL_REQUEST = "PostModelRequest"
    PRE_TOOL_USE = "PreToolUse"
    PERMISSION_REQUEST = "PermissionRequest"
    POST_TOOL_USE = "PostToolUse"
    PRE_COMPACT = "PreCompact"
    POST_COMPACT = "PostCompact"
    SESSION_START = "SessionStart"
    SESSION_END = "SessionEnd"
    USER_PROMPT_SUBMIT = "UserPromptSubmit"
    SUBAGENT_START = "SubagentStart"
    SUBAGENT_STOP = "SubagentStop"
    STOP = "Stop"
    INTERRUPT = "Interrupt"

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


GUARDS = frozenset({HookEvent.PRE_TOOL_USE, HookEvent.PERMISSION_REQUEST, HookEvent.USER_PROMPT_SUBMIT})
"""Events whose handlers guard something. What happens when such a handler fails is a setting."""

UNMATCHED = frozenset(
    {
        HookEvent.USER_PROMPT_SUBMIT,
        HookEvent.STOP,
        HookEvent.INTERRUPT,
        HookEvent.PRE_MODEL_REQUEST,
        HookEvent.POST_MODEL_REQUEST,
    }
)
"""Events without a matcher: all their handlers run."""
