"""The skills of one server: where they are looked for, which are switched on, and their texts.

Looks anew each time, so an edit counts from the next turn on. Notifies listeners when the skills of a directory are
no longer those that a client was last sent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio

from app_server.core.config.skill_switches import SkillSwitch, is_enabled, skill_switches
from app_server.core.errors import ConfigError
from app_server.core.injected_messages import SKILL_HEAD
from app_server.core.skills import discover
from app_server.core.skills.skill import Skill, SkillOwner, SkillSet, skills_message
from app_server.core.threads import run_in_thread
from protocol.responses import MessageItem, ResponseItem
from protocol.structs import replace

FOLDER = "skills"
USER_FOLDER = ".agents/skills"
MAX_SKILL_BYTES = 256 * 1024
LOOK_SECONDS = 3.0
"""A turn does not wait longer for a slow disk; it begins without news of skills then."""
MAX_SENT = 1000


class SkillCatalog:
    """One for the process."""

    def __init__(self, home: Path, user_home: str | None) -> None:
        self._home, self._user_home = home, user_home
        self._extra_roots: tuple[str, ...] = ()
        self._switches: Sequence[SkillSwitch] = ()
        self._sent: dict[str, SkillSet] = {}
        """By directory, what a client was sent."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when what a client was sent is no longer so."""

    def set_extra_roots(self, folders: Sequence[str]) -> None:
        """Set further folders with skills of the user's, until the server ends, in place of those of before."""
        self._extra_roots = tuple(folders)

    async def list(self, cwd: Path) -> SkillSet:
        """Return the skills for a client, who is notified when they change."""
        found = await run_in_thread(self.find, cwd, abandon_on_cancel=True)
        while len(self._sent) >= MAX_SENT:
            del self._sent[next(iter(self._sent))]
        self._sent[str(cwd)] = found
        return found

    async def look(self, cwd: Path) -> SkillSet | None:
        """Read the skills for a turn; None where the disk takes too long."""
        with anyio.move_on_after(LOOK_SECONDS):
            found = await run_in_thread(self.find, cwd, abandon_on_cancel=True)
            if self._sent.get(str(cwd), found) != found:
                del self._sent[str(cwd)]
                self.on_change()
            return found
        return None

    async def message(self, cwd: Path, history: Sequence[ResponseItem]) -> MessageItem | None:
        """Return what the model has to be sent before a turn; None where it knows."""
        found = await self.look(cwd)
        return None if found is None else skills_message(found, history)

    def find(self, cwd: Path) -> SkillSet:
        """Find the skills. Blocks: call it in a thread."""
        user = [discover.SkillRoot(str(self._home / FOLDER), SkillOwner.USER)]
        if self._user_home and os.path.isabs(self._user_home):
            user.append(discover.SkillRoot(os.path.join(self._user_home, USER_FOLDER), SkillOwner.USER))
        user += [discover.SkillRoot(folder, SkillOwner.USER) for folder in self._extra_roots]
        user.append(discover.SkillRoot(str(self._home / FOLDER / discover.SYSTEM_FOLDER), SkillOwner.SYSTEM))
        # The user's own come first: where the working directory is their home, these are not the repository's.
        skills, problems = discover.discover([*user, *discover.project_roots(cwd)], str(self._home))
        switches = self._present_switches()
        marked = [replace(skill, enabled=is_enabled(switches, skill.name, skill.path)) for skill in skills]
        return SkillSet(
            tuple(sorted(marked, key=lambda skill: (skill.owner.value, skill.name, skill.path))),
            tuple(sorted(problems, key=lambda problem: problem.path)),
        )

    def text(self, skill: Skill) -> tuple[str | None, str | None]:
        """Return the whole skill as the user hands it to the model, or why it cannot be read. Blocks."""
        try:
            body = discover.read_skill_file(
                skill.path, skill.inside, MAX_SKILL_BYTES, str(self._home), whole=True
            )
        except discover.UnreadableSkill as problem:
            return None, str(problem)
        text = f"{SKILL_HEAD}<name>{skill.name}</name>\n<path>{skill.path}</path>\n{body}\n</skill>"
        return text, None

    def _present_switches(self) -> Sequence[SkillSwitch]:
        """Read the switches. A file that cannot be read for the moment switches nothing on that was off."""
        try:
            self._switches = skill_switches(self._home)
        except ConfigError:
            pass
        return self._switches
