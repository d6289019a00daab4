"""Plays the victim of `sandbox.probe` through the launcher: how does this machine confine?"""

from __future__ import annotations

import logging
import os
import tempfile

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


async def find_state(
    launcher: LauncherProcess, python: str, home: str, *, namespaces: bool = True
) -> SandboxState:
    """The strongest way to confine that holds a victim. `namespaces` False leaves the strongest out.

    The victim gets the server's `home`, as commands do: what was prepared for it then serves them, too.
    """
    home = os.path.realpath(home)
    version = landlock_rights.abi()
    rights = landlock_rights.rights(network=False, version=version)
    with tempfile.TemporaryDirectory(prefix="sandbox-probe-") as folder:
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
