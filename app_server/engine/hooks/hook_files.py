"""Finds and reads the hooks of a thread: those of the home, of a trusted project's folders from its root to the working
directory, of the command line and of the request that opened the thread; and the settings and the user's consent. Reads
the disk; blocks.

The content of a repository is not trusted: its files are opened beneath its root, and only if they belong to the user.
A project's own settings change nothing about hooks: neither consent nor switches are read from there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from app_server.engine.config.config_values import Config
from app_server.engine.config.hook_settings import HOOKS, STATE, hook_states
from app_server.engine.config.layers import merge, value_at
from app_server.engine.config.project_trust import trust_of
from app_server.engine.config.safe_file import UnreadableFileError, read_regular_file
from app_server.engine.config.settings_reader import SettingError, SettingsTable
from app_server.engine.config.toml_file import CONFIG_FILE, parse_toml, read_config_file
from app_server.engine.hooks.command_files import HookPlace
from app_server.engine.hooks.hook_definitions import (
    HookHandler,
    HookProblem,
    HookSettings,
    LoadedHooks,
    MayApprove,
    OnFailure,
)
from app_server.engine.hooks.hook_entries import EntryProblem, read_entries
from app_server.engine.hooks.hook_presence import CODEX_FOLDER, HOOKS_FILE
from app_server.engine.hooks.trust import HookConsent
from app_server.engine.support.engine_errors import ConfigError, describe
from app_server.engine.support.real_path import real_path
from app_server.engine.support.rooted_fs import RootDir, TooLarge
from app_server.engine.workspace.git.repository import Project, belongs_to_another, project_of
from app_server.engine.workspace.git.safe_directories import is_safe_directory
from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookEvent, HookSource
from app_server_protocol.policy import CLAUDE_FOLDER
from app_server_protocol.values import replace

CLAUDE_SETTINGS: Final = f"{CLAUDE_FOLDER}/settings.json"
SESSION_FILE: Final = "/<session-flags>/config.toml"
"""Path in the keys of hooks that the command line or a request gives, as in codex: consent to them is by it."""
MOST_BYTES: Final = 1 << 20
"""Maximum size of a hook file, in bytes."""


class _File(Struct, frozen=True):
    """The hooks of one file, as they stand there."""

    path: str
    source: HookSource
    table: Json


class HasEnvironment(Protocol):
    @property
    def environment(self) -> Mapping[str, str]: ...


class HookFiles:
    """The hooks of one thread. They are read again for each turn."""

    def __init__(self, config: Config, client: HasEnvironment) -> None:
        self._config, self._client = config, client
        self._consent = HookConsent()
        self._last: tuple[str, LoadedHooks] | None = None
        """The working directory and the hooks of the last turn."""

    def load(self, cwd: str) -> LoadedHooks:
        """Return the hooks for a working directory as they are now. If the settings have become unreadable, those of
        the turn before stay; raises ConfigError if there was none.
        """
        try:
            found = self._load(cwd)
        except ConfigError as error:
            if self._last is None or self._last[0] != cwd:
                raise
            text = f"the hooks of the turn before stay in force: {error}"
            return replace(self._last[1], warnings=(*self._last[1].warnings, text))
        self._last = cwd, found
        return found

    def _load(self, cwd: str) -> LoadedHooks:
        file = read_config_file(self._config.home)
        layered = merge(file, self._config.hook_overrides)
        table = value_at(layered, (HOOKS,))
        table = table if isinstance(table, Mapping) else {}
        settings, problems = _settings(table), list[HookProblem]()
        project = self._project(cwd, layered, problems)
        warnings: list[str] = []
        files = [*self._of_home(file, problems, warnings)]
        if project is not None:
            files += self._of_project(project, problems, warnings)
        if given := _events(self._config.hook_overrides.get(HOOKS)):
            files.append(_File(SESSION_FILE, HookSource.SESSION, given))
        root = str(project.folders[0] if project is not None else real_path(cwd))
        own = {"CODEX_HOME": str(self._config.home), "CLAUDE_PROJECT_DIR": root}
        place = HookPlace(cwd, {**self._client.environment, **own})
        states = hook_states(table.get(STATE))
        by_event: dict[HookEvent, list[HookHandler]] = {}
        order = 0
        for each in files:
            for handler in _handlers(each, problems, warnings):
                judged = self._consent.judged(handler, states.get(handler.key), place)
                by_event.setdefault(handler.event, []).append(replace(judged, display_order=order))
                order += 1
        return LoadedHooks(
            by_event={event: tuple(handlers) for event, handlers in by_event.items()},
            settings=settings,
            warnings=tuple(warnings),
            problems=tuple(problems),
            switched_off=value_at(layered, ("features", HOOKS)) is False,
            project_root=root,
        )

    def files_of(self, handler: HookHandler) -> Mapping[str, str]:
        """Return the digests of the files that a handler names, to which the user agrees with it."""
        return self._consent.digests_of(handler)

    def _project(self, cwd: str, layered: Mapping[str, Json], problems: list[HookProblem]) -> Project | None:
        """Return the project if the user trusts it."""
        projects = layered.get("projects")
        levels = {
            path: level
            for path, entry in (projects.items() if isinstance(projects, Mapping) else ())
            if isinstance(level := value_at(entry, ("trust_level",)), str)
        }
        if trust_of(Path(cwd), levels) is not True:
            return None
        environment = self._client.environment
        return project_of(
            Path(cwd),
            "hooks",
            lambda refusal: problems.append(HookProblem(cwd, refusal)),
            lambda folder: is_safe_directory(folder, environment),
        )

    def _of_home(
        self, settings: Mapping[str, Json], problems: list[HookProblem], warnings: list[str]
    ) -> Iterator[_File]:
        path = self._config.home / HOOKS_FILE
        try:
            content = read_regular_file(path, MOST_BYTES)
        except UnreadableFileError as problem:
            problems.append(HookProblem(str(path), f"cannot be read: {problem}"))
            content = None
        table = None if content is None else _json_hooks(str(path), content, problems)
        if table is not None:
            yield _File(str(path), HookSource.USER, table)
        inline = _events(settings.get(HOOKS))
        if inline:
            beside = self._config.home / CONFIG_FILE
            if table is not None:
                warnings.append(_both(str(path), str(beside)))
            yield _File(str(beside), HookSource.USER, inline)

    def _of_project(
        self, project: Project, problems: list[HookProblem], warnings: list[str]
    ) -> Iterator[_File]:
        home = real_path(self._config.home)
        reader = _ProjectReader(project, home, problems)
        for folder in project.folders:
            if real_path(folder / CODEX_FOLDER) != home:
                path, beside = (folder / CODEX_FOLDER / name for name in (HOOKS_FILE, CONFIG_FILE))
                table = reader.json_hooks(path)
                if table is not None:
                    yield _File(str(path), HookSource.PROJECT, table)
                inline = reader.toml_hooks(beside, warnings)
                if inline:
                    if table is not None:
                        warnings.append(_both(str(path), str(beside)))
                    yield _File(str(beside), HookSource.PROJECT, inline)
            # They are read only where no command and no patch can have written them.
            if CLAUDE_FOLDER in self._config.permissions.protected_folders:
                table = reader.json_hooks(folder / CLAUDE_SETTINGS)
                if table is not None:
                    yield _File(str(folder / CLAUDE_SETTINGS), HookSource.PROJECT, table)


class _ProjectReader(Struct, frozen=True):
    """Reads hook files of one project."""

    project: Project
    home: str
    problems: list[HookProblem]

    def json_hooks(self, path: Path) -> Json:
        content = self._content(path)
        return None if content is None else _json_hooks(str(path), content, self.problems)

    def toml_hooks(self, path: Path, warnings: list[str]) -> Mapping[str, Json]:
        content = self._content(path)
        if content is None:
            return {}
        try:
            table = parse_toml(content, path).get(HOOKS)
        except ConfigError as error:
            self.problems.append(HookProblem(str(path), str(error)))
            return {}
        if isinstance(table, Mapping) and STATE in table:
            warnings.append(
                f"`hooks.state` in {path} has no effect: only the user's settings say which hooks run"
            )
        return _events(table)

    def _content(self, path: Path) -> bytes | None:
        if not os.path.lexists(path):
            return None
        root = self.project.folders[0]
        try:
            with RootDir(root, self.home) as opened:
                name = os.path.relpath(path, root)
                with opened.opened(name, follow_links=True) as (_, facts):
                    looked_at = (opened.stat(name), facts)
                if any(belongs_to_another(each, self.project.owner) for each in looked_at):
                    raise PermissionError("it belongs to another user")
                return opened.read(name, MOST_BYTES, follow_links=True)
        except TooLarge:
            problem = f"it is larger than {MOST_BYTES:,} bytes"
        except OSError as error:
            problem = describe(error) if error.errno else str(error)
        self.problems.append(HookProblem(str(path), f"cannot be read: {problem}"))
        return None


def _handlers(file: _File, problems: list[HookProblem], warnings: list[str]) -> Iterator[HookHandler]:
    for found in read_entries(file.table):
        match found:
            case EntryProblem(message=message, is_warning=True):
                warnings.append(f"{file.path}: {message}")
            case EntryProblem(message=message):
                problems.append(HookProblem(file.path, message))
            case _:
                key = f"{file.path}:{found.definition.event.snake}:{found.group}:{found.index}"
                yield HookHandler(
                    definition=found.definition,
                    source=file.source,
                    source_path=file.path,
                    group=found.group,
                    index=found.index,
                    key=key,
                    digest=found.digest,
                )


def _json_hooks(path: str, content: bytes, problems: list[HookProblem]) -> Json:
    """Return the value of the key `hooks`; None if there is none, or if the file cannot be understood."""
    try:
        whole: Json = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problems.append(HookProblem(path, f"is not valid JSON: {error}"))
        return None
    if not isinstance(whole, Mapping):
        problems.append(HookProblem(path, "must be an object with the key `hooks`"))
        return None
    misplaced = next((event for event in HookEvent if event.value in whole), None)
    if misplaced is not None and HOOKS not in whole:
        problems.append(HookProblem(path, f"`{misplaced}` must stand in the object `hooks`"))
    return None if whole.get("disableAllHooks") is True else whole.get(HOOKS)


def _events(table: Json) -> Mapping[str, Json]:
    """Return the hooks of a table `[hooks]`, without its settings."""
    names = {event.value for event in HookEvent}
    return (
        {name: groups for name, groups in table.items() if name in names}
        if isinstance(table, Mapping)
        else {}
    )


def _settings(table: Mapping[str, Json]) -> HookSettings:
    """Return the checked settings of `[hooks]`. Raises SettingError."""
    if not isinstance(table, Mapping):
        raise SettingError("`hooks` must be a table", (HOOKS,))
    found = SettingsTable({HOOKS: table}).table(HOOKS)
    return HookSettings(
        on_failure=OnFailure(found.get("on_failure")),
        max_stop_blocks=found.get("max_stop_blocks"),
        may_approve=MayApprove(found.get("may_approve")),
        project_sandbox=found.get("project_sandbox"),
    )


def _both(path: str, beside: str) -> str:
    return f"hooks are read from both {path} and {beside}; one of them is easier to keep in view"
