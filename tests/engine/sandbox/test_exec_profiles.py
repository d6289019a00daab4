"""Real commands under permission profiles: what they hide and allow, and ways around it."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from app_server.engine.sandbox import inspect
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.sandbox.plan import SandboxPlan, for_own_program
from app_server.engine.support.engine_errors import LaunchError, SandboxUnavailable
from app_server.engine.support.helpers import reader_command
from app_server_protocol.encoding import Json
from app_server_protocol.policy import PermissionProfile
from tests.engine.sandbox.conftest import Bench, at_level
from tests.support.profiles import VS_CODE, named, profile

SECRET = "sentinel-of-a-secret"


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """Yield a folder that no profile of VS Code allows. The folder of tests is in /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        (Path(folder) / "key").write_text(SECRET)
        yield Path(folder)


@pytest.fixture
async def full(bench: Bench) -> Bench:
    (bench.ws / "private").mkdir()
    (bench.ws / "private" / "key").write_text(SECRET)
    (bench.ws / "a.env").write_text(SECRET)
    (bench.ws / "sub").mkdir()
    (bench.ws / "sub" / "b.env").write_text("of another folder\n")
    (bench.ws / "plain").write_text("plain\n")
    (bench.outside / "key").write_text(SECRET)
    return await at_level(bench, "full")


async def approved(bench: Bench, script: str, policy: PermissionProfile) -> ExecResult:
    """Run a script that the user allowed to run without the sandbox."""
    plan = bench.runner.approved_plan(policy, str(bench.ws))
    assert plan is not None
    spec = CommandSpec(
        argv=("sh", "-c", script), cwd=str(bench.ws), env={"PATH": "/usr/bin:/bin"}, sandbox=plan
    )
    return await bench.runner.run(spec, lambda stream, chunk: None)


def in_workspace(**rules: Json) -> PermissionProfile:
    return profile({":workspace_roots": rules})


def text(result: ExecResult) -> str:
    return result.aggregated.decode()


WAYS = {
    "cat": "cat private/key a.env",
    "copy": "cp private/key x; cat x; cp -r private y; cat y/key",
    "link": "ln -s private/key soft; cat soft; ln -s private softer; cat softer/key",
    "hard link": "ln a.env hard; cat hard; ln private/key hard2; cat hard2",
    "move": "mv private moved; cat moved/key; mv a.env b; cat b",
    "root of a process": "cat /proc/self/root$PWD/private/key /proc/1/root$PWD/a.env /proc/$$/root$PWD/a.env",
    "working directory of a process": "cat /proc/self/cwd/private/key /proc/1/cwd/a.env",
    "descriptors": "for f in /proc/1/fd/* /proc/self/fd/*; do cat $f/private/key $f/../ws/private/key; done </dev/null",
    "dots": "cat ./sub/../private/key ../ws/a.env",
    "chmod": "chmod -R 777 private a.env; cat private/key a.env",
    "remove and look": "rm -rf private a.env; cat private/key a.env",
    "unmount": "umount private; umount -l a.env; cat private/key a.env",
    "mount": "mkdir m; mount --bind . m; cat m/private/key; unshare -m cat private/key; unshare -r cat a.env",
    "tar and find": "tar cf - . ; find . -type f -exec cat {} +",
    "python": f"{sys.executable} -c 'import os; print(os.open(\"private/key\", os.O_RDONLY))'",
    "rename the workspace": "mv ../ws ../other; cat ../other/private/key",
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_denied_file_is_not_read_in_any_way(full: Bench, way: str) -> None:
    policy = in_workspace(**{"private": "deny", "a.env": "deny"})
    result = await full.sh(WAYS[way] + "\ntrue", policy=policy)
    assert SECRET not in text(result)
    assert (full.ws / "private" / "key").read_text() == SECRET
    assert (full.ws / "a.env").read_text() == SECRET


@pytest.mark.parametrize("way", WAYS)
async def test_nor_after_a_yes(full: Bench, way: str) -> None:
    policy = in_workspace(**{"private": "deny", "a.env": "deny"})
    result = await approved(full, WAYS[way] + "\ntrue", policy)
    assert SECRET not in text(result)
    assert (full.ws / "private" / "key").read_text() == SECRET


async def test_an_approved_command_writes_outside_of_the_workspace_and_has_no_network(full: Bench) -> None:
    policy = in_workspace(private="deny", plain="read")
    script = f"echo x > {full.outside}/made && echo y > plain; touch .git/x; cat /proc/net/dev"
    result = await approved(full, script, policy)
    assert (full.outside / "made").read_text() == "x\n"
    assert (full.ws / "plain").read_text() == "y\n"
    assert not (full.ws / ".git").exists() or not (full.ws / ".git" / "x").exists()
    assert "eth0" not in text(result)


async def test_a_profile_that_hides_nothing_leaves_approved_commands_without_a_sandbox(full: Bench) -> None:
    assert full.runner.approved_plan(profile({}), str(full.ws)) is None


async def test_a_pattern_hides_what_is_there_when_a_command_starts(full: Bench) -> None:
    policy = in_workspace(**{"**/*.env": "deny"})
    both = text(await full.sh("cat a.env sub/b.env", policy=policy))
    assert SECRET not in both
    assert "another" not in both
    (full.ws / "new.env").write_text(SECRET)
    assert SECRET not in text(await full.sh("cat new.env", policy=policy))
    assert "plain" in text(await full.sh("cat plain", policy=policy))


async def test_a_star_stays_in_its_folder(full: Bench) -> None:
    result = await full.sh("cat a.env; cat sub/b.env", policy=in_workspace(**{"*.env": "deny"}))
    assert SECRET not in text(result)
    assert "of another folder" in text(result)


async def test_a_pattern_that_matches_too_much_refuses_the_command(full: Bench) -> None:
    many = full.ws / "many"
    many.mkdir()
    for number in range(600):
        (many / f"{number}.env").touch()
    with pytest.raises(SandboxUnavailable, match="more than 512 files"):
        await full.sh("true", policy=in_workspace(**{"**/*.env": "deny"}))
    with pytest.raises(SandboxUnavailable, match="no folder before"):
        await full.sh("true", policy=profile({"/**/*.env": "deny"}))


async def test_a_missing_denied_name_cannot_be_created(full: Bench) -> None:
    policy = in_workspace(**{"nothing": "deny", "no/where": "deny"})
    result = await full.sh(
        "mkdir nothing; echo x > nothing; mkdir -p no/where; echo x > no/where/x; true", policy=policy
    )
    assert result.exit_code == 0
    assert not (full.ws / "no" / "where").exists()
    assert not (full.ws / "nothing").is_file()


async def test_read_in_a_writable_root_is_read_only(full: Bench) -> None:
    policy = in_workspace(plain="read", sub="read")
    result = await full.sh(
        "cat plain; echo x > plain; rm plain; mv plain y; touch sub/x; mv sub z; true", policy=policy
    )
    assert text(result).startswith("plain")
    assert (full.ws / "plain").read_text() == "plain\n"
    assert sorted(os.listdir(full.ws / "sub")) == ["b.env"]


async def test_write_reopens_a_denied_folder_and_read_does_not(full: Bench) -> None:
    (full.ws / "private" / "open").mkdir()
    (full.ws / "private" / "shut").mkdir()
    (full.ws / "private" / "shut" / "x").write_text(SECRET)
    rules = {"private": "deny", "private/open": "write", "private/shut": "read"}
    script = "echo made > private/open/x; ls private; cat private/key private/shut/x; touch private/y"
    result = await full.sh(script, policy=in_workspace(**rules))
    assert SECRET not in text(result)
    assert (full.ws / "private" / "open" / "x").read_text() == "made\n"
    assert not (full.ws / "private" / "y").exists()


async def test_write_reopens_a_read_only_folder(full: Bench) -> None:
    (full.ws / "sub" / "out").mkdir()
    script = "touch sub/out/x && touch sub/y; touch sub/out/.git/z; mkdir sub/out/.aws; true"
    await full.sh(script, policy=in_workspace(**{"sub": "read", "sub/out": "write"}))
    assert (full.ws / "sub" / "out" / "x").exists()
    assert not (full.ws / "sub" / "y").exists()
    assert not (full.ws / "sub" / "out" / ".git" / "z").exists()


async def test_a_single_file_may_be_written(full: Bench) -> None:
    policy = profile({":workspace_roots": "read", ":slash_tmp": "read", str(full.ws / "plain"): "write"})
    await full.sh("echo new > plain; touch other", policy=policy)
    assert (full.ws / "plain").read_text() == "new\n"
    assert not (full.ws / "other").exists()


@pytest.mark.parametrize("name", VS_CODE)
async def test_the_profiles_of_vs_code_show_the_workspace_and_the_system_alone(
    full: Bench, name: str, elsewhere: Path
) -> None:
    policy = named(VS_CODE, name)
    script = (
        f"ls / ; ls {elsewhere}; cat {elsewhere}/key; cat plain; touch made; touch {full.ws.parent}/x; ls ~;"
        " ls /proc/1/root; echo x > /dev/null && echo devices; ls /etc > /dev/null && echo system; touch /y"
    )
    result = await full.sh(script, policy=policy)
    assert SECRET not in text(result)
    assert "plain\n" in text(result)
    assert "devices\nsystem\n" in text(result)
    assert (full.ws / "made").exists() == (name != "vscode-workspace-read-only")
    assert not (full.ws.parent / "x").exists()
    assert not {"home", "root", "var", "srv"} & set(text(result).splitlines())


async def test_name_servers_are_known_where_there_is_a_network(
    full: Bench, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / "resolv.conf").write_text("nameserver 127.0.0.53\n")
    monkeypatch.setattr(inspect, "RESOLVER", str(elsewhere / "resolv.conf"))
    script = f"cat {elsewhere}/resolv.conf; cat {elsewhere}/key"
    assert text(await full.sh(script, policy=named(VS_CODE, "vscode-workspace-network"))).startswith(
        "nameserver"
    )
    assert "127.0.0.53" not in text(await full.sh(script, policy=named(VS_CODE, "vscode-workspace")))


async def test_login_shells_are_recorded_where_the_recording_can_be_read(full: Bench) -> None:
    shown = full.runner.plan(named(VS_CODE, "vscode-workspace"), str(full.ws))
    assert shown is not None
    assert shown.view.programs == ()
    hidden = full.runner.plan(profile({os.path.dirname(sys.prefix): "deny"}), str(full.ws))
    assert hidden is not None
    assert os.path.realpath(sys.prefix) in hidden.view.programs


async def test_a_profile_begins_with_nothing(full: Bench) -> None:
    policy = profile({":minimal": "read"}, extends=None)
    with pytest.raises(LaunchError):  # not even its working directory exists
        await full.sh("true", policy=policy)
    spec = full.spec("sh", "-c", f"cat {full.ws}/plain; ls /", policy=policy)
    spec = CommandSpec(argv=spec.argv, cwd="/", env=spec.env, sandbox=spec.sandbox)
    result = await full.runner.run(spec, lambda stream, chunk: None)
    assert "plain\n" not in text(result)


async def test_a_place_by_a_link_is_there_by_both_names(full: Bench, elsewhere: Path) -> None:
    (elsewhere / "shared").mkdir()
    (elsewhere / "shared" / "x").write_text("by a link")
    link = elsewhere / "link"
    link.symlink_to("shared")
    policy = profile({":root": "deny", ":minimal": "read", str(link): "read"})
    result = await full.sh(f"cat {link}/x {elsewhere}/shared/x; ls {elsewhere}", policy=policy)
    assert text(result).count("by a link") == 2
    assert "key" not in text(result).replace(str(elsewhere), "")  # whose random name may have those letters


async def test_what_a_denied_link_leads_to_is_denied(full: Bench) -> None:
    (full.ws / "link").symlink_to(full.outside / "key")
    result = await full.sh(f"cat link {full.outside}/key", policy=in_workspace(link="deny"))
    assert SECRET not in text(result)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts take root")
async def test_a_denied_file_is_hidden_behind_a_second_mount_too(full: Bench) -> None:
    (full.outside / "again").mkdir()
    again = full.outside / "again"
    if (await anyio.run_process(["mount", "--bind", str(full.ws), str(again)], check=False)).returncode:
        pytest.skip("this machine forbids mounts")
    try:
        result = await full.sh(f"cat {again}/a.env {again}/plain", policy=in_workspace(**{"a.env": "deny"}))
    finally:
        await anyio.run_process(["umount", "-l", str(again)])
    assert SECRET not in text(result)
    assert "plain\n" in text(result)


async def test_what_reads_for_the_model_sees_no_more(full: Bench, elsewhere: Path) -> None:
    plan = full.runner.plan(in_workspace(private="deny", **{"*.env": "deny"}), str(full.ws))
    shown = for_own_program(plan)
    assert SECRET not in await read(full, full.ws / "private" / "key", shown)
    assert SECRET not in await read(full, full.ws / "a.env", shown)
    assert "plain" in await read(full, full.ws / "plain", shown)
    plan = for_own_program(full.runner.plan(named(VS_CODE, "vscode-workspace"), str(full.ws)))
    assert SECRET not in await read(full, elsewhere / "key", plan)
    assert "plain" in await read(full, full.ws / "plain", plan)


async def test_our_programs_work_where_their_folder_is_hidden(full: Bench) -> None:
    policy = profile({os.path.dirname(sys.prefix): "deny", os.path.realpath(sys.prefix): "deny"})
    plan = for_own_program(full.runner.plan(policy, str(full.ws)))
    assert "plain" in await read(full, full.ws / "plain", plan)


async def read(bench: Bench, path: Path, plan: SandboxPlan | None) -> str:
    request = f'{{"do": "read", "path": "{path}", "offset": 1, "limit": 10}}'
    spec = CommandSpec(argv=(*reader_command(sys.executable), request), cwd="/", env={}, sandbox=plan)
    return text(await bench.runner.run(spec, lambda stream, chunk: None))


async def test_without_namespaces_a_profile_that_takes_away_is_refused(degraded: Bench) -> None:
    for rules in ({"private": "deny"}, {"*.env": "deny"}, {"sub": "read"}):
        with pytest.raises(SandboxUnavailable, match="the permission profile `p` hides files"):
            await degraded.sh("true", policy=in_workspace(**rules))


async def test_without_namespaces_landlock_holds_what_is_visible(degraded: Bench, elsewhere: Path) -> None:
    (degraded.ws / "plain").write_text("plain\n")
    script = f"cat plain; cat {elsewhere}/key; touch made; ls /root /home; touch {degraded.outside}/x; true"
    result = await degraded.sh(script, policy=named(VS_CODE, "vscode-workspace"))
    assert "plain\n" in text(result)
    assert SECRET not in text(result)
    assert (degraded.ws / "made").exists()
    assert not (degraded.outside / "x").exists()
