"""The hooks of a working directory for clients, and their consent to them: the interface of this room for the APIs.

A client writes `trusted_hash` alone, as for codex; the server adds `trusted_files` to the same write: the digests of
the files that the commands name, as they were when the hooks were listed. That is what the user was shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from app_server.engine.config.config_values import Config
from app_server.engine.config.hook_settings import HOOKS, STATE
from app_server.engine.config.layers import split_key
from app_server.engine.hooks.hook_definitions import LoadedHooks
from app_server.engine.hooks.hook_files import HasEnvironment, HookFiles
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.encoding import Json

HASH, FILES = "trusted_hash", "trusted_files"
MOST_LISTED = 2000
"""Maximum number of hooks whose files are remembered."""

Write = tuple[str, Json, bool]
"""A key of the settings, its new value, and whether a table is merged into the existing one."""


class ListedHooks:
    """Lists hooks for one client, and remembers the files that they named."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], Mapping[str, str]] = {}

    async def list(self, config: Config, cwd: str, client: HasEnvironment) -> LoadedHooks:
        """Return the hooks for a working directory by a configuration. Raises ConfigError."""

        def load() -> tuple[LoadedHooks, list[tuple[str, str, Mapping[str, str]]]]:
            files = HookFiles(config, client)
            hooks = files.load(cwd)
            return hooks, [(each.key, each.digest, files.files_of(each)) for each in hooks.handlers()]

        hooks, found = await run_in_thread(load, abandon_on_cancel=True)
        for key, digest, files in found:
            self._remember(key, digest, files)
        return hooks

    def _remember(self, key: str, digest: str, files: Mapping[str, str]) -> None:
        """Remember the digests of files. A hook that is listed for several folders may name a file in each."""
        before = self._files.pop((key, digest), {})
        while len(self._files) >= MOST_LISTED:
            del self._files[next(iter(self._files))]
        self._files[key, digest] = {**before, **files}

    def completed(self, writes: Sequence[Write]) -> Sequence[Write]:
        """Return the writes with the files of each hook that they agree to."""
        return [each for write in writes for each in self._completed(write)]

    def _completed(self, write: Write) -> Iterator[Write]:
        path, value, merges = write
        match split_key(path):
            case [table] if table.strip() == HOOKS and isinstance(value, Mapping):
                state = self._with_files(value.get(STATE))
                yield path, {**value, STATE: state} if STATE in value else value, merges
            case [table, state] if (table.strip(), state.strip()) == (HOOKS, STATE):
                yield path, self._with_files(value), merges
            case [table, state, key] if (table.strip(), state.strip()) == (HOOKS, STATE):
                yield path, self._entry(key, value), merges
            case [table, state, key, field] if (table.strip(), state.strip(), field.strip()) == (
                HOOKS,
                STATE,
                HASH,
            ):
                yield write
                files = self._files.get((key, value)) if isinstance(value, str) else None
                if files is not None:
                    yield f"{HOOKS}.{STATE}.{json.dumps(key)}.{FILES}", files, True
            case _:
                yield write

    def _with_files(self, states: Json) -> Json:
        if not isinstance(states, Mapping):
            return states
        return {key: self._entry(key, entry) for key, entry in states.items()}

    def _entry(self, key: str, entry: Json) -> Json:
        match entry:
            case {"trusted_hash": str(digest)} if FILES not in entry and (key, digest) in self._files:
                return {**entry, FILES: self._files[key, digest]}
            case _:
                return entry
