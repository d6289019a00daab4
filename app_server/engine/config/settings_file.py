"""Shows and writes the user's file for clients. Import it late: most servers do neither.

1. The file has one writer at a time.
2. New content is checked first. It replaces the whole file, and keeps its mode.
3. A link at the file's path is followed once, so that settings stored elsewhere stay there, and the link stays a link.
4. A client's edit is written only if the file was not changed since the client read it, and only if conversations can
   begin with the new settings.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server.engine.config import effective, toml_text
from app_server.engine.config.client_limits import OPEN, is_fenced
from app_server.engine.config.config_values import CliOverrides, RequestOverrides, SettingsSource
from app_server.engine.config.effective import SettingEdit, UnsafeEdit, edited, same_settings
from app_server.engine.config.layers import Layered, combine, key_in_file, value_at
from app_server.engine.config.resolve import read_approval_policy, resolve
from app_server.engine.config.safe_file import write_file_atomically
from app_server.engine.config.settings_reader import SettingError, SettingsTable
from app_server.engine.config.settings_table import ABOUT_CLIENTS
from app_server.engine.config.skill_switches import SkillSwitch, switched
from app_server.engine.config.tolerance import without_wrong_entries
from app_server.engine.config.toml_file import (
    CONFIG_FILE,
    parse_toml,
    places_in_file,
    read_config_bytes,
    read_config_file,
)
from app_server.engine.support.engine_errors import ConfigError, InvalidSettings, VersionConflict, describe
from app_server.engine.support.real_path import real_path
from app_server.engine.support.text_of_bytes import text_of_bytes
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.encoding import Json
from app_server_protocol.policy import ReasoningEffort, WorkspaceWrite, known_effort

if TYPE_CHECKING:
    import anyio


MOST_EDITS = 1000
"""Maximum number of edits in one request. Each may be a whole table."""


class SettingsFile(Struct, frozen=True):
    """Shows and writes the settings of one home."""

    place: SettingsSource
    writes: anyio.Lock
    """Lock that keeps the order of this server's writes. A lock on the home excludes other servers."""

    def shown(self) -> effective.EffectiveSettings:
        """Return the effective settings with their layers, without credentials. Raises ConfigError."""
        try:
            return effective.effective_settings(
                read_config_file(self.place.home), self.place.cli
            ).without_credentials()
        except RecursionError as error:
            raise ConfigError("failed to load configuration: it is nested too deeply") from error

    def saved(self) -> Mapping[str, Json]:
        """Return the settings of the file, in the fields of `UserSavedConfig`. Raises ConfigError."""
        try:
            file = read_config_file(self.place.home)
            shown, _ = without_wrong_entries(
                file,
                lambda left: Layered(left, None),
                lambda layered: saved_settings(SettingsTable(layered.settings)),
                lambda key, _: key if value_at(file, key) is not None else None,
            )
            return shown
        except SettingError as error:
            place = places_in_file(self.place.home, [error.key]).get(error.key)
            raise SettingError(error.problem, error.key, place) from error

    async def write(
        self, edits: Sequence[tuple[str, Json, bool]], expected_version: str | None = None
    ) -> effective.WriteOutcome:
        """Make all edits or none. Each edit has a key, its new value, and whether a table is merged into the existing
        one.

        Raises VersionConflict or InvalidSettings, or ConfigError if the file cannot be changed.
        """
        if len(edits) > MOST_EDITS:
            raise InvalidSettings(f"at most {MOST_EDITS} edits are made at once")
        changes = [effective.setting_edit(key, value, merge=merge) for key, value, merge in edits]
        async with self.writes:
            return await run_in_thread(write_settings, self.place, changes, expected_version)

    async def set_default_model(self, model: str | None, effort: ReasoningEffort | None) -> None:
        """Write the model and effort with which conversations start; None removes the setting. Raises ConfigError."""
        async with self.writes:
            await run_in_thread(set_default_model, self.place.home, model, effort)

    async def switch_skill(self, name: str | None, path: str | None, *, enabled: bool) -> None:
        """Switch a skill on or off, by its name or by the path of its file. Raises ConfigError."""
        async with self.writes:
            change = partial(switched, switch=SkillSwitch(name=name, path=path, enabled=enabled))
            await run_in_thread(rewrite_config, self.place.home, change)

    def is_users_file(self, path: str) -> bool:
        """Return whether a path is that of the user's file. A link at the path is not followed."""
        folder, name = os.path.split(os.path.normpath(path))
        if not os.path.isabs(path) or name != CONFIG_FILE:
            return False
        return folder == os.path.normpath(self.place.home) or real_path(folder) == real_path(self.place.home)


OF_PROFILES = ("model", "model_provider", "model_reasoning_summary", "model_verbosity", "chatgpt_base_url")
AT_THE_TOP = (
    *("sandbox_mode", "forced_chatgpt_workspace_id", "forced_login_method", "profile"),
    *("model", "model_reasoning_summary", "model_verbosity"),
)


def saved_settings(settings: SettingsTable) -> Mapping[str, Json]:
    """Return the settings of the file, in the fields of `UserSavedConfig`."""
    return {
        **_shown(settings, AT_THE_TOP),
        "sandbox_settings": _sandbox_settings(settings),
        "tools": _tools(settings),
        "profiles": {name: _shown(profile, OF_PROFILES) for name, profile in settings.profiles().items()},
    }


def _shown(settings: SettingsTable, names: tuple[str, ...]) -> Mapping[str, Json]:
    return {
        **{name: settings.get(name) if name in settings else None for name in names},
        "approval_policy": read_approval_policy(settings)[0],
        "model_reasoning_effort": known_effort(settings.get("model_reasoning_effort")),
    }


def _sandbox_settings(settings: SettingsTable) -> Mapping[str, Json] | None:
    table = settings.tables.get("sandbox_workspace_write")
    if table is None:
        return None
    shown = table.build(WorkspaceWrite)
    return {name: getattr(shown, name) for name in WorkspaceWrite.__struct_fields__ if name != "mode"}


def _tools(settings: SettingsTable) -> Mapping[str, Json] | None:
    tools = settings.tables.get("tools")
    if tools is None:
        return None
    web_search = tools.get("web_search")
    return {
        "web_search": tools.get("web_search_request") if web_search is None else web_search,
        "view_image": tools.get("view_image"),
    }


NEW_FILE_MODE = 0o600

MAX_EDITED_BYTES = 1024 * 1024
"""Maximum size of a file that is edited, in bytes. The parser that preserves comments takes seconds for this size."""

MOST_ATTEMPTS = 5
"""Maximum number of attempts of an edit. The edit is retried if a program that does not know our lock writes the file
between our read and our write.
"""

LOCK_SECONDS = 2.0
"""Maximum wait for the lock, in seconds. Another server holds it for one edit of a small file."""

Change = Callable[[Mapping[str, Json]], Mapping[str, Json]]
"""Function that returns the new settings for the present ones. It may raise, which leaves the file unchanged, and may
be called again.
"""


def rewrite_config(home: Path, change: Change) -> Mapping[str, Json]:
    """Change the file; return its new settings. Raises ConfigError if it cannot be changed; then it stays as it was."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_change(home / CONFIG_FILE, describe(error)) from error
    with _only_writer(home):
        path = _real_file(home / CONFIG_FILE)
        for _ in range(MOST_ATTEMPTS):
            data = read_config_bytes(path)
            before = parse_toml(data or b"", path)
            after = change(before)
            if same_settings(before, after):
                return before
            new = _new_content(path, data or b"", before, after)
            if read_config_bytes(path) == data:
                _replace(path, new)
                return after
    raise _cannot_change(path, "another program keeps changing it")


def set_default_model(home: Path, model: str | None, effort: ReasoningEffort | None) -> None:
    """Write the model and effort that new conversations start with; None removes the setting.

    They go into the profile that the file selects, else to the top level.
    """

    def change(settings: Mapping[str, Json]) -> Mapping[str, Json]:
        profile = settings.get("profile")
        place = ("profiles", profile) if isinstance(profile, str) and profile else ()
        edits = (
            SettingEdit((*place, "model"), model),
            SettingEdit((*place, "model_reasoning_effort"), None if effort is None else str(effort)),
        )
        try:
            return edited(settings, edits)
        except InvalidSettings as error:
            raise _cannot_change(home / CONFIG_FILE, str(error)) from error

    rewrite_config(home, change)


def _new_content(path: Path, data: bytes, before: Mapping[str, Json], after: Mapping[str, Json]) -> bytes:
    if len(data) > MAX_EDITED_BYTES:
        raise _cannot_change(path, "it is too large to edit")
    try:
        new = toml_text.edited_text(text_of_bytes(data), before, after).encode()
    except (UnsafeEdit, UnicodeEncodeError) as error:
        raise _not_safe(path) from error
    if len(new) > MAX_EDITED_BYTES:
        raise _cannot_change(path, "it would become too large to edit")
    try:
        written = parse_toml(new, path)
    except ConfigError as error:
        raise _not_safe(path) from error
    if not same_settings(written, after):
        raise _not_safe(path)
    return new


@contextmanager
def _only_writer(home: Path) -> Iterator[None]:
    """Hold the lock of the home. If the file system has no locks, the file is written without one."""
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not _locked(folder):
            if time.monotonic() > deadline:
                raise _cannot_change(home / CONFIG_FILE, "another server is changing it")
            time.sleep(0.01)
        yield
    finally:
        os.close(folder)


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR)
    return True


def _real_file(path: Path) -> Path:
    """Return the target of a link at `path`, so that the edit keeps the link."""
    if not path.is_symlink():
        return path
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise _cannot_change(path, "it is a link to a file that does not exist") from error


def _replace(path: Path, data: bytes) -> None:
    try:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
        except FileNotFoundError:
            mode = NEW_FILE_MODE
        write_file_atomically(path, data, mode)
    except OSError as error:
        raise _cannot_change(path, describe(error)) from error


def _not_safe(path: Path) -> ConfigError:
    return _cannot_change(path, "its form does not allow a safe edit; change it by hand")


def _cannot_change(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"failed to change {path}: {reason}")


def write_settings(
    place: SettingsSource, edits: Sequence[SettingEdit], expected_version: str | None = None
) -> effective.WriteOutcome:
    """Make all edits or none. Raises VersionConflict, InvalidSettings or ConfigError."""

    def change(settings: Mapping[str, Json]) -> Mapping[str, Json]:
        if expected_version not in (None, effective.settings_version(settings)):
            raise VersionConflict(
                "Configuration was modified since last read. Fetch latest version and retry."
            )
        after = edited(settings, edits)
        _check(place, settings, after, edits)
        return after

    written = rewrite_config(place.home, change)
    return effective.WriteOutcome(effective.settings_version(written), _overridden(written, place.cli, edits))


def _check(
    place: SettingsSource,
    before: Mapping[str, Json],
    after: Mapping[str, Json],
    edits: Sequence[SettingEdit],
) -> None:
    """Raise InvalidSettings if conversations could not begin with `after`, or if an edit changes a setting that clients
    may not change.

    The file also has to be correct without the command line, because other programs read it, unless it was wrong
    before.
    """
    if _about_clients(before) != _about_clients(after):
        raise InvalidSettings(f"`{ABOUT_CLIENTS}` says what clients may do: only the user changes it")
    closed = next((edit.key[0] for edit in edits if edit.key[0] not in OPEN), None)
    if closed is not None and is_fenced(before, place.cli):
        raise InvalidSettings(f"only the user changes `{closed}`, because app_server.client_rights is false")
    by_itself = _problems(place, before, CliOverrides())
    known = _problems(place, before, place.cli) | by_itself
    found = _problems(place, after, place.cli)
    if not any(by_itself.values()):
        found |= _problems(place, after, CliOverrides())
    for profile in (edit.key[1] for edit in edits if edit.key[0] == "profiles" and len(edit.key) > 1):
        if isinstance(value_at(after, ("profiles", profile)), Mapping):
            found |= _problems(place, after, CliOverrides(profile=profile))
    for problem, is_fatal in found.items():
        if is_fatal or problem not in known:
            raise InvalidSettings(f"Invalid configuration: {problem}")


def _problems(place: SettingsSource, settings: Mapping[str, Json], cli: CliOverrides) -> dict[str, bool]:
    """Return the errors in settings. The value says whether the error stops conversations from beginning."""
    asked = RequestOverrides()
    try:
        _, left_out = without_wrong_entries(
            settings,
            lambda file: combine(file, cli, asked),
            lambda layered: resolve(layered, place),
            lambda key, layered: key_in_file(key, settings, cli, asked, layered.profile),
        )
    except SettingError as error:
        return {error.problem: True}
    except ConfigError as error:
        return {str(error): True}
    except RecursionError:
        return {"the settings are nested too deeply": True}
    return {warning.text: False for warning in left_out}


def _about_clients(settings: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return the settings about clients in the file, by the profile that has them."""
    tables = {"": settings.get(ABOUT_CLIENTS)}
    profiles = settings.get("profiles")
    for name, profile in profiles.items() if isinstance(profiles, Mapping) else ():
        tables[f"profile {name}"] = profile.get(ABOUT_CLIENTS) if isinstance(profile, Mapping) else None
    return {place: table for place, table in tables.items() if table is not None}


def _overridden(
    settings: Mapping[str, Json], cli: CliOverrides, edits: Sequence[SettingEdit]
) -> effective.Overridden | None:
    """Return the first edit whose value is overridden by another layer; None if there is none."""
    in_force = effective.effective_settings(settings, cli)
    for edit in edits:
        counts = value_at(in_force.settings, edit.key)
        if counts == value_at(settings, edit.key):
            continue
        for layer in in_force.layers:
            if layer.kind is not effective.LayerKind.USER and value_at(layer.settings, edit.key) is not None:
                return effective.Overridden(edit.key, layer, effective.shown_value(counts, edit.key))
    return None
