"""What the names of writable roots stand for: resolved once, and kept for the life of a conversation.

A client repeats the names with each turn, and commands may meanwhile have changed what lies at them. So a name is
resolved when the conversation first gets it, before any command of that turn runs. The real path is kept, and used
from then on without following links. What commands of any conversation of this server could write is remembered: a link
found there says nothing about where the user wanted to go.
"""

from __future__ import annotations

import os.path

from app_server.core.sandbox.plan import within
from app_server.core.sandbox.repositories import SURVEY_LEVELS, NestedRepositories
from app_server.core.sandbox.resolve import ResolvedPath, resolve
from protocol.policy import SandboxPolicy, WorkspaceWrite
from protocol.records import dataclass

SLASH_TMP = "/tmp"


@dataclass(frozen=True, slots=True)
class NamedRoot:
    """A root by the name that the client gave, and what that stood for when it was given."""

    name: str
    resolved: ResolvedPath | None
    """None: it led nowhere."""
    by_changeable_link: bool = False
    """A link on the way lay where commands had been allowed to write."""


class ServerRoots:
    """What all conversations of one server share."""

    def __init__(self, tmpdir: str | None) -> None:
        self.tmpdir = tmpdir if tmpdir and os.path.isabs(tmpdir) else None
        self.written: set[str] = set()
        """Real paths of all roots that commands were ever granted."""
        self._conversations: set[ConversationRoots] = set()
        self._known: frozenset[str] | None = None

    def open(self) -> ConversationRoots:
        """For a new conversation, which is to close it."""
        roots = ConversationRoots(self)
        self._conversations.add(roots)
        return roots

    def closed(self, roots: ConversationRoots) -> None:
        self._conversations.discard(roots)
        self._known = None

    def changed(self) -> None:
        """A conversation was given another name."""
        self._known = None

    def known(self) -> frozenset[str]:
        """The real paths of what the clients of all open conversations named."""
        if self._known is None:
            self._known = frozenset().union(*(roots.known() for roots in self._conversations))
        return self._known

    def once(self) -> ConversationRoots:
        """For a command outside of any conversation."""
        return ConversationRoots(self, lasting=False)


class ConversationRoots:
    """The roots of one conversation."""

    def __init__(self, server: ServerRoots, *, lasting: bool = True) -> None:
        self.server = server
        self._lasting = lasting
        self._named: dict[str, NamedRoot] = {}
        self._repositories: dict[str, NestedRepositories] = {}

    def close(self) -> None:
        self.server.closed(self)

    def learn(self, policy: SandboxPolicy, cwd: str) -> None:
        """Resolves what has not been named before. To be called as soon as the client has named it."""
        for name in (*self._names(policy, cwd), *self._temporary_names()):
            if name not in self._named:
                self._named[name] = self._resolve(name)
                self.server.changed()

    def roots(self, policy: WorkspaceWrite, cwd: str) -> tuple[NamedRoot, ...]:
        """The working directory first."""
        self.learn(policy, cwd)
        return tuple(self._named[name] for name in dict.fromkeys(self._names(policy, cwd)))

    def temporary(self, policy: WorkspaceWrite) -> tuple[NamedRoot, ...]:
        """/tmp and $TMPDIR, as far as the policy has them."""
        names = [] if policy.exclude_slash_tmp else [SLASH_TMP]
        if self.server.tmpdir is not None and not policy.exclude_tmpdir_env_var:
            names.append(os.path.normpath(self.server.tmpdir))
        return tuple(self._named[name] for name in dict.fromkeys(names))

    def real(self, cwd: str) -> str:
        """What a working directory stood for when the conversation was given it; else as it is named."""
        named = self._named.get(os.path.normpath(cwd))
        return named.resolved.real if named is not None and named.resolved is not None else cwd

    def known(self) -> set[str]:
        """The real paths of what the client named."""
        temporary = set(self._temporary_names())
        return {
            root.resolved.real
            for name, root in self._named.items()
            if root.resolved is not None and name not in temporary
        }

    def repositories(self, real: str, *, deep: bool) -> NestedRepositories:
        """Those inside one root, as far as they are known."""
        if real not in self._repositories:
            levels = SURVEY_LEVELS if deep and self._lasting else 1
            self._repositories[real] = NestedRepositories(real, levels)
        return self._repositories[real]

    def _names(self, policy: SandboxPolicy, cwd: str) -> list[str]:
        more = policy.writable_roots if isinstance(policy, WorkspaceWrite) else ()
        return [os.path.normpath(os.path.join(cwd, name)) for name in ("", *more)]

    def _temporary_names(self) -> list[str]:
        return [os.path.normpath(name) for name in (SLASH_TMP, self.server.tmpdir) if name is not None]

    def _resolve(self, name: str) -> NamedRoot:
        resolved = resolve(name)
        if resolved is None:
            return NamedRoot(name, None)
        folders = [os.path.dirname(link) for link in resolved.links]
        changeable = any(within(folder, root) for folder in folders for root in self.server.written)
        return NamedRoot(name, resolved, changeable)
