"""The scope of an approval: the command, patch or tool, its directory, its rights and the policy of the turn. Pure.

A request and its approval are the same value. `Consent.covers` is the only rule by which an earlier approval decides a
later request. `ApprovalMemory` keeps approvals for the rest of the session. They grant nothing by themselves: code that
needs no approval does not look them up.
"""

from __future__ import annotations

from msgspec import Struct

from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.support.real_path import within
from app_server_protocol.values import replace


class Rights(Struct, frozen=True):
    """Rights of a run, in a form that can be compared."""

    confined: bool = True
    """Whether it runs in a sandbox. If not, the other fields have no meaning."""
    roots: frozenset[str] = frozenset()
    """Writable directories, as real paths."""
    network: bool = False
    foreign_files: bool = False
    """Whether the superuser may also write files of other users in the roots."""
    visible: frozenset[str] | None = None
    """The only paths that may be read. None if all may be read."""
    hidden: frozenset[str] = frozenset()
    """Paths and patterns that may not be read."""

    def within(self, other: Rights) -> bool:
        """Return whether `other` includes all of these rights."""
        if not self.confined or not other.confined:
            return not other.confined
        return (
            self.network <= other.network
            and self.foreign_files <= other.foreign_files
            and all(any(within(root, wider) for wider in other.roots) for root in self.roots)
            and self._sees_no_more_than(other)
        )

    def _sees_no_more_than(self, other: Rights) -> bool:
        if other.visible is not None:
            if self.visible is None:
                return False
            if not all(any(within(place, wider) for wider in other.visible) for place in self.visible):
                return False
        return all(self._hides(place) for place in other.hidden)

    def _hides(self, place: str) -> bool:
        absent = self.visible is not None and not any(
            within(place, seen) or within(seen, place) for seen in self.visible
        )
        return absent or any(within(place, hidden) for hidden in self.hidden)


EVERYTHING = Rights(confined=False)


def rights_of(plan: SandboxPlan | None) -> Rights:
    """Return the rights that a plan grants; None means no sandbox."""
    if plan is None:
        return EVERYTHING
    return Rights(
        roots=frozenset(plan.written),
        network=plan.network,
        foreign_files=plan.foreign_files,
        visible=None if plan.view.visible is None else frozenset(plan.view.visible),
        hidden=frozenset(() if plan.view.rules is None else plan.view.rules.denied()),
    )


class CommandSubject(Struct, frozen=True):
    """A command."""

    argv: tuple[str, ...]
    folder: str
    """Real path of its working directory."""
    escalated: bool = False
    """Whether the model asked to run it outside of the sandbox."""


class PatchSubject(Struct, frozen=True):
    """A patch."""

    text: str | None
    """Text of the patch. None stands for any patch that writes only to these paths; only approvals have that."""
    places: tuple[str, ...]
    """Real paths to which it writes."""

    def includes(self, other: PatchSubject) -> bool:
        return self == other or (self.text is None and set(other.places) <= set(self.places))


class InputSubject(Struct, frozen=True):
    """Text typed into a running terminal."""

    text: str
    terminal: int
    call_id: str
    """Id of the call that opened the terminal."""


class McpCallSubject(Struct, frozen=True):
    """Calls of one tool of an MCP server."""

    server: str
    tool: str
    digest: str
    """Digest of the tool's description and schema."""
    annotations: bytes
    """Hints of the server about the tool, as JSON."""


Subject = CommandSubject | PatchSubject | InputSubject | McpCallSubject


class Consent(Struct, frozen=True):
    """An approval request, or the approval of it."""

    subject: Subject
    run: Rights
    """Rights of the run."""
    policy: Rights
    """Rights that the policy of the turn grants without approval."""

    def covers(self, request: Consent) -> bool:
        """Return whether this approval, given for the session, decides `request` as well.

        It does if the subject is included, the run has no more rights than the approved one, and the policy is not
        stricter than it was: a user who tightens the policy withdraws what he approved under the wider one.
        """
        return (
            _includes(self.subject, request.subject)
            and request.run.within(self.run)
            and self.policy.within(request.policy)
        )

    def for_its_files(self) -> Consent:
        """Return this approval of a patch, widened to every patch of the same files."""
        assert isinstance(self.subject, PatchSubject)
        return replace(self, subject=replace(self.subject, text=None))


def _includes(approved: Subject, asked: Subject) -> bool:
    if isinstance(approved, PatchSubject) and isinstance(asked, PatchSubject):
        return approved.includes(asked)
    return approved == asked


class ApprovalMemory:
    """Session approvals by subject; never written to disk."""

    def __init__(self) -> None:
        self._given: dict[Subject, list[Consent]] = {}
        self._for_files: list[Consent] = []

    def remember(self, consent: Consent) -> None:
        if self.covers(consent):
            return
        if isinstance(consent.subject, PatchSubject) and consent.subject.text is None:
            self._for_files.append(consent)
        else:
            self._given.setdefault(consent.subject, []).append(consent)

    def covers(self, request: Consent) -> bool:
        given = (*self._given.get(request.subject, ()), *self._for_files)
        return any(consent.covers(request) for consent in given)
