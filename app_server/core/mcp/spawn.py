"""The default way to start a server process: behind a guard that ends it, and all that it started, with this
one."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process

from protocol.records import dataclass

GUARD = Path(__file__).with_name("guard.py")
CLOSE_SECONDS = 3.0
"""The guard gives up on what cannot be killed before that."""


@dataclass(slots=True)
class GuardedProcess:
    """One server process. `terminate` asks, `kill` lets go of the lifeline."""

    _process: Process = field(repr=False)
    _lifeline: int
    _report: int
    _gone: bool = False

    @property
    def stdin(self) -> ByteSendStream:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> ByteReceiveStream:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def stderr(self) -> ByteReceiveStream:
        assert self._process.stderr is not None
        return self._process.stderr

    async def wait(self) -> None:
        # Not the process's own wait: that waits for the streams too, which somebody else may hold open.
        if not self._gone:
            await anyio.wait_readable(self._report)
            self._gone = True

    def terminate(self) -> None:
        if self._lifeline >= 0:
            with contextlib.suppress(OSError):
                os.write(self._lifeline, b"t")

    def kill(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    async def close(self) -> None:
        self.kill()
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await self.wait()
            await self._process.aclose()
        if self._report >= 0:
            os.close(self._report)
            self._report = -1


@dataclass(frozen=True, slots=True)
class GuardedSpawner:
    """Starts each process with a guard of its own, which costs about 10 MB and 20 ms."""

    python: str
    """The interpreter that runs the guard."""

    async def open(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> GuardedProcess:
        lifeline, ours = os.pipe()
        report, theirs = os.pipe()
        try:
            command = [self.python, "-I", "-S", str(GUARD), str(lifeline), str(theirs), *argv]
            process = await anyio.open_process(
                command, env=env, cwd=cwd, start_new_session=True, pass_fds=(lifeline, theirs)
            )
        except BaseException:
            os.close(ours)
            os.close(report)
            raise
        finally:
            os.close(lifeline)
            os.close(theirs)
        guarded = GuardedProcess(process, ours, report)
        try:
            await anyio.wait_readable(report)
        except BaseException:
            await guarded.close()
            raise
        told = os.read(report, 16)
        if told != b"0":
            await guarded.close()
            code = int(told) if told.isdigit() else errno.EIO
            raise OSError(code, os.strerror(code))
        return guarded
