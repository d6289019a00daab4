"""Starts server processes through the launcher, which kills each process tree when this process ends."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

from app_server.core.errors import LaunchError
from app_server.core.exec.runner import CommandRunner
from app_server.core.exec.service import ServiceProcess
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class LauncherSpawner:
    runner: CommandRunner

    async def open(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ServiceProcess:
        """Raises OSError, and ValueError for what no program can be given."""
        if any("\0" in text for text in (*argv, cwd, *env, *env.values())):
            raise ValueError("a NUL byte")
        try:
            return await self.runner.open_service(argv, env, cwd)
        except LaunchError as error:
            raise OSError(error.code or errno.EAGAIN, str(error)) from error
