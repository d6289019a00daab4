"""Parses the permission profiles of the settings, `[permissions.NAME]`, and knows the built-in ones. The profile is
chosen by `default_permissions`. Pure.

A profile is parsed when it is chosen or listed: an error in a profile that is not chosen causes only a warning. The
texts of errors are those that clients of codex 0.171 show. A rule that cannot be enforced is replaced by the nearest
one that grants no more, and a notice says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from app_server.engine.config.config_values import SettingsWarning
from app_server.engine.config.profile_settings import ProfileSettings
from app_server.engine.config.setting_types import quote, type_name
from app_server.engine.config.settings_reader import did_you_mean, plain_name
from app_server.engine.support.engine_errors import ConfigError
from app_server_protocol.encoding import Json
from app_server_protocol.ids import sound_path
from app_server_protocol.policy import (
    MINIMAL,
    ROOT,
    SLASH_TMP,
    TMPDIR,
    WORKSPACE_ROOTS,
    Access,
    DangerFullAccess,
    FileRule,
    PermissionProfile,
    ReadOnly,
    SandboxPolicy,
    is_pattern,
)

READ_ONLY: Final = ":read-only"
WORKSPACE: Final = ":workspace"
FULL_ACCESS: Final = ":danger-full-access"
BUILT_IN: Final = (READ_ONLY, WORKSPACE, FULL_ACCESS)

_ROOT_READ: Final = {(ROOT, ""): Access.READ}
_PARENTS: Final[Mapping[str, Mapping[tuple[str, str], Access]]] = {
    READ_ONLY: _ROOT_READ,
    WORKSPACE: {
        **_ROOT_READ,
        (WORKSPACE_ROOTS, ""): Access.WRITE,
        (SLASH_TMP, ""): Access.WRITE,
        (TMPDIR, ""): Access.WRITE,
    },
}
"""Rules of the built-in profiles that other profiles may extend."""

_WORDS: Final = {"read": Access.READ, "write": Access.WRITE, "deny": Access.DENY, "none": Access.DENY}
_SPECIAL: Final = {ROOT, MINIMAL, TMPDIR, SLASH_TMP, WORKSPACE_ROOTS}
_OLD_NAMES: Final = {":project_roots": WORKSPACE_ROOTS}
_KEYS: Final = {"extends", "description", "workspace_roots", "filesystem", "network"}
_LIMITS: Final = ("domains", "unix_sockets", "mode", "proxy_url", "socks_url", "enable_socks5")
"""Keys of `network` that allow only some addresses."""
_NETWORK_KEYS: Final = {
    *("enabled", *_LIMITS, "enable_socks5_udp", "allow_upstream_proxy", "allow_local_binding"),
    *("dangerously_allow_non_loopback_proxy", "dangerously_allow_all_unix_sockets", "mitm"),
}
DEPTH_KEY: Final = "glob_scan_max_depth"
USUAL_DEPTH: Final = 3
MOST_DEPTH: Final = 64

NO_NETWORK = (
    "Commands have no network: the profile `{}` allows some addresses only, and this server cannot hold them to"
    " these."
)

NO_DEFAULT = "config defines `[permissions]` profiles but does not set `default_permissions`"


class ProfileError(ConfigError):
    """The permission profile cannot be chosen."""


class UndefinedProfile(ProfileError):
    """There is no profile with this name."""


class ListedProfile(Struct, frozen=True):
    """A profile in the list of all profiles."""

    id: str
    description: str | None = None
    problem: str | None = None
    """Why the profile cannot be chosen; None if it can."""


def policy_named(profiles: ProfileSettings, name: str) -> SandboxPolicy:
    """Return the policy of the profile with this name. Raises ProfileError."""
    match name:
        case ":read-only":
            return ReadOnly()
        case ":workspace":
            return profiles.workspace
        case ":danger-full-access":
            return DangerFullAccess()
        case _:
            return _configured(profiles, name)


def _configured(profiles: ProfileSettings, name: str) -> PermissionProfile:
    shown, tables = plain_name(name), profiles.tables
    if name.startswith(":"):
        if tables is not None and name in tables:
            raise ProfileError(f"permissions profile `{shown}` uses a reserved built-in profile prefix")
        raise UndefinedProfile(f"default_permissions refers to unknown built-in profile `{shown}`")
    if tables is None:
        raise UndefinedProfile("default_permissions requires a `[permissions]` table")
    if name not in tables:
        raise UndefinedProfile(f"default_permissions refers to undefined profile `{shown}`")
    return _read(profiles, tables, name)


def listed_profiles(profiles: ProfileSettings) -> Iterator[ListedProfile]:
    """Yield all profiles: the built-in ones, then the others by name."""
    yield from map(ListedProfile, BUILT_IN)
    for name, table in sorted((profiles.tables or {}).items()):
        problem = None
        try:
            policy_named(profiles, name)
        except ProfileError as error:
            problem = str(error)
        described = table.get("description") if isinstance(table, Mapping) else None
        yield ListedProfile(name, described if isinstance(described, str) else None, problem)


def profile_warnings(profiles: ProfileSettings, chosen: str | None) -> Iterator[SettingsWarning]:
    """Yield a warning for each error in a profile that was not chosen, and for each unknown key of a profile."""
    if profiles.tables is None:
        return
    for each in listed_profiles(profiles):
        if each.problem is not None and each.id != chosen:
            text = f"the permission profile `{plain_name(each.id)}` cannot be chosen: {each.problem}"
            yield SettingsWarning(text, ("permissions", each.id))
    for name, table in profiles.tables.items():
        if isinstance(table, Mapping):
            yield from _unknown(("permissions", name), table, _KEYS)
            network = table.get("network")
            if isinstance(network, Mapping):
                yield from _unknown(("permissions", name, "network"), network, _NETWORK_KEYS)


def _read(profiles: ProfileSettings, tables: Mapping[str, Json], name: str) -> PermissionProfile:
    shown = plain_name(name)
    rules: dict[tuple[str, str], Access] = {}
    roots: dict[str, bool] = {}
    network: dict[str, Json] = {}
    depth: int | None = None
    notices: list[str] = []
    for own in _chain(tables, name):
        if own in _PARENTS:
            rules.update(_PARENTS[own])
            continue
        table = _ProfileTable(own, tables[own], profiles.user_home)
        rules.update(table.rules(notices))
        roots.update(table.roots())
        network.update(table.network())
        depth = table.depth() or depth
    if not rules:
        notices.append(
            f"The permission profile `{shown}` has no rule for files: nothing may be read or written."
        )
    enabled = network.get("enabled") is True
    limited = any(network.get(key) for key in _LIMITS)
    if enabled and limited:
        notices.append(NO_NETWORK.format(shown))
    if depth is None and any("**" in (below or place) for place, below in rules):
        notices.append(
            f"The permission profile `{shown}` hides what its patterns match {USUAL_DEPTH} folders deep:"
            f" `{DEPTH_KEY}` says how deep `**` goes."
        )
    return PermissionProfile(
        id=name,
        extends=tables[name].get("extends"),
        rules=tuple(
            FileRule(place=place, below=below, access=access) for (place, below), access in rules.items()
        ),
        roots=tuple(dict.fromkeys((*(root for root, on in roots.items() if on), *profiles.folders))),
        network=enabled and not limited,
        pattern_depth=depth or USUAL_DEPTH,
        notices=tuple(dict.fromkeys(notices)),
    )


def _chain(tables: Mapping[str, Json], name: str) -> list[str]:
    """Return the names of a profile and of all profiles that it extends, the outermost parent first."""
    chain = [name]
    while chain[-1] not in _PARENTS:
        own, shown = chain[-1], plain_name(chain[-1])
        table = tables[own]
        if not isinstance(table, Mapping):
            raise ProfileError(f"permissions profile `{shown}` must be a table, not {type_name(table)}")
        parent = table.get("extends")
        if parent is None:
            break
        if not isinstance(parent, str):
            raise ProfileError(f"`extends` of permissions profile `{shown}` must be a string")
        if parent in chain:
            cycle = " -> ".join(map(plain_name, (*chain[chain.index(parent) :], parent)))
            raise ProfileError(f"permissions profile inheritance cycle detected: {cycle}")
        if parent.startswith(":") and parent not in _PARENTS:
            raise ProfileError(
                f"permissions profile `{shown}` cannot extend unsupported built-in profile `{plain_name(parent)}`"
            )
        if parent not in _PARENTS and parent not in tables:
            raise ProfileError(
                f"permissions profile `{shown}` extends undefined profile `{plain_name(parent)}`"
            )
        chain.append(parent)
    return chain[::-1]


class _ProfileTable(Struct, frozen=True):
    """The table of one `[permissions.NAME]`, without the profiles that it extends."""

    name: str
    table: Mapping[str, Json]
    user_home: str | None

    def rules(self, notices: list[str]) -> dict[tuple[str, str], Access]:
        found: dict[tuple[str, str], Access] = {}
        for key, value in self._part("filesystem").items():
            if key == DEPTH_KEY or value is None:
                continue
            place = _OLD_NAMES.get(key, key)
            if place.startswith(":") and place not in _SPECIAL:
                notices.append(
                    f"Configured filesystem path `{plain_name(key)}` is not recognized by this version of app-server"
                    " and will be ignored."
                )
                continue
            if not place.startswith(":"):
                place = self._absolute(place)
            if isinstance(value, Mapping):
                found.update(self._nested(key, place, value))
            else:
                access = self._access(value, key)
                found[_without_tail(place, access, key), ""] = access
        return found

    def _nested(
        self, key: str, place: str, entries: Mapping[str, Json]
    ) -> Iterator[tuple[tuple[str, str], Access]]:
        if place.startswith(":") and place != WORKSPACE_ROOTS:
            raise ProfileError(f"filesystem path `{key}` does not support nested entries")
        if is_pattern(place):
            raise ProfileError(f"filesystem glob path `{plain_name(key)}` does not support nested entries")
        for name, value in entries.items():
            if value is None:
                continue
            parts = name.split("/")
            if name != "." and (name.startswith("/") or not name or {".", "..", ""} & set(parts)):
                raise ProfileError(
                    f"filesystem subpath `{plain_name(name)}` must be a descendant path without `.` or `..` components"
                )
            _require_plain(name)
            access = self._access(value, key, name)
            below = "" if name == "." else _without_tail(name, access, name)
            if place == WORKSPACE_ROOTS:
                yield (place, below), access
            else:
                yield (f"{place.rstrip('/')}/{below}".rstrip("/") or "/", ""), access

    def _access(self, value: Json, *key: str) -> Access:
        if isinstance(value, str) and value in _WORDS:
            return _WORDS[value]
        shown = quote(value) if isinstance(value, str) else type_name(value)
        setting = ".".join(("permissions", plain_name(self.name), "filesystem", *map(quote, key)))
        raise ProfileError(f"`{setting}` must be one of `read`, `write`, `deny`, not {shown}")

    def _absolute(self, path: str) -> str:
        _require_plain(path)
        if path == "~" or path.startswith("~/"):
            if not self.user_home:
                raise ProfileError(
                    f"filesystem path `{plain_name(path)}` needs HOME in the server's environment"
                )
            path = self.user_home.rstrip("/") + path[1:]
        if not path.startswith("/"):
            raise ProfileError(
                f"filesystem path `{plain_name(path)}` must be absolute, use `~/...`, or start with `:`"
            )
        if {".", ".."} & set(path.split("/")):
            raise ProfileError(f"filesystem path `{plain_name(path)}` must be without `.` or `..` components")
        return "/" + "/".join(part for part in path.split("/") if part)

    def roots(self) -> dict[str, bool]:
        found = {}
        for key, on in self._part("workspace_roots").items():
            if not isinstance(on, bool):
                raise ProfileError(
                    f"`permissions.{plain_name(self.name)}.workspace_roots.{quote(key)}` must be true or false"
                )
            path = self._absolute(key)
            if is_pattern(path):
                raise ProfileError(f"workspace root `{plain_name(key)}` must be a path without wildcards")
            found[path] = on
        return found

    def network(self) -> Mapping[str, Json]:
        network = self._part("network")
        if not isinstance(network.get("enabled", False), bool):
            raise ProfileError(f"`permissions.{plain_name(self.name)}.network.enabled` must be true or false")
        return network

    def depth(self) -> int | None:
        depth = self._part("filesystem").get(DEPTH_KEY)
        if depth is None:
            return None
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise ProfileError(f"{DEPTH_KEY} must be at least 1")
        return min(depth, MOST_DEPTH)

    def _part(self, key: str) -> Mapping[str, Json]:
        part = self.table.get(key)
        if part is None:
            return MappingProxyType({})
        if not isinstance(part, Mapping):
            raise ProfileError(
                f"`permissions.{plain_name(self.name)}.{key}` must be a table, not {type_name(part)}"
            )
        return part


def _without_tail(path: str, access: Access, key: str) -> str:
    """Return a path without a `/**` at its end, which stands for everything in the folder. Raises ProfileError for a
    pattern with an access other than `deny`.
    """
    path = path.removesuffix("/**") or "/"
    if access is not Access.DENY and is_pattern(path):
        raise ProfileError(
            f"filesystem glob path `{plain_name(key)}` only supports `deny` access;"
            f" use an exact path or trailing `/**` for `{access}` subtree access"
        )
    return path


def _require_plain(path: str) -> None:
    try:
        sound_path(path)
    except ValueError as error:
        raise ProfileError(f"filesystem path {quote(path)} is no path: {error}") from None


def _unknown(key: tuple[str, ...], table: Mapping[str, Json], known: set[str]) -> Iterator[SettingsWarning]:
    for name in table:
        if name not in known:
            shown = ".".join(map(plain_name, (*key, name)))
            yield SettingsWarning(
                f"unknown setting `{shown}` is ignored{did_you_mean(name, known)}", (*key, name)
            )
