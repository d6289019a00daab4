"""Finds skills: folders with a SKILL.md, in the user's folders of skills and in the project's.

What a repository holds is not trusted. Of its skills only name and description are read, each one line; links that lead
out of the repository are not followed, files of other users, pipes and devices are not read. Depth, folders and files
are bounded. Slow: call it in a thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from app_server.beneath import Beneath, RefusedName
from app_server.core.git.repository import belongs_to_another, project_folders
from app_server.core.real_path import real_path
from app_server.core.skills import front_matter
from app_server.core.skills.skill import SKILL_FILE, Skill, SkillOwner, SkillProblem

PROJECT_FOLDERS = (".agents/skills", ".codex/skills")
SYSTEM_FOLDER = ".system"
"""In the home's folder of skills; the only one there whose name may begin with a dot."""

MAX_DEPTH = 6
MAX_FOLDERS = 2000
"""Looked into below one root."""
MAX_SKILLS = 1000
"""Of one working directory, problems included."""
HEAD_BYTES = 64 * 1024
"""So much of a file is read for its front matter."""
MAX_NAME = 64
MAX_DESCRIPTION = 4096
"""Longer ones are cut: a description is a sentence or two."""


class UnreadableSkill(Exception):
    """A SKILL.md that is not read. The text is a sentence for the user."""


class SkillRoot(Struct, frozen=True):
    folder: str
    owner: SkillOwner
    inside: str | None = None
    """The repository's real folder."""


class _Found(Struct):
    skills: dict[str, Skill] = msgspec.field(default_factory=dict)
    problems: dict[str, SkillProblem] = msgspec.field(default_factory=dict)

    def is_full(self) -> bool:
        return len(self.skills) + len(self.problems) >= MAX_SKILLS


def project_roots(cwd: Path) -> list[SkillRoot]:
    folders = project_folders(cwd, "skills", lambda refusal: None)
    inside = real_path(folders[0])
    return [
        SkillRoot(str(folder / name), SkillOwner.REPOSITORY, inside)
        for folder in folders
        for name in PROJECT_FOLDERS
    ]


def discover(roots: Sequence[SkillRoot], home: str | None = None) -> tuple[list[Skill], list[SkillProblem]]:
    """Find all skills. A file that several roots lead to belongs to the first of them. `home` is the server's: its
    credentials are not read.
    """
    found = _Found()
    for root in roots:
        for path in _skill_files(root):
            if found.is_full():
                break
            if path in found.skills or path in found.problems:
                continue
            try:
                found.skills[path] = _skill(path, root, home)
            except (UnreadableSkill, front_matter.NoFrontMatter) as problem:
                found.problems[path] = SkillProblem(path, str(problem))
    return list(found.skills.values()), list(found.problems.values())


def _skill_files(root: SkillRoot) -> Iterator[str]:
    """Yield the SKILL.md files below a root, the nearest first, by the real paths of their folders."""
    seen: set[str] = set()
    folders = [(real_path(root.folder), 0)]
    while folders:
        folder, depth = folders.pop(0)
        if folder in seen or len(seen) >= MAX_FOLDERS or _is_outside(folder, root.inside):
            continue
        seen.add(folder)
        names = _names(folder)
        if SKILL_FILE in names:
            yield os.path.join(folder, SKILL_FILE)
        if depth < MAX_DEPTH:
            inner = (os.path.join(folder, name) for name in names if not name.startswith("."))
            folders += [(real_path(each), depth + 1) for each in inner if os.path.isdir(each)]


def _names(folder: str) -> list[str]:
    try:
        with Beneath(folder) as opened:
            # Others cannot be sent, to clients as Unicode and to the model as part of a line.
            return sorted(name for name in opened.list(most=MAX_FOLDERS) if name.isprintable())
    except OSError:
        return []


def _is_outside(path: str, inside: str | None) -> bool:
    return inside is not None and not Path(path).is_relative_to(inside)


def _skill(path: str, root: SkillRoot, home: str | None) -> Skill:
    settings = front_matter.front_matter(read_skill_file(path, root.inside, HEAD_BYTES, home, whole=False))
    description = front_matter.one_line(settings.get("description", ""))
    if not description:
        raise UnreadableSkill("missing field `description`")
    name = front_matter.one_line(settings.get("name", "")) or os.path.basename(os.path.dirname(path))
    if len(name) > MAX_NAME:
        raise UnreadableSkill(f"invalid name: exceeds maximum length of {MAX_NAME} characters")
    folder = os.path.dirname(path)
    more = _more_settings(folder, root, home)
    short = front_matter.one_line(settings.get("metadata.short-description", ""))
    return Skill(
        name=name,
        description=description[:MAX_DESCRIPTION],
        short_description=short[:MAX_DESCRIPTION] or None,
        path=path,
        owner=root.owner,
        inside=root.inside,
        implicit=front_matter.is_implicit(more),
        appearance=front_matter.appearance(more, folder),
    )


def _more_settings(folder: str, root: SkillRoot, home: str | None) -> Mapping[str, str]:
    """Read the settings beside the SKILL.md; there are none without such a file, or if it cannot be read."""
    path = os.path.join(folder, front_matter.SETTINGS_FILE)
    if not os.path.lexists(path):
        return {}
    try:
        return front_matter.plain_yaml(read_skill_file(path, root.inside, HEAD_BYTES, home, whole=True))
    except UnreadableSkill:
        return {}


def read_skill_file(
    path: str, inside: str | None, limit: int, home: str | None = None, *, whole: bool
) -> str:
    """Read at most `limit` bytes of a file; no link leads out of the folder `inside`. `whole`: a longer file is
    refused. Raises UnreadableSkill.
    """
    try:
        with Beneath(inside or "/", home) as root:
            name = os.path.relpath(os.fsencode(path), root.root)
            with root.opened(name, follow_links=True) as (descriptor, facts):
                if inside is not None and any(map(belongs_to_another, (root.stat(name), facts))):
                    raise UnreadableSkill("it belongs to another user and is not read")
                if whole and facts.st_size > limit:
                    raise UnreadableSkill(f"it is longer than {limit:,} bytes")
                return os.read(descriptor, limit).decode("utf-8", "replace")
    except IsADirectoryError as error:
        raise UnreadableSkill("it is not a regular file") from error
    except RefusedName as refused:
        raise UnreadableSkill(f"it is {refused.strerror}") from refused
    except OSError as error:
        raise UnreadableSkill((error.strerror or "it cannot be read").lower()) from error
