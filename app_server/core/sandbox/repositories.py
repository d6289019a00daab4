"""Finds the git repositories inside a root, with a bound on what that costs each command.

A survey looks through the upper levels of the root once, before the conversation's first command. What it finds is
remembered, so that no number of new folders can crowd it out. Later only the folders directly in the root are looked
at, some of them with each command.
"""

from __future__ import annotations

import os
from collections import deque

from app_server.core.errors import raise_shortage
from app_server.core.sandbox.confine.placeholder_mark import is_placeholder
from app_server.core.sandbox.resolve import exists

SURVEY_LEVELS = 2
"""How deep the survey goes: `root/a/b/.git` is found. Deeper ones are as a rule what a build has fetched, and what a
build must be able to remove.
"""

SURVEY_ENTRIES = 8192
"""So many entries of folders are looked at by a survey, those directly in the root first."""

MAX_ENTRIES = 4096
"""So many entries of one folder are looked at."""

MAX_LOOKS = 256
"""So many folders are looked at with each command: new ones and, in turn, the others."""

MAX_REPOSITORIES = 256
"""Repositories of a root that are protected; each costs a command two mounts or more."""


class NestedRepositories:
    """The `.git` of each repository that was found inside one root."""

    def __init__(self, root: str, levels: int = SURVEY_LEVELS) -> None:
        self._root, self._levels = root, levels
        self._found: dict[str, None] = {}
        self._seen: dict[str, None] = {}
        """The folders directly in the root, the one that was looked at longest ago first."""
        self._surveyed = False
        self.incomplete = False
        """The root holds more than is looked at: there may be repositories that are not known."""

    def pointers(self) -> list[str]:
        """What is there now of all that was ever found. Looks for more. Raises SandboxShortage; then the next call does
        what this one should have done.
        """
        if self._surveyed:
            self._look_again()
        else:
            self._survey()
        there = [pointer for pointer in self._found if self._is_there(pointer)]
        self.incomplete = self.incomplete or len(there) > MAX_REPOSITORIES
        return there[:MAX_REPOSITORIES]

    def _is_there(self, pointer: str) -> bool:
        """Still there, and not by a link that has taken the place of a folder."""
        if not exists(pointer):
            return False
        folder = os.path.dirname(pointer)
        while folder != self._root:
            if os.path.islink(folder):
                return False
            folder = os.path.dirname(folder)
        return True

    def _survey(self) -> None:
        waiting = deque([(self._root, 1)])
        left = SURVEY_ENTRIES
        while waiting and left > 0:
            folder, level = waiting.popleft()
            folders, looked_at = self._folders(folder, min(left, MAX_ENTRIES))
            left -= looked_at
            for inner in folders:
                if level == 1:
                    self._seen[inner] = None
                self._look_into(inner)
                if level < self._levels:
                    waiting.append((inner, level + 1))
        self._surveyed = True

    def _look_again(self) -> None:
        now = dict.fromkeys(self._folders(self._root, MAX_ENTRIES)[0])
        if len(now) <= MAX_LOOKS:
            self._seen = now
            for folder in now:
                self._look_into(folder)
            return
        new = [folder for folder in now if folder not in self._seen]
        self._seen = {folder: None for folder in self._seen if folder in now}
        turns = MAX_LOOKS // 2
        for folder in (*new[:turns], *list(self._seen)[:turns]):
            self._look_into(folder)
            self._seen.pop(folder, None)
            self._seen[folder] = None

    def _look_into(self, folder: str) -> None:
        pointer = f"{folder}/.git"
        # What keeps another conversation's command from creating a `.git` is no repository.
        if exists(pointer) and not is_placeholder(pointer):
            self._found[pointer] = None

    def _folders(self, folder: str, most: int) -> tuple[list[str], int]:
        """The folders in a folder, no links, and how many entries were looked at. `.git` is none that a repository is
        looked for in.
        """
        found: list[str] = []
        number = 0
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if number == most:
                        self.incomplete = self.incomplete or folder == self._root
                        break
                    number += 1
                    if entry.name != ".git" and entry.is_dir(follow_symlinks=False):
                        found.append(entry.path)
        except OSError as error:
            raise_shortage(error, f"{folder} cannot be looked through")
        return found, number
