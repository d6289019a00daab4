"""Finds the confinement that this machine supports: the layers that hold.

The level is not derived from kernel versions and settings. Instead a probe runs through the launcher under each level
and tries forbidden actions. The server uses the first level under which all indispensable ones fail.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

import anyio
from msgspec import Struct

from app_server.engine.sandbox.exec import command_process
from app_server.engine.sandbox.exec.command import CommandSpec
from app_server.engine.sandbox.exec.landlock_rights import landlock_abi, landlock_rights
from app_server.engine.sandbox.exec.launcher_process import LauncherProcess, SandboxArgs
from app_server.engine.sandbox.exec.probe_folder import ProbeFolder, probe_folder
from app_server.engine.sandbox.plan import SandboxLayer, SandboxPlan, SandboxState
from app_server.engine.sandbox.sandbox_exec import SANDBOX_EXEC, wrap
from app_server.engine.support import engine_errors, user_messages
from app_server.engine.support.engine_errors import LaunchError, SandboxShortage, SandboxUnavailable
from app_server_protocol.policy import PROTECTED_FOLDERS
from app_server_protocol.values import replace

SCRIPT = """\
import errno, os, sys
import _socket
path, identity, other = sys.argv[1], sys.argv[5], int(sys.argv[2])
while True:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        break
    except FileNotFoundError:
        path, identity = os.path.dirname(path), ''
found = os.fstat(folder)
if identity not in ('', '%d:%d' % (found.st_dev, found.st_ino)):
    sys.exit('the folder to be tried was exchanged')
def attempt(name, act):
    try:
        act()
    except OSError as error:
        if errno.errorcode.get(error.errno) in SHORT:
            sys.exit('short of something: ' + error.strerror)
        return
    print(name)
SHORT = sys.argv[4].split()
def write():
    os.close(os.open(sys.argv[3], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=folder))
    os.unlink(sys.argv[3], dir_fd=folder)
attempt('write', write)
attempt('metadata', lambda: os.fchmod(folder, found.st_mode & 0o7777))
attempt('network', lambda: _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM))
attempt('datagram', lambda: _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM))
attempt('signal', lambda: os.kill(other, 0))
attempt('see', lambda: os.stat('/proc/%d' % other))
print('done')
"""
"""Script of the probe. It tries each forbidden action once and prints those that succeeded, if possible without a
lasting effect. It exits without `done` if an action fails for a shortage, or if the folder is not the one that the
server made, since such a run proves nothing. A home with many entries is shown empty; then the script tries the nearest
folder above.
"""

REFUSALS = frozenset(
    {
        *(errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP),
        *(errno.ENOENT, errno.ENODEV, errno.EROFS, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT),
    }
)
"""Errors of a kernel that cannot or may not confine in this way: forbidden, unknown, or a file system such as /proc is
missing. Any other error proves nothing about the machine.
"""

INDISPENSABLE = frozenset({"write", "network", "datagram"})
"""Actions that must fail: a probe that can do one of them is not confined at all."""

GAPS = {
    "metadata": "mode, owner, times and attributes of files outside the workspace can be changed",
    "signal": "other processes of the user can be signalled",
    "see": "other processes are visible",
    "fences": f"protected folders inside the workspace ({', '.join(PROTECTED_FOLDERS)}) can be written",
    "secrets": "the stored credentials of the server can be read",
}


def layers(
    namespaces: tuple[str, str], landlock: tuple[str, str] | None, landlock_abi: int
) -> tuple[SandboxLayer, ...]:
    """Return the layers by the results of two probes. Each result is the output, and the reason if the kernel refused
    to confine the probe. The first probe ran in namespaces without Landlock, the second with Landlock without
    namespaces (None if the kernel has no Landlock). Both have seccomp.
    """
    alone, refused = namespaces
    problem = refused or judge_full(alone)
    found = [SandboxLayer("namespaces", problem)]
    if landlock is None:
        found.append(SandboxLayer("Landlock", "the kernel has none"))
    else:
        output, refused = landlock
        problem = refused or _could(output, {"write"})
        found.append(SandboxLayer(f"Landlock (ABI {landlock_abi})", problem))
        alone = output or alone
    problem = _could(alone, {"network", "datagram"})
    return (*found, SandboxLayer("seccomp", problem))


def completed(output: str) -> bool:
    """Return whether the probe tried everything; otherwise its output proves nothing."""
    return "done" in output.split()


def is_refusal(code: int | None, *, limits: Sequence[str]) -> bool:
    """Return whether a failure to confine is a property of the machine. `limits` are the kernel's limits of namespaces
    per user: a limit of 0 gives the same error as an exhausted one.
    """
    return code in REFUSALS or (code == errno.ENOSPC and "0" in limits)


def judge_full(output: str) -> str | None:
    """Judge a probe in namespaces. Return the reason to reject this level; None if every action failed."""
    return _could(output, INDISPENSABLE | GAPS.keys())


def judge_degraded(output: str) -> str | None:
    """Judge a probe without namespaces. Return the reason to reject this level; None if every indispensable action
    failed.
    """
    return _could(output, INDISPENSABLE)


def gaps(output: str) -> tuple[str, ...]:
    """Return descriptions of the gaps of the degraded level, by the probe's output and by design."""
    could = set(output.split())
    always = {"metadata", "fences", "secrets"}
    return tuple(text for name, text in GAPS.items() if name in could | always)


def _could(output: str, forbidden: Set[str]) -> str | None:
    if not completed(output):
        return "a test command did not run in it"
    could = sorted(set(output.split()) & forbidden)
    return f"a test command could still: {', '.join(could)}" if could else None


log = logging.getLogger(__name__)

PROBE_MILLISECONDS = 5000

NAMESPACES = ("user", "mnt", "pid", "ipc", "uts", "net")

RECHECK_SECONDS = 60.0
"""Interval between probes of a machine without the full sandbox, in seconds: an administrator may have enabled it."""


class SandboxBackend:
    """The sandbox of this machine. It is probed before the first command that has to be confined."""

    def __init__(self, launcher: LauncherProcess, python: str, home: str, platform: str) -> None:
        self._launcher, self._python, self._home, self._platform = launcher, python, home, platform
        self._state: SandboxState | None = None
        self._probed_at = 0.0
        self._probing = anyio.Lock(fast_acquire=True)

    async def state(self) -> SandboxState:
        """Return the confinement that this machine supports, found by a probe. A full result is final. A lower one is
        probed again after `RECHECK_SECONDS`. Raises SandboxShortage.
        """
        async with self._probing:
            if self._state is None:
                self._state = await self._find_state()
                self._probed_at = anyio.current_time()
            elif self._state.level != "full" and anyio.current_time() - self._probed_at > RECHECK_SECONDS:
                self._probed_at = anyio.current_time()
                await self._probe_again()
            return self._state

    async def layers(self) -> tuple[SandboxLayer, ...]:
        """Return the layers that hold, each tried alone, in addition to `state`. Raises SandboxShortage."""
        if self._platform == "linux":
            return await find_layers(self._launcher, self._python, self._home)
        state = await self.state()
        return (SandboxLayer("sandbox-exec", None if state.level == "full" else state.reason),)

    async def confine(self, spec: CommandSpec) -> tuple[CommandSpec, SandboxArgs | None]:
        """Return a command in the form for the launcher, and its confinement there. Raises SandboxUnavailable."""
        if spec.sandbox is None:
            return spec, None
        plan, view = spec.sandbox, spec.sandbox.view
        if view.refused is not None:
            raise SandboxUnavailable(str(user_messages.profile_not_applied(view.profile, view.refused)))
        state = await self.state()
        if state.level == "none":
            raise SandboxUnavailable(str(user_messages.no_sandbox(state.reason)))
        if state.level == "degraded" and plan.indispensable:
            raise SandboxUnavailable(str(user_messages.unprotected(plan.indispensable[0], state.reason)))
        if self._platform == "darwin":
            return replace(spec, argv=wrap(spec.argv, plan)), None
        if view.subtracts and state.level != "full":
            raise SandboxUnavailable(str(user_messages.hidden_files(view.profile, state.reason)))
        rights = landlock_rights(
            network=plan.network, version=state.landlock_abi, reading=view.visible is not None
        )
        return spec, SandboxArgs(namespaces=state.level == "full", landlock=rights)

    async def _probe_again(self) -> None:
        """Probe again, and replace the first result only by a full one: clients were warned about exactly the gaps of
        the first.
        """
        with contextlib.suppress(SandboxUnavailable, LaunchError):
            state = await self._find_state()
            if state.level == "full":
                log.warning("the full sandbox is available now")
                self._state = state

    async def _find_state(self) -> SandboxState:
        if self._platform == "linux":
            return await find_state(self._launcher, self._python, self._home)
        if self._platform == "darwin" and os.access(SANDBOX_EXEC, os.X_OK):
            return SandboxState("full")
        return SandboxState("none", "no sandbox is known for this system")


async def find_state(launcher: LauncherProcess, python: str, home: str) -> SandboxState:
    """Return the strongest sandbox level that confines the probe.

    The probe gets the server's `home`, as commands do, so that commands can use its prepared parent. Raises
    SandboxShortage if the machine is short of resources: a passing shortage must not lower the level.
    """
    version = landlock_abi()
    rights = landlock_rights(network=False, version=version)
    full = SandboxArgs(namespaces=True, landlock=rights)
    with _prober(launcher, python, home) as prober:
        output, refused = await prober.run_probe(full)
        could = None if refused else judge_full(output)
        if refused:
            return await _without_namespaces(prober, refused, version)
    if could is not None:
        # The kernel has confined the probe, which is no reason for a weaker sandbox: a command may have misled the
        # probe.
        log.warning("the sandbox is tried again elsewhere: %s", could)
        with _prober(launcher, python, home, in_home=False) as prober:
            output, refused = await prober.run_probe(full)
        could = refused or judge_full(output)
    if could is not None:
        return SandboxState("none", f"the sandbox was made, but {could}", landlock_abi=version)
    return SandboxState("full", landlock_abi=version)


async def find_layers(launcher: LauncherProcess, python: str, home: str) -> tuple[SandboxLayer, ...]:
    """Return the layers, each tried without the other. It is for people who look for the reason of a weaker sandbox.
    Raises SandboxShortage.
    """
    version = landlock_abi()
    rights = landlock_rights(network=False, version=version)
    with _prober(launcher, python, home) as prober:
        namespaces = await prober.run_probe(SandboxArgs(namespaces=True, landlock=None))
        landlock = None
        if rights is not None:
            landlock = await prober.run_probe(SandboxArgs(namespaces=False, landlock=rights))
        return layers(namespaces, landlock, version)


@contextlib.contextmanager
def _prober(launcher: LauncherProcess, python: str, home: str, *, in_home: bool = True) -> Iterator[_Prober]:
    """Yield a prober with a folder of its own. Raises SandboxShortage if no folder can be made."""
    home = os.path.realpath(home)
    try:
        with probe_folder(home, in_home=in_home) as folder:
            yield _Prober(launcher, python, home, folder)
    except OSError as error:
        raise _shortage(error.strerror or str(error)) from error


async def _without_namespaces(prober: _Prober, refused: str, version: int) -> SandboxState:
    """Return the level of a machine whose kernel refuses the full sandbox."""
    refused = f"without namespaces: {refused}"
    log.warning("the full sandbox is not available: %s", refused)
    rights = landlock_rights(network=False, version=version)
    if rights is None:
        return SandboxState("none", f"{refused}; and the kernel has no Landlock")
    output, failed = await prober.run_probe(SandboxArgs(namespaces=False, landlock=rights))
    failed = failed or judge_degraded(output) or ""
    if failed:
        return SandboxState(
            "none", f"{refused}; with Landlock and seccomp alone: {failed}", landlock_abi=version
        )
    return SandboxState("degraded", refused, gaps(output), version)


class _Prober(Struct, frozen=True):
    """The runner of the probe, a command that tries forbidden actions."""

    launcher: LauncherProcess
    python: str
    home: str
    folder: ProbeFolder

    async def run_probe(self, confinement: SandboxArgs) -> tuple[str, str]:
        """Run the probe. Return its output, and the reason if the kernel refused to confine it."""
        short = " ".join(errno.errorcode[code] for code in engine_errors.SHORTAGES)
        argv = (
            *(self.python, "-I", "-S", "-c", SCRIPT),
            *(self.folder.path, str(os.getpid()), "made", short, self.folder.identity),
        )
        plan = SandboxPlan(home=self.home)
        spec = CommandSpec(argv=argv, cwd="/", env={}, timeout_ms=PROBE_MILLISECONDS, sandbox=plan)
        try:
            result = await command_process.run_to_end(
                self.launcher, spec, confinement, lambda stream, chunk: None
            )
        except (LaunchError, SandboxUnavailable) as error:
            if not is_refusal(error.code, limits=_limits()):
                raise _shortage(str(error).removesuffix(engine_errors.retry_hint(error.code))) from error
            return "", str(error)
        output = result.stdout.decode("utf-8", "replace")
        if result.timed_out:
            raise _shortage(f"a test command took more than {PROBE_MILLISECONDS // 1000} seconds")
        if not completed(output):
            last = result.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]
            raise _shortage(f"a test command ended too early, with {result.exit_code} ({last})")
        return output, ""


def _shortage(reason: str) -> SandboxShortage:
    return SandboxShortage(
        f"the sandbox could not be tried at the moment, so the command was not run; try again ({reason})"
    )


def _limits() -> list[str]:
    """Return the kernel's limits of namespaces per user, for the kinds that commands need."""
    found = []
    for kind in NAMESPACES:
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/sys/user/max_{kind}_namespaces").read_text().strip())
    return found
