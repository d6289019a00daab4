"""Hooks as values: handlers, their trust, and the hooks of a thread for one turn. Pure.

`hook_files` reads them, `trust` decides which of them the user has agreed to, and the runner takes the handlers of an
event from `LoadedHooks.runnable`, in the order in which their results count.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct

from app_server.engine.hooks.matching import ALL_NAMES, NamePattern
from app_server_protocol.engine.hook_events import HookEvent, HookHandlerType, HookSource

DEFAULT_TIMEOUT, LONGEST_TIMEOUT = 600, 3600
"""Time limits of a handler, in seconds."""
LAST_SECONDS: Final = 3
"""Longest time for handlers of events after which nothing waits for long (`HookRole.SHORT`), and after a turn for its
`async` handlers, in seconds. By default the former have one second.
"""
DEFAULT_CONTEXT_TOKENS: Final = 2500
"""Size of the context that a handler may add, in tokens; the rest goes to a file."""


class OnFailure(StrEnum):
    """Outcome of a guard that failed, for what it guards."""

    ALLOW = "allow"
    """It goes on as without the guard."""
    ASK = "ask"
    """The user is asked; where nobody may be asked, it is blocked."""
    BLOCK = "block"


STRICTNESS: Final = (OnFailure.ALLOW, OnFailure.ASK, OnFailure.BLOCK)


def stricter_on_failure(setting: OnFailure, handler: OnFailure | None) -> OnFailure:
    """Return the stricter one: a handler's own word cannot loosen the setting."""
    return setting if handler is None else max(setting, handler, key=STRICTNESS.index)


class MayApprove(StrEnum):
    """Hooks whose `allow` answers the question about a call."""

    NONE = "none"
    USER = "user"
    """Hooks of the home."""
    ALL = "all"


class HookTrust(StrEnum):
    """State of the user's consent to a handler."""

    UNTRUSTED = "untrusted"
    TRUSTED = "trusted"
    MODIFIED = "modified"
    """The user agreed to another definition, or to another content of a file that the command names."""
    LAPSED = "lapsed"
    """The same, of a guard that was in force before in this thread: it counts as one that failed."""


class HookDefinition(Struct, frozen=True, kw_only=True):
    """A handler as its file defines it, which is what the user agrees to."""

    event: HookEvent
    pattern: NamePattern = ALL_NAMES
    """Names that the handler is for."""
    type: HookHandlerType = HookHandlerType.COMMAND
    command: str = ""
    """Command line for a shell; empty if the handler is no command."""
    mcp_tool: tuple[str, str] | None = None
    """MCP server and tool of a handler that is an MCP tool, which does not run."""
    timeout: int = DEFAULT_TIMEOUT
    """Time limit in seconds."""
    is_async: bool = False
    """Whether nobody waits for the handler. It then decides nothing."""
    status_message: str | None = None
    on_failure: OnFailure | None = None
    """The handler's own word about its failure; None if it has none."""
    sandbox: bool | None = None
    """Whether the handler runs in the thread's sandbox, as its file says; None if it does not say so."""
    additional_context_limit: int | None = None
    """Maximum size of added context, in tokens; None for the default."""
    is_conditional: bool = False
    """Whether the entry is meant for some calls alone (`if`), in a way that is not understood here."""

    @property
    def matcher(self) -> str | None:
        """Expression for the names, as written; None for all names."""
        return self.pattern.text


class HookHandler(Struct, frozen=True, kw_only=True):
    """One handler of a thread: an entry of a hook file, or a callback of a client."""

    definition: HookDefinition
    source: HookSource
    source_path: str
    """Path of the file with the definition; the name of the client for a callback."""
    group: int = 0
    """Position of the group of handlers in its event, counted from 0."""
    index: int = 0
    """Position in the group, counted from 0."""
    display_order: int = 0
    """Position among all handlers of a thread. Results count in this order."""
    key: str = ""
    """Key of the handler in `hooks.state`: `FILE:event_name:group:index`."""
    digest: str = ""
    """Digest of the definition, `sha256:…`."""
    enabled: bool = True
    """Whether the handler is of a type that runs, and not switched off."""
    trust: HookTrust = HookTrust.UNTRUSTED
    named_files: tuple[str, ...] = ()
    """Absolute paths of the files that the command names, in its order. Links are not resolved."""
    changed_files: tuple[str, ...] = ()
    """Those that changed since the user agreed to the hook."""

    @property
    def event(self) -> HookEvent:
        """The event of the definition."""
        return self.definition.event

    @property
    def counts(self) -> bool:
        """Whether the handler has a say: it runs, or is a guard that failed because it changed."""
        return self.runs or (self.enabled and self.trust is HookTrust.LAPSED)

    @property
    def runs(self) -> bool:
        """Whether the handler runs at all: the user agreed to it, and it is not switched off."""
        return self.enabled and self.trust is HookTrust.TRUSTED


class HookProblem(Struct, frozen=True):
    """An entry or a file that defines no hook, and the reason."""

    path: str
    message: str


class HookSettings(Struct, frozen=True, kw_only=True):
    """The settings of `[hooks]` besides the hooks."""

    on_failure: OnFailure = OnFailure.ASK
    max_stop_blocks: int = 3
    """Maximum number of times that `Stop` hooks make a turn go on."""
    may_approve: MayApprove = MayApprove.USER
    project_sandbox: bool = True
    """Whether hooks of a project always run in the thread's sandbox."""


class LoadedHooks(Struct, frozen=True, kw_only=True):
    """All hooks of a thread, as they are when a turn begins."""

    by_event: Mapping[HookEvent, tuple[HookHandler, ...]] = msgspec.field(
        default_factory=lambda: MappingProxyType({})
    )
    """Handlers in display order, including those that do not run."""
    settings: HookSettings = HookSettings()
    warnings: tuple[str, ...] = ()
    """Sentences about entries that were passed over."""
    problems: tuple[HookProblem, ...] = ()
    """Files that could not be read, and entries with a mistake."""
    project_root: str = ""
    """Real path of the project's root, or of the working directory outside of one."""
    clients_approve: bool = False
    """Whether an `allow` of a client's callback counts: the client may do what its user may."""
    switched_off: bool = False
    """Whether `[features] hooks = false` switches all of them off."""

    def runnable(self, event: HookEvent, *names: str) -> tuple[HookHandler, ...]:
        """Return the handlers of an event that have a say, in display order. `names`: what a matcher is held against,
        such as the name of the tool and its aliases, the source of a session or the trigger of a compaction; one that
        matches is enough. Without names all handlers of the event run.
        """
        if self.switched_off:
            return ()
        return tuple(
            handler
            for handler in self.by_event.get(event, ())
            if handler.counts
            and (not names or any(handler.definition.pattern.matches(name) for name in names))
        )

    def handlers(self) -> tuple[HookHandler, ...]:
        """Return all handlers in display order."""
        found = (handler for handlers in self.by_event.values() for handler in handlers)
        return tuple(sorted(found, key=lambda handler: handler.display_order))

    @property
    def waiting(self) -> tuple[HookHandler, ...]:
        """The handlers that do not run because the user has not agreed to them as they are now."""
        return tuple(each for each in self.handlers() if each.enabled and each.trust is not HookTrust.TRUSTED)

    def may_approve(self, handler: HookHandler) -> bool:
        """Return whether an `allow` of the handler answers the question about a call."""
        if handler.definition.is_conditional:
            return False  # it may have been meant for other calls
        if handler.source is HookSource.CLIENT:
            return self.clients_approve and self.settings.may_approve is not MayApprove.NONE
        match self.settings.may_approve:
            case MayApprove.NONE:
                return False
            case MayApprove.USER:
                return handler.source is HookSource.USER
            case MayApprove.ALL:
                return True


NO_HOOKS: Final = LoadedHooks()
