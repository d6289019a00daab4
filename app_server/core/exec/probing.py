"""Plays the victim of `sandbox.probe` through the launcher: how does this machine confine?"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import tempfile
import time
from pathlib import Path

from app_server.core.errors import SHORTAGES, LaunchError, SandboxShortage, SandboxUnavailable, retry_hint
from app_server.core.exec import run
from app_server.core.exec.command import CommandSpec
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.request import Confinement
from app_server.core.sandbox import landlock_rights, probe
from app_server.core.sandbox.plan import SandboxPlan
from app_server.core.sandbox.probe import SandboxState
from app_server.core.threads import run_in_thread
from protocol.records import dataclass

log = logging.getLogger(__name__)

VICTIM_MILLISECONDS = 5000

NAMESPACES = ("user", "mnt", "pid", "ipc", "uts", "net")

FOLDER_PREFIX = "sandbox-probe-"
ABANDONED_SECONDS = 60.0
"""No victim takes so long: a folder of this age was left by a server that was killed meanwhile."""


async def find_state(
    launcher: LauncherProcess, python: str, home: str, *, namespaces: bool = True
) -> SandboxState:
    """The strongest way to confine that holds a victim. `namespaces` False leaves the strongest out.

    The victim gets the server's `home`, as commands do: what was prepared for it then serves them, too. Raises
    SandboxShortage where that cannot be found out at the moment: only what belongs to the machine lowers the level.
    """
    try:
        await run_in_thread(sweep, tempfile.gettempdir(), time.time())
        with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
            victim = _Victim(launcher, python, os.path.realpath(home), folder)
            return await _strongest(victim, namespaces=namespaces)
    except OSError as error:
        raise _shortage(error.strerror or str(error)) from error


async def _strongest(victim: _Victim, *, namespaces: bool) -> SandboxState:
    version = landlock_rights.abi()
    rights = landlock_rights.rights(network=False, version=version)
    refused = "namespaces are switched off"
    if namespaces:
        output, refused = await victim.play(Confinement(namespaces=True, landlock=rights))
        refused = refused or probe.judge_full(output) or ""
        if not refused:
            return SandboxState("full", landlock_abi=version)
    refused = f"without namespaces: {refused}"
    log.warning("the full sandbox is not available: %s", refused)
    if rights is None:
        return SandboxState("none", f"{refused}; and the kernel has no Landlock")
    output, failed = await victim.play(Confinement(namespaces=False, landlock=rights))
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


@dataclass(frozen=True, slots=True)
class _Victim:
    """The command that tries what must not work."""

    launcher: LauncherProcess
    python: str
    home: str
    folder: str

    async def play(self, confinement: Confinement) -> tuple[str, str]:
        """What it could do, and why the kernel did not let it be confined where it was not."""
        short = " ".join(errno.errorcode[code] for code in SHORTAGES)
        argv = (
            *(self.python, "-I", "-S", "-c", probe.VICTIM),
            *(self.folder, str(os.getpid()), "made", short),
        )
        plan = SandboxPlan(home=self.home)
        spec = CommandSpec(argv=argv, cwd="/", env={}, timeout_ms=VICTIM_MILLISECONDS, sandbox=plan)
        try:
            result = await run.run(self.launcher, spec, confinement, lambda stream, chunk: None)
        except (LaunchError, SandboxUnavailable) as error:
            if not probe.is_refusal(error.code, limits=_limits()):
                raise _shortage(str(error).removesuffix(retry_hint(error.code))) from error
            return "", str(error)
        output = result.stdout.decode("utf-8", "replace")
        if result.timed_out:
            raise _shortage(f"a test command took more than {VICTIM_MILLISECONDS // 1000} seconds")
        if not probe.completed(output):
            last = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise _shortage(f"a test command ended too early, with {result.exit_code} ({last})")
        return output, ""


def _shortage(reason: str) -> SandboxShortage:
    return SandboxShortage(
        f"the sandbox could not be tried at the moment, so the command was not run; try again ({reason})"
    )


def _limits() -> list[str]:
    """How many namespaces of each kind that commands need a user may have."""
    found = []
    for kind in NAMESPACES:
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/sys/user/max_{kind}_namespaces").read_text().strip())
    return found
