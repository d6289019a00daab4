"""A command runs in the folder that was judged, or not at all."""

import pytest

from app_server.core.errors import LaunchError
from app_server.core.exec.command import CommandSpec, ExecResult
from protocol.policy import DangerFullAccess, ReadOnly, SandboxPolicy
from protocol.structs import replace
from tests.unit.exec.conftest import Bench

POLICIES: list[SandboxPolicy] = [DangerFullAccess(), ReadOnly()]


async def run(bench: Bench, spec: CommandSpec) -> ExecResult:
    return await bench.runner.run(spec, lambda stream, chunk: None)


@pytest.mark.parametrize("policy", POLICIES, ids=["free", "confined"])
@pytest.mark.parametrize("way", ["last", "before"])
async def test_a_link_that_came_into_the_path_is_not_followed(
    bench: Bench, policy: SandboxPolicy, way: str
) -> None:
    folder = bench.ws / "a" / "b"
    folder.mkdir(parents=True)
    (bench.outside / "b").mkdir()
    spec = replace(bench.spec("pwd", "-P", policy=policy), cwd=str(folder), exact_cwd=True)
    assert (await run(bench, spec)).stdout == f"{folder}\n".encode()
    folder.rmdir()
    if way == "before":
        folder.parent.rmdir()
        folder.parent.symlink_to(bench.outside)
    else:
        folder.symlink_to(bench.outside)
    with pytest.raises(LaunchError, match="NotADirectory"):
        await run(bench, spec)
    # Where nobody asked for that folder and no other, links lead as ever.
    assert (await run(bench, replace(spec, exact_cwd=False))).stdout.startswith(bytes(bench.outside))


@pytest.mark.parametrize("policy", POLICIES, ids=["free", "confined"])
async def test_it_is_so_on_a_terminal_and_without_namespaces(degraded: Bench, policy: SandboxPolicy) -> None:
    (degraded.ws / "link").symlink_to(degraded.outside)
    spec = replace(degraded.spec("pwd", "-P", policy=policy), cwd=str(degraded.ws / "link"), exact_cwd=True)
    with pytest.raises(LaunchError, match="NotADirectory"):
        await run(degraded, spec)
    session = await degraded.runner.open_session(spec)
    await session.wait_ended()
    assert session.failure is not None
    await session.close()


async def test_a_folder_that_may_be_passed_but_not_listed_is_entered(bench: Bench) -> None:
    folder = bench.ws / "shut" / "in"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o111)
    try:
        spec = replace(bench.spec("pwd", "-P"), cwd=str(folder), exact_cwd=True)
        assert (await run(bench, spec)).stdout == f"{folder}\n".encode()
    finally:
        folder.parent.chmod(0o755)
