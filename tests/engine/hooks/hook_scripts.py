"""Hooks of a scenario: files of the home that the user trusts, and a log of what each of them has read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app_server.engine.hooks.hook_entries import HookEntry, read_entries
from app_server_protocol.encoding import Json

LOG = "hooks.log"


class HomeHooks:
    """Hooks in the `hooks.json` of a scenario's home."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.home.mkdir(exist_ok=True)
        self.log = self.home / LOG
        self._hooks: dict[str, list[Json]] = {}

    def add(self, event: str, script: str, *, matcher: str | None = None, **more: Any) -> str:
        """Add a hook whose script first writes its input to the log; return the path of the script."""
        path = self.home / f"hook-{sum(map(len, self._hooks.values()))}.sh"
        path.write_text(f"#!/bin/sh\ncat >> {self.log}; echo >> {self.log}\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        return self.command(event, str(path), matcher=matcher, **more)

    def command(self, event: str, command: str, *, matcher: str | None = None, **more: Any) -> str:
        """Add a hook with this command, and return the command."""
        group: Json = {"hooks": [{"type": "command", "command": command, **more}]}
        self._hooks.setdefault(event, []).append(group | ({} if matcher is None else {"matcher": matcher}))
        return command

    def tables(self, settings: str = "") -> str:
        """Write the file, and return the settings by which the user trusts all of it."""
        path = self.home / "hooks.json"
        path.write_text(json.dumps({"hooks": self._hooks}), encoding="utf-8")
        return f"{settings}\n{trusted(path, self._hooks)}"

    def read(self, event: str) -> list[Json]:
        """Return the inputs that hooks of an event have read."""
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        found = [json.loads(line) for line in lines if line]
        return [each for each in found if each["hook_event_name"] == event]


def trusted(path: Path, hooks: Mapping[str, Sequence[Json]]) -> str:
    """Return the settings by which the user trusts the hooks of a file."""
    lines = []
    for entry in read_entries(hooks):
        assert isinstance(entry, HookEntry), entry
        key = f"{path}:{entry.definition.event.snake}:{entry.group}:{entry.index}"
        lines.append(f"[hooks.state.{json.dumps(key)}]\ntrusted_hash = {json.dumps(entry.digest)}\n")
    return "\n".join(lines)
