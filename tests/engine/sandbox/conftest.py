"""A command runner on a home and a workspace of its own."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from app_server.engine.sandbox.exec import probe
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.exec.launcher_process import SandboxArgs
from app_server.engine.storage.socket_folders import known_folders
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.policy import DangerFullAccess, SandboxPolicy

PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass
class Bench:
    """Bench that runs shell scripts in `ws` under a policy, and records the output in order of arrival."""

    runner: CommandRunner
    ws: Path
    outside: Path
    chunks: list[tuple[ExecOutputStream, bytes]] = field(default_factory=list)

    @property
    def launcher_pid(self) -> int | None:
        """Process id of the launcher, which starts commands. None before the first command."""
        process = self.runner._launcher._process
        return None if process is None else process.pid

    def spec(
        self, *argv: str, policy: SandboxPolicy | None = None, timeout_ms: int | None = 10_000
    ) -> CommandSpec:
        plan = self.runner.plan(policy or DangerFullAccess(), str(self.ws))
        return CommandSpec(
            argv=argv, cwd=str(self.ws), env={"PATH": PATH}, timeout_ms=timeout_ms, sandbox=plan
        )

    async def sh(
        self, script: str, policy: SandboxPolicy | None = None, timeout_ms: int | None = 10_000
    ) -> ExecResult:
        spec = self.spec("sh", "-c", script, policy=policy, timeout_ms=timeout_ms)
        return await self.runner.run(spec, lambda stream, chunk: self.chunks.append((stream, chunk)))


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with a_bench(tmp_path, tmp_path / "home") as one:
        yield one


async def at_level(bench: Bench, level: str) -> Bench:
    """Return the bench; skip the test if this machine's sandbox has another level."""
    state = await bench.runner.sandbox.state()
    if state.level != level:
        pytest.skip(f"this kernel gives {state.level}: {state.reason}")
    return bench


@pytest.fixture
async def degraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """Yield a bench on a kernel without namespaces."""
    real = probe._Prober.run_probe

    async def refuse(prober: probe._Prober, confinement: SandboxArgs) -> tuple[str, str]:
        return ("", "they are switched off") if confinement.namespaces else await real(prober, confinement)

    monkeypatch.setattr(probe._Prober, "run_probe", refuse)
    async with a_bench(tmp_path, tmp_path / "home") as one:
        yield await at_level(one, "degraded")


@asynccontextmanager
async def a_bench(root: Path, home: Path) -> AsyncIterator[Bench]:
    for folder in (home, root / "ws", root / "outside"):
        folder.mkdir()
    (home / "auth.json").write_text('{"key": "sentinel"}')
    (home / "config.toml").write_text("# settings\n")
    runner = CommandRunner(
        sys.executable, str(home), {}, known=partial(known_folders, str(home), str(root / "run"))
    )
    async with runner:
        yield Bench(runner, root / "ws", root / "outside")


@pytest.fixture
def marked() -> Callable[[str], list[int]]:
    """Return a function that finds the process ids whose command line contains a mark."""

    def find(mark: str) -> list[int]:
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    line = (folder / "cmdline").read_bytes()
                    state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                if mark.encode() in line and state not in "ZX":
                    found.append(int(folder.name))
        return found

    return find
