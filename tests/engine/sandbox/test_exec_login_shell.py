"""A login shell that skips its profile behaves like one that runs it."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.engine.sandbox.exec import shell_setup
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.sandbox.exec.shell_setup import FRESH_SECONDS, MAX_BYTES, LoginShells
from app_server_protocol.policy import SandboxPolicy, WorkspaceWrite
from app_server_protocol.values import replace
from tests.engine.sandbox.conftest import PATH, Bench

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")

PROFILE = """\
echo noise; echo noise >&2
export FROM_PROFILE="two  words" PATH="$PATH:/opt/profile"
unexported='a
b'; list=(one "two three"); declare -A map=([k]="v w"); declare -i number=3
greet() { echo "hello $1"; }
set -o pipefail; shopt -s nullglob expand_aliases; umask 027
alias salute='echo salute'; trap 'echo left' EXIT
"""
PROBE = """\
echo "$0|$FROM_PROFILE|$unexported|${list[1]}|${map[k]}|$number|$(greet you)|$(umask)|$-|$SHLVL"
shopt -p nullglob; set -o | grep pipefail; echo "${BASH_ENV-none}"; env | sort; false | true; echo $?
salute
missing_command; exit 7
"""
WW = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)


@dataclass
class Shells:
    bench: Bench
    home: Path
    known: LoginShells
    now: float = 0.0

    def spec(self, script: str, policy: SandboxPolicy | None = None, **env: str) -> CommandSpec:
        spec = self.bench.spec("bash", "-lc", script, policy=policy)
        return replace(spec, env={"PATH": PATH, "HOME": str(self.home), **env})

    async def run(self, spec: CommandSpec) -> ExecResult:
        """Run a command unchanged: for the runner, a shell below `env` is no login shell."""
        below = replace(spec, argv=("/usr/bin/env", *spec.argv))
        return await self.bench.runner.run(below, lambda *_: None)

    async def recorded(self, spec: CommandSpec) -> CommandSpec:
        """Return the command after its shell was used twice."""
        assert not self.known.used(spec)
        assert self.known.used(spec)
        await self.known.record(spec, self.run)
        return self.known.taken_over(spec)


@pytest.fixture
def shells(bench: Bench, tmp_path: Path) -> Shells:
    home = tmp_path / "user"
    home.mkdir()
    (home / ".bash_profile").write_text(PROFILE)
    made = Shells(bench, home, LoginShells(bench.runner.home))
    made.known.clock = lambda: made.now
    return made


@pytest.mark.parametrize("policy", [None, WW])
async def test_nothing_but_the_noise_of_the_profile_differs(
    shells: Shells, policy: SandboxPolicy | None
) -> None:
    spec = shells.spec(PROBE, policy)
    early = await shells.recorded(spec)
    assert early.argv[1:] == ("-c", PROBE)
    slow, fast = await shells.run(spec), await shells.run(early)
    assert slow.stdout == b"noise\n" + fast.stdout
    assert slow.stderr == b"noise\n" + fast.stderr
    assert (slow.exit_code, fast.exit_code) == (7, 7)
    assert b"bash|two  words|a\nb|two three|v w|3|hello you|0027|" in fast.stdout


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20), max_size=4)
)
async def test_values_of_any_kind_survive(shells: Shells, values: list[str]) -> None:
    quoted = ["'" + value.replace("'", "'\\''") + "'" for value in values]
    lines = [f"export E{n}={value}; plain{n}={value}" for n, value in enumerate(quoted)]
    (shells.home / ".bash_profile").write_bytes("\n".join(lines).encode())
    shells.known = LoginShells(shells.bench.runner.home)
    names = " ".join(f'"$E{n}" "$plain{n}"' for n in range(len(values)))
    early = await shells.recorded(shells.spec(f"printf '%s\\0' {names}"))
    result = await shells.run(early)
    assert early.argv[1] == "-c"
    assert result.stdout.decode().split("\0")[:-1] == (
        [v for value in values for v in (value, value)] or [""]
    )


async def test_a_first_use_records_nothing(shells: Shells) -> None:
    spec = shells.spec("true")
    assert not shells.known.used(spec)
    assert shells.known.taken_over(spec) == spec


async def test_a_command_waits_for_a_recording_that_goes_on(shells: Shells) -> None:
    spec, ends = shells.spec("true"), anyio.Event()
    began: list[CommandSpec] = []

    async def slow(recording: CommandSpec) -> ExecResult:
        await ends.wait()
        return await shells.run(recording)

    async def third() -> None:
        assert not shells.known.used(spec)
        await shells.known.recorded(spec)
        began.append(shells.known.taken_over(spec))

    assert [shells.known.used(spec) for _ in range(2)] == [False, True]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shells.known.record, spec, slow)
        tasks.start_soon(third)
        await anyio.wait_all_tasks_blocked()
        assert began == []
        ends.set()
    assert [each.argv[1] for each in began] == ["-c"]


async def test_a_command_does_not_wait_for_a_recording_that_failed(shells: Shells) -> None:
    spec = shells.spec("true")

    async def fails(recording: CommandSpec) -> ExecResult:
        raise OSError("no process left")

    assert [shells.known.used(spec) for _ in range(2)] == [False, True]
    with pytest.raises(OSError, match="no process left"):
        await shells.known.record(spec, fails)
    await shells.known.recorded(spec)
    assert shells.known.taken_over(spec) == spec


async def test_a_command_waits_only_so_long(shells: Shells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_setup, "WAIT_SECONDS", 0.01)
    spec = shells.spec("true")
    assert [shells.known.used(spec) for _ in range(2)] == [False, True]  # no task records it
    await shells.known.recorded(spec)
    assert shells.known.taken_over(spec) == spec


async def test_a_recording_is_begun_once(shells: Shells) -> None:
    spec = shells.spec("true")
    assert [shells.known.used(spec) for _ in range(4)] == [False, True, False, False]


@pytest.mark.parametrize(
    "profile", ["exit 3", "exec true", f"printf -v big '%*s' {MAX_BYTES} x; export big", "kill -9 $$"]
)
async def test_a_profile_that_cannot_be_taken_over_is_run(shells: Shells, profile: str) -> None:
    (shells.home / ".bash_profile").write_text(profile)
    spec = shells.spec("true")
    assert await shells.recorded(spec) == spec


async def test_a_profile_that_changed_is_read_again(shells: Shells) -> None:
    spec = shells.spec("echo $FROM_PROFILE")
    assert await shells.recorded(spec) != spec
    shells.now += FRESH_SECONDS + 1
    assert shells.known.taken_over(spec) == spec
    (shells.home / ".bash_profile").write_text("export FROM_PROFILE=new")
    assert (await shells.run(await shells.recorded(spec))).stdout == b"new\n"


async def test_a_start_that_was_removed_is_not_used(shells: Shells) -> None:
    spec = shells.spec("true")
    Path((await shells.recorded(spec)).env["BASH_ENV"]).unlink()
    assert shells.known.taken_over(spec) == spec


@pytest.mark.parametrize(
    "argv", [("sh", "-lc", "x"), ("bash", "-c", "x"), ("bash", "-lc", "x", "y"), ("./bash", "-lc", "x")]
)
async def test_other_commands_are_left_alone(shells: Shells, argv: tuple[str, ...]) -> None:
    spec = replace(shells.spec("x"), argv=argv)
    assert [shells.known.used(spec) for _ in range(3)] == [False] * 3


async def test_rights_and_environments_have_starts_of_their_own(shells: Shells) -> None:
    spec = shells.spec("true")
    assert await shells.recorded(spec) != spec
    for other in (shells.spec("true", WW), shells.spec("true", MORE="1"), shells.spec("true", BASH_ENV="/x")):
        assert shells.known.taken_over(other) == other
        assert not shells.known.used(other)


async def test_a_confined_command_cannot_change_a_start(shells: Shells) -> None:
    place = Path((await shells.recorded(shells.spec("true"))).env["BASH_ENV"])
    before = place.read_bytes()
    for script in (
        f"echo 'touch evil' >> {place}",
        f"rm -f {place}",
        f"mv {place.parent} {place.parent}-gone",
    ):
        assert (await shells.run(shells.spec(script, WW))).exit_code != 0
    assert place.read_bytes() == before


async def test_the_runner_takes_over_what_it_recorded(shells: Shells) -> None:
    """The output of the profile is gone once it is not run any more."""
    outputs: list[bytes] = []
    while not outputs or b"noise" in outputs[-1]:
        assert len(outputs) < 200
        spec = shells.spec('echo "$FROM_PROFILE"')
        outputs.append((await shells.bench.runner.run(spec, lambda *_: None)).stdout)
    assert outputs[-1] == b"two  words\nleft\n"
    assert len(outputs) > 2
