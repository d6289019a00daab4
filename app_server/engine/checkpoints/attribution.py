"""Tells whose the present state of each changed file is: the agent's, the user's, both, or uncertain. Pure.

1. The transitions of a file since a message are put in a row.
2. Transitions that a restore has taken back are removed.
3. A gap between two transitions, or between the last one and the present file, is a change by the user.
4. The state before the agent's first change is the base, to which the file can be restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from app_server.engine.checkpoints.history import Actor, RecordedChanges, Span, State, Transition

By = Literal["agent", "user", "both", "uncertain"]


class Link(Struct, frozen=True):
    """One transition of a file, with the index of its span."""

    at: int
    actor: Actor
    before: State
    after: State
    private: bool = False
    origin: str | None = None


class Attribution(Struct, frozen=True, kw_only=True):
    """Whose the changes of one file are."""

    path: str
    by: By
    base: State
    """State before the agent's first change."""
    present: State
    edits: tuple[tuple[State, State], ...] = ()
    """Changes of the user since the agent's first change, each with the state before and after."""
    uncertain: bool = False
    adopted: bool = False
    """Whether the user has committed the agent's change, or has changed the branch."""
    private: bool = False
    """Whether only the owner could read the file at its base."""
    origins: frozenset[str] = frozenset()
    """Files from which a patch has moved this one."""
    received: frozenset[str] = frozenset()
    """Digests of contents that the agent has put here."""
    removed: frozenset[str] = frozenset()
    """Digests of contents that the agent has removed from here: it may have moved them elsewhere."""


Adopted = Callable[[str, int], bool]
"""Function that returns whether the committed content of a path has changed outside of turns since the span with this
index.
"""


def nobody_adopted(path: str, at: int) -> bool:
    """Return False: outside of repositories nothing is committed."""
    return False


def attributions(
    recorded: RecordedChanges, since: int, present: Mapping[str, State], adopted: Adopted = nobody_adopted
) -> list[Attribution]:
    """Return the attribution of each path that the agent has changed in the spans from index `since` on. `present`
    has the state of each of `recorded.paths_since(since)`.
    """
    found = []
    for path, links in _rows(recorded.spans, since, present).items():
        if (one := _attribution(path, links, present.get(path), adopted)) is not None:
            found.append(one)
    return sorted(found, key=lambda each: each.path)


def _rows(spans: Sequence[Span], since: int, present: Mapping[str, State]) -> dict[str, list[Link]]:
    rows: dict[str, _Row] = {}
    indices = {span.id: index for index, span in enumerate(spans)}
    for at, span in enumerate(spans):
        if at < since:
            continue
        target = -1 if span.target is None else indices.get(span.target, -1)
        for change in span.changes:
            if span.finished or _was_made(spans[at + 1 :], change, present):
                row = rows.setdefault(change.path, _Row())
                if target < since:
                    row.add(at, change)
                else:
                    row.take_back(target, at, change)
    return {path: row.links for path, row in rows.items()}


class _Row:
    """The transitions of one file that count."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self._made: list[tuple[int, State]] = []
        """Index of the span and state before each transition that was made, whether it counts or not."""
        self._earlier: list[tuple[int, list[Link]]] = []
        """Index of each span with the links that counted after it."""

    def add(self, at: int, change: Transition) -> None:
        link = Link(at, change.actor, change.before, change.after, change.private, change.origin)
        self._note(at, change.before, [*self.links, link])

    def take_back(self, target: int, at: int, change: Transition) -> None:
        """Restore the links that counted before the span `target`. If the restore has kept a part of the user's, that
        part is a change by the user.
        """
        links = next((list(links) for index, links in reversed(self._earlier) if index < target), [])
        base = next((before for index, before in self._made if index >= target), change.before)
        if change.after != base:
            links.append(Link(at, Actor.USER, base, change.after))
        self._note(at, change.before, links)

    def _note(self, at: int, before: State, links: list[Link]) -> None:
        self.links = links
        self._made.append((at, before))
        self._earlier.append((at, links))


def _was_made(later: Iterable[Span], change: Transition, present: Mapping[str, State]) -> bool:
    """Return whether a restore that was cut off has made this change: the next known state of the file tells."""
    following = (each.before for span in later for each in span.changes if each.path == change.path)
    return next(following, present.get(change.path)) == change.after


def _attribution(path: str, links: Sequence[Link], present: State, adopted: Adopted) -> Attribution | None:
    """Return None if the agent has no part in the file."""
    actors: set[Actor] = set()
    edits: list[tuple[State, State]] = []
    first: Link | None = None
    state: State = None
    for link in links:
        if first is not None and state != link.before:
            edits.append((state, link.before))
        if link.actor is Actor.USER:
            if first is not None:
                edits.append((link.before, link.after))
        else:
            actors.add(link.actor)
            first = first or link
        state = link.after
    if first is None:
        return None
    if state != present:
        edits.append((state, present))
    committed = adopted(path, first.at)
    uncertain = Actor.UNCERTAIN in actors
    by: By = "both" if edits or committed else "uncertain" if uncertain else "agent"
    return Attribution(
        path=path,
        by=by,
        base=first.before,
        present=present,
        edits=tuple(edits),
        uncertain=uncertain,
        adopted=committed,
        private=first.private,
        origins=frozenset(link.origin for link in links if link.origin is not None),
        received=frozenset(link.after.digest for link in links if link.after is not None),
        removed=frozenset(
            link.before.digest for link in links if link.before is not None and link.after is None
        ),
    )
