"""Makes the plan of a permission profile from its rules and the facts of the disk. Pure.

The paths of the rules are processed from the outside to the inside. A readable path inside an unreadable one is
visible; a denied path inside a visible one is hidden; a writable path inside a hidden or read-only one is reopened. A
path that cannot be granted as a writable root may still be read.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from app_server.engine.config.file_rules import FileRules, Right
from app_server.engine.sandbox.plan import (
    BY_LINK,
    FileView,
    ProfileFacts,
    RootFacts,
    SandboxFacts,
    SandboxPlan,
    below,
    between,
    inside,
    notices,
    outermost,
    refusal,
)
from app_server.engine.support.real_path import within
from app_server_protocol.policy import Access, PermissionProfile

PRIVATE = ("/dev", "/proc", "/sys")
"""Folders that belong to the command itself or to the kernel. No rule makes them writable."""
PROTECTED = "it controls what the user's tools execute"


class _Places(Struct):
    """Paths of a plan. Folders come before their contents."""

    visible: list[str] = msgspec.field(default_factory=list)
    writable: list[str] = msgspec.field(default_factory=list)
    reopened: list[str] = msgspec.field(default_factory=list)
    read_only: list[str] = msgspec.field(default_factory=list)
    hidden: list[str] = msgspec.field(default_factory=list)
    absent: list[str] = msgspec.field(default_factory=list)
    """Denied names in writable folders at which nothing exists."""


def profile_plan(profile: PermissionProfile, facts: SandboxFacts, *, approved: bool = False) -> SandboxPlan:
    """Return the plan of a profile. With `approved`, it is that of a command that the user allowed to run without the
    sandbox. Such a command may write everything that the profile lets it see, except protected names.
    """
    found = facts.profile
    assert found is not None
    named = (*found.roots, *found.temporary)
    refused = {} if approved else _refused(facts, named)
    rules = _approved(found) if approved else _granted(found.rules, refused)
    places = _sort(rules, found)
    writable = (*places.writable, *places.reopened)
    kept = [
        root
        for root in named
        if root.real is not None and (root not in refused or inside(root.real, writable))
    ]
    protected = _protected(places, facts, kept)
    reserved = _reserved(places, facts, found, protected)
    read_only = {*protected, *reserved, *places.hidden}
    pinned = {
        place for path in read_only if inside(path, writable) for place in between(path, outermost(writable))
    }
    visible = None if rules.whole_disk else tuple(outermost([*places.visible, *_own(facts, rules)]))
    return SandboxPlan(
        writable_roots=tuple(places.writable),
        protected=tuple(sorted(protected)),
        reserved=tuple(sorted(reserved)),
        indispensable=tuple(path for path in facts.kept.folders if inside(path, writable)),
        pinned=tuple(sorted(_to_pin(pinned, read_only, places))),
        home=facts.home,
        network=profile.network,
        private_temp=not any(root.real and inside(root.real, writable) for root in found.temporary),
        foreign_files=facts.superuser
        and (approved or any(root.foreign for root in kept if root.real and inside(root.real, writable))),
        notices=(*profile.notices, *notices(named, _shown(refused, kept), kept)),
        view=FileView(
            visible=visible,
            links=() if visible is None else tuple(link for link in found.links if not inside(link, visible)),
            hidden=tuple(places.hidden),
            reopened=tuple(places.reopened),
            programs=tuple(place for place in facts.programs if not _is_shown(place, rules, visible)),
            rules=found.rules,
            profile=profile.id,
            subtracts=_subtracts(found.rules) or bool(found.rules.patterns),
            refused=found.problem,
        ),
    )


def _refused(facts: SandboxFacts, named: tuple[RootFacts, ...]) -> dict[RootFacts, str]:
    """Return the writable paths that are not granted, each with the reason."""
    refused = {root: reason for root in named if (reason := refusal(root, named, facts))}
    temporary = () if facts.profile is None else facts.profile.temporary
    roots = [root.real for root in named if root.real and root not in (*refused, *temporary)]
    fences = [os.path.join(root, name) for root in roots for name in facts.protected_folders]
    for root in named:
        if root not in refused and root.real and any(within(root.real, fence) for fence in fences):
            refused[root] = PROTECTED
        elif root not in refused and root.real and any(within(root.real, place) for place in PRIVATE):
            refused[root] = "it is the kernel's"
    return refused


def _shown(refused: dict[RootFacts, str], kept: list[RootFacts]) -> dict[RootFacts, str]:
    return {root: why for root, why in refused.items() if root not in kept or why == PROTECTED}


def _granted(rules: FileRules, refused: dict[RootFacts, str]) -> FileRules:
    """Return the rules without the writable paths that are not granted: those may be read. The target of a changeable
    link is neither granted nor restricted.
    """
    by_link = {root.real for root, why in refused.items() if why == BY_LINK}
    others = {root.real for root, why in refused.items() if why != BY_LINK}
    places = []
    for place, access in rules.places:
        if access is Access.WRITE and place in by_link:
            if rules.around(place) >= Right.READ:
                continue
            access = Access.READ
        places.append((place, Access.READ if access is Access.WRITE and place in others else access))
    return FileRules(tuple(places), rules.patterns)


def _approved(found: ProfileFacts) -> FileRules:
    """Return the rules under which everything readable is writable."""
    places = {
        place: Access.WRITE
        if access is Access.READ and place != "/" and not inside(place, PRIVATE)
        else access
        for place, access in found.rules.places
    }
    for folder in found.top:
        places.setdefault(folder, Access.WRITE)
    ordered = sorted(places.items(), key=lambda entry: entry[0].split("/") if entry[0] != "/" else [])
    return FileRules(tuple(ordered), found.rules.patterns)


def _sort(rules: FileRules, found: ProfileFacts) -> _Places:
    """Assign each path to the kinds of the plan."""
    places, present = _Places(), {*found.present, *found.top}
    for path, _ in rules.places:
        if path in present:
            _put(path, rules, places)
        elif rules.without_patterns(path) is Right.DENIED and rules.around(path) is Right.WRITE:
            places.absent.append(found.first_missing[path])
    more = [path for path in (*found.matched, *found.aliases) if rules.without_patterns(path) >= Right.READ]
    places.hidden = sorted({*places.hidden, *more}, key=lambda path: path.split("/"))
    return places


def _put(path: str, rules: FileRules, places: _Places) -> None:
    if path == "/":
        return
    right, around = rules.without_patterns(path), rules.around(path)
    seen = rules.whole_disk or inside(path, places.visible)
    closed = rules.right(path) is Right.DENIED
    match right:
        case Right.READ | Right.WRITE if not seen:
            places.visible.append(path)
            if right is Right.WRITE:
                places.writable.append(path)
        case Right.WRITE if around is Right.WRITE or closed:
            pass
        case Right.WRITE if inside(path, places.hidden) or inside(path, places.writable):
            places.reopened.append(path)
        case Right.WRITE:
            places.writable.append(path)
        case Right.READ if around is Right.WRITE:
            places.read_only.append(path)
        case Right.DENIED if seen and around >= Right.READ:
            places.hidden.append(path)
        case _:
            pass


def _protected(places: _Places, facts: SandboxFacts, kept: list[RootFacts]) -> set[str]:
    writable = (*places.writable, *places.reopened)
    found = {
        *facts.others,
        *facts.home_links,
        *facts.sockets,
        *facts.kept.folders,
        *(path for root in kept for path in root.protected),
    }
    found = {path for path in found if inside(path, writable) and not below(path, found)}
    if inside(facts.home, writable):
        found.add(facts.home)
    return (found | set(places.read_only)) - set(places.reopened)


def _reserved(places: _Places, facts: SandboxFacts, found: ProfileFacts, protected: set[str]) -> set[str]:
    """Return names that cannot be created: protected names, and denied names."""
    writable = (*places.writable, *places.reopened)
    roots = [root.real for root in found.roots if root.real and not root.is_file]
    names = {os.path.join(root, name) for root in roots for name in facts.protected_folders}
    names |= {*places.absent, *facts.reserved}
    closed = protected | set(places.hidden)
    return {
        name
        for name in names
        if inside(name, writable) and (not below(name, closed) or inside(name, places.reopened))
    }


def _to_pin(pinned: set[str], read_only: set[str], places: _Places) -> Iterable[str]:
    return (
        place
        for place in pinned - read_only - set(places.reopened)
        if not below(place, read_only) or inside(place, places.reopened)
    )


def _is_shown(place: str, rules: FileRules, visible: tuple[str, ...] | None) -> bool:
    return rules.may_read(place) or (visible is not None and rules.right(place) is Right.ABSENT)


def _own(facts: SandboxFacts, rules: FileRules) -> Iterable[str]:
    """Return the folders of this server's programs, unless a rule denies them."""
    return (place for place in facts.programs if rules.without_patterns(place) is Right.ABSENT)


def _subtracts(rules: FileRules) -> bool:
    """Return whether a rule restricts a right that a rule further outside grants, other than a right of `/`."""
    for path, access in rules.places:
        around = rules.around(path)
        if path != "/" and access is Access.DENY and around >= Right.READ:
            return True
        if path != "/" and access is Access.READ and around is Right.WRITE:
            return True
    return False
