"""Plays the victim of `sandbox.probe` through the launcher: how does this machine confine?"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time

import anyio.to_thread

from app_server.core.errors import CoreError
from app_server.core.exec import run
from app_server.core.exec.command import CommandSpec
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.request import Confinement
from app_server.core.sandbox import landlock_rights, probe
from app_server.core.sandbox.plan import SandboxPlan
from app_server.core.sandbox.probe import SandboxState

log = logging.getLogger(__name__)

VICTIM_MILLISECONDS = 5000

FOLDER_PREFIX = "sandbox-probe-"
ABANDONED_SECONDS = 60.0
"""No victim takes so long: a folder of this age was left by a server that was killed meanwhile."""


async def find_state(
    launcher: LauncherProcess, python: str, home: str, *, namespaces: bool = True
) -> SandboxState:
    """The strongest way to confine that holds a victim. `namespaces` False leaves the strongest out.

    The victim gets the server's `home`, as commands do: what was prepared for it then serves them, too.
    """
    home = os.path.realpath(home)
    version = landlock_rights.abi()
    rights = landlock_rights.rights(network=False, version=version)
    await anyio.to_thread.run_sync(sweep, tempfile.gettempdir(), time.time())
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        refused = "namespaces are switched off"
        if namespaces:
            output, refused = await _play(
                launcher, python, home, folder, Confinement(namespaces=True, landlock=rights)
            )
            refused = refused or probe.judge_full(output) or ""
            if not refused:
                return SandboxState("full", landlock_abi=version)
        refused = f"without namespaces: {refused}"
        log.warning("the full sandbox is not available: %s", refused)
        if rights is None:
            return SandboxState("none", f"{refused}; and the kernel has no Landlock")
        output, failed = await _play(
            launcher, python, home, folder, Confinement(namespaces=False, landlock=rights)
        )
        failed = failed or probe.judge_degraded(output) or ""
        if failed:
            return SandboxState(
                "none", f"{refused}; with Landlock and seccomp alone: {failed}", landlock_abi=version
            )
        return SandboxState("degraded", refused, probe.gaps(output), version)


def sweep(temporary: str, now: float) -> None:
    """Removes the empty folders that killed servers have left: every command would pay for their number."""
    with contextlib.suppress(OSError), os.scandir(temporary) as entries:
        for entry in entries:
            if entry.name.startswith(FOLDER_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # somebody else's, or just gone
                    if entry.stat(follow_symlinks=False).st_mtime < now - ABANDONED_SECONDS:
                        os.rmdir(entry.path)


async def _play(
    launcher: LauncherProcess, python: str, home: str, folder: str, confinement: Confinement
) -> tuple[str, str]:
    """What the victim could do, and why it did not run where it did not."""
    argv = (python, "-I", "-S", "-c", probe.VICTIM, folder, str(os.getpid()), "made")
    spec = CommandSpec(
        argv=argv, cwd="/", env={}, timeout_ms=VICTIM_MILLISECONDS, sandbox=SandboxPlan(home=home)
    )
    try:
        result = await run.run(launcher, spec, confinement, lambda stream, chunk: None)
    except CoreError as error:
        return "", str(error)
    return result.stdout.decode("utf-8", "replace"), ""
