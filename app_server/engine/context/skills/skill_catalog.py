"""The skills of one server: finds folders with a SKILL.md, in the user's folders of skills and in the project's; reads
their texts, and which of them are enabled.

The files are read again each time, so an edit takes effect from the next turn on. Listeners are notified when the
skills of a directory differ from those that a client was last sent. The content of a repository is not trusted: only
the name and the description of its skills are read, each in one line; links that lead out of the repository are not
followed, and files of other users, pipes and devices are not read. Depth, folders and files are bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

import anyio
from msgspec import Struct

from app_server.engine.config.file_rules import MayRead, reads_all
from app_server.engine.config.skill_switches import SkillSwitch, is_enabled, skill_switches
from app_server.engine.context.skills.skill import (
    SETTINGS_FILE,
    SKILL_FILE,
    NoFrontMatter,
    Skill,
    SkillOwner,
    SkillPlace,
    SkillProblem,
    SkillSet,
    appearance,
    front_matter,
    is_implicit,
    one_line,
    plain_yaml,
    skills_message,
)
from app_server.engine.support.engine_errors import ConfigError, describe
from app_server.engine.support.real_path import real_path
from app_server.engine.support.rooted_fs import RefusedName, RootDir
from app_server.engine.support.text_of_bytes import text_of_bytes
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git import safe_directories
from app_server.engine.workspace.git.repository import belongs_to_another, project_of
from app_server_protocol.responses import MessageItem, ResponseItem
from app_server_protocol.rollout import SKILL_HEAD
from app_server_protocol.values import replace

FOLDER = "skills"
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})
USER_FOLDER = ".agents/skills"
MAX_SKILL_BYTES = 256 * 1024
LOOK_SECONDS = 3.0
"""Longest wait of a turn for a slow disk, in seconds; the turn then begins without an update of the skills."""
MAX_SENT = 1000


class SkillCatalog:
    """The catalogue of skills, one per process."""

    def __init__(self, home: Path, environment: Mapping[str, str]) -> None:
        self._home, self._environment, self._user_home = home, environment, environment.get("HOME")
        self._extra_roots: tuple[str, ...] = ()
        self._switches: Sequence[SkillSwitch] = ()
        self._sent: dict[str, SkillSet] = {}
        """Skills that a client was last sent, by directory."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the skills that a client was sent have changed."""

    def set_extra_roots(self, folders: Sequence[str]) -> None:
        """Replace the further folders with the user's skills, until the server ends."""
        self._extra_roots = tuple(folders)

    async def list(self, cwd: Path) -> SkillSet:
        """Return the skills for a client, which is notified when they change."""
        found = await run_in_thread(self.find, cwd, abandon_on_cancel=True)
        while len(self._sent) >= MAX_SENT:
            del self._sent[next(iter(self._sent))]
        self._sent[str(cwd)] = found
        return found

    async def look(self, cwd: Path, folders: Sequence[str] = ()) -> SkillSet | None:
        """Read the skills for a turn; return None if the disk takes too long. `folders`: further folders of the
        thread.
        """
        with anyio.move_on_after(LOOK_SECONDS):
            found = await run_in_thread(self.find, cwd, folders, abandon_on_cancel=True)
            if not folders and self._sent.get(str(cwd), found) != found:
                del self._sent[str(cwd)]
                self.on_change()
            return found
        return None

    async def message(
        self,
        cwd: Path,
        history: Sequence[ResponseItem],
        folders: Sequence[str] = (),
        may_read: MayRead = reads_all,
        *,
        tokens: int | None = None,
    ) -> MessageItem | None:
        """Return the message about skills for the model before a turn; None if the model already has it. It lists the
        skills whose files the model's commands may read, by their real paths. `tokens` as in `skills_message`.
        """
        found = await self.look(cwd, folders)
        if found is None:
            return None
        if may_read is not reads_all:
            found = await run_in_thread(partial(_readable, found, may_read), abandon_on_cancel=True)
        return skills_message(found, history, tokens)

    def find(self, cwd: Path, folders: Sequence[str] = ()) -> SkillSet:
        """Find the skills, including those in `folders`. Blocks: call it in a thread."""
        user = [SkillRoot(str(self._home / FOLDER), SkillOwner.USER)]
        if self._user_home and os.path.isabs(self._user_home):
            user.append(SkillRoot(os.path.join(self._user_home, USER_FOLDER), SkillOwner.USER))
        user += [SkillRoot(folder, SkillOwner.USER) for folder in (*self._extra_roots, *folders)]
        user.append(SkillRoot(str(self._home / FOLDER / SYSTEM_FOLDER), SkillOwner.SYSTEM))
        # The user's own skills come first: if the working directory is the user's home, they are not the repository's.
        skills, problems = discover([*user, *project_roots(cwd, self._environment)], str(self._home))
        switches = self._present_switches()
        marked = [replace(skill, enabled=is_enabled(switches, skill.name, skill.path)) for skill in skills]
        return SkillSet(
            tuple(sorted(marked, key=lambda skill: (skill.owner.value, skill.name, skill.path))),
            tuple(sorted(problems, key=lambda problem: problem.path)),
        )

    def text(self, skill: Skill, may_read: MayRead = reads_all) -> tuple[str | None, str | None]:
        """Return the text of the skill that the user gives to the model, or the reason why it cannot be read. Blocks.

        A skill of the project is not given if commands may not read it; the user's own skills are.
        """
        if skill.owner is SkillOwner.REPOSITORY and not may_read(real_path(skill.path)):
            return None, "the permission profile hides it"
        try:
            body = read_skill_file(skill.path, skill.place, MAX_SKILL_BYTES, str(self._home), whole=True)
        except UnreadableSkill as problem:
            return None, str(problem)
        text = f"{SKILL_HEAD}<name>{skill.name}</name>\n<path>{skill.path}</path>\n{body}\n</skill>"
        return text, None

    def _present_switches(self) -> Sequence[SkillSwitch]:
        """Read which skills are enabled. If the file cannot be read at the moment, the last values stay."""
        try:
            self._switches = skill_switches(self._home)
        except ConfigError:
            pass
        return self._switches


def _readable(found: SkillSet, may_read: MayRead) -> SkillSet:
    return replace(found, skills=tuple(skill for skill in found.skills if may_read(real_path(skill.path))))


PROJECT_FOLDERS = (".agents/skills", ".codex/skills")
SYSTEM_FOLDER = ".system"
"""Name of a folder in the home's folder of skills; the only one there whose name may begin with a dot."""

MAX_DEPTH = 6
MAX_FOLDERS = 2000
"""Maximum number of folders that are searched below one root."""
MAX_SKILLS = 1000
"""Maximum number of skills for one working directory, including problems."""
HEAD_BYTES = 64 * 1024
"""Size of the part of a file that is read for its front matter, in bytes."""
MAX_NAME = 64
MAX_DESCRIPTION = 4096
"""Maximum length of a description, in characters. A longer one is cut: a description is a sentence or two."""


class UnreadableSkill(Exception):
    """A SKILL.md that is not read. The text is a sentence for the user."""


class SkillRoot(Struct, frozen=True):
    folder: str
    owner: SkillOwner
    place: SkillPlace = SkillPlace()


def project_roots(cwd: Path, environment: Mapping[str, str] = NO_VARIABLES) -> list[SkillRoot]:
    project = project_of(
        cwd,
        "skills",
        lambda refusal: None,
        lambda folder: safe_directories.is_safe_directory(folder, environment),
    )
    place = SkillPlace(real_path(project.folders[0]), project.owner)
    return [
        SkillRoot(str(folder / name), SkillOwner.REPOSITORY, place)
        for folder in project.folders
        for name in PROJECT_FOLDERS
    ]


def discover(roots: Sequence[SkillRoot], home: str | None = None) -> tuple[list[Skill], list[SkillProblem]]:
    """Find all skills. A file that several roots lead to belongs to the first of them. `home`: the home of the server,
    whose credentials are not read.
    """
    found: dict[str, Skill | SkillProblem] = {}
    for root in roots:
        for path in _skill_files(root):
            if len(found) >= MAX_SKILLS:
                break
            if path in found:
                continue
            try:
                found[path] = _skill(path, root, home)
            except (UnreadableSkill, NoFrontMatter) as problem:
                found[path] = SkillProblem(path, str(problem))
    skills = [each for each in found.values() if isinstance(each, Skill)]
    return skills, [each for each in found.values() if isinstance(each, SkillProblem)]


def _skill_files(root: SkillRoot) -> Iterator[str]:
    """Yield the SKILL.md files below a root, the nearest first, each with the real path of its folder."""
    seen: set[str] = set()
    folders = [(real_path(root.folder), 0)]
    while folders:
        folder, depth = folders.pop(0)
        if folder in seen or len(seen) >= MAX_FOLDERS or _is_outside(folder, root.place.inside):
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
        with RootDir(folder) as opened:
            # Other names cannot be sent, to clients as Unicode or to the model as part of a line.
            return sorted(name for name in opened.list(most=MAX_FOLDERS) if name.isprintable())
    except OSError:
        return []


def _is_outside(path: str, inside: str | None) -> bool:
    return inside is not None and not Path(path).is_relative_to(inside)


def _skill(path: str, root: SkillRoot, home: str | None) -> Skill:
    settings = front_matter(read_skill_file(path, root.place, HEAD_BYTES, home, whole=False))
    description = one_line(settings.get("description", ""))
    if not description:
        raise UnreadableSkill("missing field `description`")
    name = one_line(settings.get("name", "")) or os.path.basename(os.path.dirname(path))
    if len(name) > MAX_NAME:
        raise UnreadableSkill(f"invalid name: exceeds maximum length of {MAX_NAME} characters")
    folder = os.path.dirname(path)
    more = _more_settings(folder, root, home)
    short = one_line(settings.get("metadata.short-description", ""))
    return Skill(
        name=name,
        description=description[:MAX_DESCRIPTION],
        short_description=short[:MAX_DESCRIPTION] or None,
        path=path,
        owner=root.owner,
        place=root.place,
        implicit=is_implicit(more),
        appearance=appearance(more, folder),
    )


def _more_settings(folder: str, root: SkillRoot, home: str | None) -> Mapping[str, str]:
    """Return the settings beside the SKILL.md; empty if there is no such file, or if it cannot be read."""
    path = os.path.join(folder, SETTINGS_FILE)
    if not os.path.lexists(path):
        return {}
    try:
        return plain_yaml(read_skill_file(path, root.place, HEAD_BYTES, home, whole=True))
    except UnreadableSkill:
        return {}


def read_skill_file(path: str, place: SkillPlace, limit: int, home: str | None = None, *, whole: bool) -> str:
    """Read at most `limit` bytes of a file; no link may lead out of its place. `whole`: a longer file is refused.
    Raises UnreadableSkill.
    """
    try:
        with RootDir(place.inside or "/", home) as root:
            name = os.path.relpath(os.fsencode(path), root.root)
            with root.opened(name, follow_links=True) as (descriptor, facts):
                looked_at = () if place.inside is None else (root.stat(name), facts)
                if any(belongs_to_another(each, place.other_owner) for each in looked_at):
                    raise UnreadableSkill("it belongs to another user and is not read")
                if whole and facts.st_size > limit:
                    raise UnreadableSkill(f"it is longer than {limit:,} bytes")
                return text_of_bytes(os.read(descriptor, limit), errors="replace")
    except IsADirectoryError as error:
        raise UnreadableSkill("it is not a regular file") from error
    except RefusedName as refused:
        raise UnreadableSkill(f"it is {refused.strerror}") from refused
    except OSError as error:
        raise UnreadableSkill(describe(error)) from error
