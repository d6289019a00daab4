"""Commands of a simulated world: they take virtual time, print, fail, and are recorded with their sandbox.

The sandbox plan of every command is the real one; only the launcher is simulated.
"""

import json
import math
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from app_server.engine.sandbox.exec.command import TIMEOUT_EXIT_CODE, CommandSpec, ExecResult, OnOutput
from app_server.engine.sandbox.exec.command_process import Process
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.exec.pty import PtySession
from app_server.engine.sandbox.exec.service import ServiceProcess
from app_server.engine.sandbox.exec.streams import KILLED, Report
from app_server.engine.sandbox.plan import SandboxState
from app_server.engine.support.engine_errors import LaunchError, SandboxUnavailable
from app_server.engine.support.helpers import WRITER
from app_server.engine.workspace.patch.atomic_writer import apply_document
from app_server_protocol.encoding import Json
from app_server_protocol.engine.item_values import ExecOutputStream
from tests.simulation.habits import SHARED
from tests.simulation.sim_mcp import SimService
from tests.simulation.sim_model import SimModel

MARK = re.compile(r"\bm\d+")
"""Mark of what a call changes."""
TOUCHED = re.compile(r"\btouch (m\d+)")
OWN_COMMAND = re.compile(r"\becho (w\d+)")
"""Command that a person types."""
ADDED = re.compile(r"/(m\d+)\.txt")
FLOOD = b"y\n" * 200_000


@dataclass(frozen=True, slots=True)
class Ran:
    """Command that was started."""

    argv: tuple[str, ...]
    confined: bool
    after_requests: int
    """Number of requests to the model that had begun before the command."""
    patch: str | None
    """Patch that the command writes. None if it is not the writer of a patch."""

    @property
    def marks(self) -> list[str]:
        """Marks of the files or lines that the command changes."""
        return TOUCHED.findall(" ".join(self.argv)) if self.patch is None else ADDED.findall(self.patch)


@dataclass(slots=True)
class Commands:
    """Commands of all servers of a world."""

    model: SimModel
    ran: list[Ran] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)
    """Number of requests to the model that had begun when a person's command ended, by the word that it printed."""
    running: int = 0
    calm: anyio.Event = field(default_factory=anyio.Event)
    """Event after which commands end at once."""
    judged: Counter[str] = field(default_factory=Counter)
    """Number of times that hooks were asked about a call, by the mark of what it changes."""
    denied: Counter[str] = field(default_factory=Counter)
    """Number of times that hooks denied such a call."""
    hooks_not_started: int = 0

    def calm_down(self) -> None:
        self.calm.set()

    async def last(self, seconds: float) -> None:
        """Wait for the duration of a command."""
        with anyio.move_on_after(seconds):
            await self.calm.wait()

    def begin(self, spec: CommandSpec) -> "Course":
        """Draw the outcome of a command. Raises LaunchError or SandboxUnavailable."""
        draws, habits = self.model.draws, self.model.habits
        outcome = "0" if self.calm.is_set() else draws.pick("outcome", habits.outcomes)
        if outcome == "launch error":
            raise LaunchError("no processes left")
        if outcome == "unavailable" and spec.sandbox is not None:
            raise SandboxUnavailable("no sandbox today")
        patch = _document(spec.argv)
        place = "in the sandbox" if spec.sandbox is not None else "outside of the sandbox"
        what = spec.argv[-1] if patch is None else "a patch"
        self.model.journal.tell(f"a command runs {place}: {what}")
        self.ran.append(Ran(spec.argv, spec.sandbox is not None, self.model.begun, patch))
        lasts = 0.0 if self.calm.is_set() else draws.seconds("duration", *habits.durations)
        match outcome:
            case "1":
                return Course(1, b"", b"it failed\n", lasts)
            case "denied":
                return Course(1, b"", b"touch: Operation not permitted\n", lasts)
            case "flood":
                return Course(0, FLOOD, b"", lasts)
            case "signal":
                return Course(128 + signal.SIGKILL, b"half", b"", lasts)
        if patch is not None and spec.sandbox is not None and not spec.sandbox.writable_roots:
            return Course(1, b"", b"Failed to write: Read-only file system\n", lasts)
        if patch is not None:
            code, out, err = apply_document(patch.encode())
            if code == 0:
                self.model.note("a patch was written")
            return Course(code, out.encode(), err.encode(), lasts)
        written = TOUCHED.findall(spec.argv[-1]) if habits.goes_back else ()
        if spec.sandbox is not None and not spec.sandbox.writable_roots:
            written = ()
        if not written:
            return Course(0, b"out\n", b"", lasts)
        name = draws.pick("file of a command", ("made by a command", SHARED), (0.7, 0.3))
        return Course(0, b"out\n", b"", lasts, Path(spec.cwd, name))


@dataclass(frozen=True, slots=True)
class Course:
    """Outcome of a command: its exit status, its output and its duration."""

    code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    writes: Path | None = None
    """File to which it adds a line at its end. None if it writes none."""


def _document(argv: Sequence[str]) -> str | None:
    """Return the patch document for the writer of a patch; None for any other command."""
    return Path(argv[3]).read_text() if WRITER in argv[-1] else None


class SimSandbox:
    """Capabilities of a machine with the full sandbox."""

    async def state(self) -> SandboxState:
        await anyio.lowlevel.checkpoint()
        return SandboxState("full")


def runner_of(commands: Commands) -> Callable[..., CommandRunner]:
    """Return the function with which a machine makes its command runner."""

    class SimRunner(CommandRunner):
        """Command runner that starts no process."""

        def __init__(self, **settings: Json) -> None:
            super().__init__(**settings)
            object.__setattr__(self, "sandbox", SimSandbox())

        def warm_up(self) -> None:
            pass

        async def close(self) -> None:
            await anyio.lowlevel.checkpoint()

        async def run(self, spec: CommandSpec, on_output: OnOutput) -> ExecResult:
            await anyio.lowlevel.checkpoint()
            with self._counted(spec):
                return await _run(commands, spec, on_output, self.output_cap)

        async def open_session(self, spec: CommandSpec, size: object = None) -> PtySession:
            await anyio.lowlevel.checkpoint()
            session = PtySession(SimProcess(commands, commands.begin(spec)))  # type: ignore[arg-type]
            self._tasks.start_soon(self._serve_session, session, spec, name="terminal session")
            return session

        async def open_streamed(
            self, spec: CommandSpec, *, stdin: bool = False, terminal: object = None
        ) -> Process:
            await anyio.lowlevel.checkpoint()
            return SimHook(commands)  # type: ignore[return-value]

        async def open_service(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> ServiceProcess:
            await anyio.lowlevel.checkpoint()
            if not commands.calm.is_set() and commands.model.habits.mcp_starts[0] == "refused":
                raise LaunchError("no processes left")
            service = SimService(commands)
            self._tasks.start_soon(service.serve, name="MCP server")
            return service  # type: ignore[return-value]

    return SimRunner


async def _run(commands: Commands, spec: CommandSpec, on_output: OnOutput, cap: int) -> ExecResult:
    course = commands.begin(spec)
    commands.running += 1
    try:
        limit = math.inf if spec.timeout_ms is None else spec.timeout_ms / 1000
        begun = anyio.current_time()
        await commands.last(min(course.seconds, limit))
        late = course.seconds > limit and not commands.calm.is_set()
        if course.writes is not None:
            with course.writes.open("ab") as file:
                file.write(b"line of a command\n")
        for word in OWN_COMMAND.findall(" ".join(spec.argv)):
            commands.ended[word] = commands.model.begun
        for stream, data in (
            (ExecOutputStream.STDOUT, course.stdout),
            (ExecOutputStream.STDERR, course.stderr),
        ):
            if data:
                on_output(stream, data[:cap])
        return ExecResult(
            exit_code=TIMEOUT_EXIT_CODE if late else course.code,
            stdout=course.stdout[:cap],
            stderr=course.stderr[:cap],
            aggregated=(course.stdout + course.stderr)[:cap],
            duration_s=anyio.current_time() - begun,
            timed_out=late,
            denied=b"not permitted" in course.stderr and spec.sandbox is not None,
        )
    finally:
        commands.running -= 1


class SimHook:
    """Run of a hook, with the part of `Process` that hooks use. Raises LaunchError if it does not start."""

    def __init__(self, commands: Commands) -> None:
        outcomes = commands.model.habits.hooks if not commands.calm.is_set() else ("agrees",)
        self._outcome = commands.model.draws.pick("outcome of a hook", outcomes)
        if self._outcome == "launch error":
            commands.hooks_not_started += 1
            raise LaunchError("no processes left")
        self._commands, self._killed = commands, anyio.Event()
        self.stdin = HookInput(self._judge)
        self.report: Report | None = None
        commands.running += 1

    def _judge(self, data: bytes) -> None:
        given = json.loads(data)
        marks = set(MARK.findall(json.dumps(given.get("tool_input", {}))))
        if given["hook_event_name"] == "PreToolUse":
            self._commands.judged.update(marks)
            if self._outcome == "denies":
                self._commands.denied.update(marks)

    async def forward(self, take: Callable[[ExecOutputStream, bytes], Awaitable[None]]) -> None:
        await anyio.lowlevel.checkpoint()
        if self._outcome == "hangs":
            await self._killed.wait()
        else:
            await self._commands.last(self._commands.model.draws.seconds("duration of a hook", 0.0, 0.2))
        if self._outcome == "no JSON":
            await take(ExecOutputStream.STDOUT, b"{no")
        if self._outcome == "text before its answer":
            await take(ExecOutputStream.STDOUT, b'loading\n{"decision": "block"}')
        if self._outcome == "is killed" or self._killed.is_set():
            self.report = KILLED
        else:
            self.report = Report("exit", {"denies": 2, "fails": 1}.get(self._outcome, 0))

    def kill(self) -> None:
        self._killed.set()

    async def end(self) -> None:
        self.report = self.report or KILLED

    def finished(self) -> Report:
        assert self.report is not None
        return self.report

    def release(self) -> None:
        self._commands.running -= 1


@dataclass(slots=True)
class HookInput:
    """Input of a hook, which reads all of it."""

    read: Callable[[bytes], None]

    async def write(self, data: bytes, *, last: bool = False) -> None:
        self.read(data)
        await anyio.lowlevel.checkpoint()


class _Input:
    """Input of a process that reads everything."""

    async def write(self, data: bytes, *, last: bool = False) -> None:
        await anyio.lowlevel.checkpoint()


class SimProcess:
    """Process on a terminal, with the interface of `app_server.engine.sandbox.exec.command_process.Process`."""

    def __init__(self, commands: Commands, course: Course) -> None:
        self.stdin = _Input()
        self.report: Report | None = None
        self._commands, self._course = commands, course
        self._killed = anyio.Event()

    def kill(self) -> None:
        self._killed.set()

    async def forward(
        self, take: Callable[[ExecOutputStream, bytes], object], size: int, drain: float
    ) -> None:
        self._commands.running += 1
        try:
            commands, course = self._commands, self._course
            pieces = 1 if commands.calm.is_set() else commands.model.draws.pick("pieces of output", (1, 3))
            async with anyio.create_task_group() as either:
                either.start_soon(self._until_killed, either)
                for _ in range(pieces - 1):
                    await commands.last(course.seconds / pieces)
                    await take(ExecOutputStream.STDOUT, b"so far\n")  # type: ignore[misc]
                await commands.last(course.seconds / pieces)
                either.cancel_scope.cancel()
            if self._killed.is_set():
                if commands.model.draws.chance("last words of a terminal", 0.5):
                    await take(ExecOutputStream.STDOUT, b"killed\n")  # type: ignore[misc]
                self.report = KILLED
                return
            await take(ExecOutputStream.STDOUT, course.stdout[: 1 << 17])  # type: ignore[misc]
            self.report = Report("exit", course.code)
        finally:
            self._commands.running -= 1

    async def _until_killed(self, either: TaskGroup) -> None:
        await self._killed.wait()
        either.cancel_scope.cancel()

    def release(self) -> None:
        pass
