"""What a yes is for: these words, in this place, with these rights, under this policy. Pure.

A question and the yes to it are the same value. `covers` is the one rule that says whether an earlier yes answers a
later question; nothing else may compare them.
"""

from __future__ import annotations

from app_server.core.sandbox.plan import SandboxPlan, within
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class Rights:
    """What a run may do, as far as rights can be compared."""

    confined: bool = True
    """False: it runs without a sandbox, and the rest says nothing."""
    roots: frozenset[str] = frozenset()
    """Real directories that it may write to."""
    network: bool = False
    foreign_files: bool = False
    """In the roots, the superuser may also write what belongs to others."""

    def within(self, other: Rights) -> bool:
        """Whether `other` may do everything that these may."""
        if not self.confined or not other.confined:
            return not other.confined
        return (
            self.network <= other.network
            and self.foreign_files <= other.foreign_files
            and all(any(within(root, wider) for wider in other.roots) for root in self.roots)
        )


EVERYTHING = Rights(confined=False)


def rights_of(plan: SandboxPlan | None) -> Rights:
    """What a plan grants; no plan is no sandbox."""
    if plan is None:
        return EVERYTHING
    return Rights(
        roots=frozenset(plan.writable_roots), network=plan.network, foreign_files=plan.foreign_files
    )


@dataclass(frozen=True, slots=True)
class CommandSubject:
    """A command that is to run."""

    argv: tuple[str, ...]
    folder: str
    """The real path of its working directory."""
    escalated: bool = False
    """The model asked to run it outside of the sandbox."""


@dataclass(frozen=True, slots=True)
class PatchSubject:
    """A patch that is to be written."""

    text: str
    places: tuple[str, ...]
    """The real paths that it writes to."""


@dataclass(frozen=True, slots=True)
class InputSubject:
    """Text that is to be typed into a terminal that goes on."""

    text: str
    terminal: int
    call_id: str
    """The call that opened the terminal."""


Subject = CommandSubject | PatchSubject | InputSubject


@dataclass(frozen=True, slots=True)
class Consent:
    """A question, and the yes to it."""

    subject: Subject
    run: Rights
    """What the run that is asked about may do."""
    policy: Rights
    """What the policy of the turn gives by itself."""

    def covers(self, question: Consent) -> bool:
        """Whether this yes, given for the session, answers `question` as well.

        The same thing is to be done, the run has no more rights than the one that was agreed to, and the user has not
        chosen a stricter policy since: who does that no longer trusts what he agreed to under the wider one.
        """
        return (
            self.subject == question.subject
            and question.run.within(self.run)
            and self.policy.within(question.policy)
        )
