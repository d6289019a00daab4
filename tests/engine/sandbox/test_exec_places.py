"""Real commands that try to move the places that the sandbox grants and forbids, and the placeholders of names during a
command.
"""

import os
import resource
import sys
from pathlib import Path

import pytest

from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.sandbox.launcher.placeholder_dirs import MARK_NS, Acquired, PlaceholderDirs
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.sandbox.roots import ConversationRoots
from app_server_protocol.policy import ReadOnly, WorkspaceWrite
from tests.engine.sandbox.conftest import PATH, Bench, at_level

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Linux sandbox")


@pytest.fixture
async def bench(bench: Bench) -> Bench:
    return await at_level(bench, "full")


def planned(bench: Bench, roots: ConversationRoots, cwd: Path, *more: Path) -> SandboxPlan:
    policy = WorkspaceWrite(
        writable_roots=tuple(map(str, more)), exclude_slash_tmp=True, exclude_tmpdir_env_var=True
    )
    plan = bench.runner.plan(policy, str(cwd), roots)
    assert plan is not None
    return plan


async def run(bench: Bench, plan: SandboxPlan, script: str) -> ExecResult:
    spec = CommandSpec(
        argv=("sh", "-c", script), cwd="/", env={"PATH": PATH}, timeout_ms=10_000, sandbox=plan
    )
    return await bench.runner.run(spec, lambda *_: None)


async def sh(bench: Bench, script: str, cwd: Path, *more: Path) -> ExecResult:
    """Run a script in a conversation of its own."""
    return await run(bench, planned(bench, bench.runner.roots.open(), cwd, *more), script)


ASIDE = "mv {0} {0}.old && cp -a {0}.old {0}"


@pytest.mark.parametrize("moved", ["top", "top/mid", "top/mid/ws"])
@pytest.mark.parametrize("name", [".git", ".codex", ".agents"])
async def test_no_directory_above_a_fence_can_be_moved(
    bench: Bench, tmp_path: Path, moved: str, name: str
) -> None:
    outer = tmp_path / "outer"
    ws = outer / "top/mid/ws"
    (ws / name).mkdir(parents=True)
    script = f"{ASIDE.format(outer / moved)}; echo x > {ws}/{name}/evil; rmdir {outer / moved}"
    result = await sh(bench, script, ws, outer)
    assert result.exit_code != 0
    assert os.listdir(ws / name) == []
    await bench.runner.close()
    assert os.listdir(outer) == ["top"]


async def test_names_that_do_not_exist_are_reserved_with_what_is_above_them(
    bench: Bench, tmp_path: Path
) -> None:
    ws = tmp_path / "outer/mid/ws"
    ws.mkdir(parents=True)
    script = f"mv {tmp_path}/outer/mid {tmp_path}/outer/m2; mkdir -p {ws}/.git/hooks && echo evil"
    assert (await sh(bench, script, ws, tmp_path / "outer")).stdout == b""
    await bench.runner.close()
    assert os.listdir(ws) == []


async def test_the_home_stays_where_it_is(bench: Bench) -> None:
    home = bench.ws / "conf/deep/home"
    home.mkdir(parents=True)
    bench.runner.home = str(home)
    for parent in ("conf", "conf/deep", "conf/deep/home"):
        script = f"mv {bench.ws}/{parent} {bench.ws}/away; mkdir -p {home}; echo x > {home}/config.toml"
        assert (await sh(bench, script, bench.ws)).exit_code != 0
    assert os.listdir(home) == []


async def test_a_link_to_the_home_stays_what_it_is(bench: Bench, tmp_path: Path) -> None:
    (bench.ws / "conf").mkdir()
    (bench.ws / "conf/home").symlink_to(tmp_path / "home")
    bench.runner.home = str(bench.ws / "conf/home")
    script = f"cd {bench.ws}; ln -sfn evil conf/home; rm conf/home; mv conf gone; mkdir -p conf/home"
    await sh(bench, script, bench.ws)
    assert os.readlink(bench.ws / "conf/home") == str(tmp_path / "home")


@pytest.mark.parametrize(
    "script",
    [
        "mv d d0 && mkdir d && cp -a d0/real d/real",
        "rm l && ln -s evil l",
        "mv l l0 && mkdir -p l/real/hooks",
        "mv d/real d/r2 && mkdir -p d/real/hooks",
    ],
)
async def test_what_git_leads_to_is_held_with_every_link_and_directory_on_the_way(
    bench: Bench, script: str
) -> None:
    (bench.ws / "d/real/hooks").mkdir(parents=True)
    (bench.ws / "evil/real/hooks").mkdir(parents=True)
    (bench.ws / "l").symlink_to("d")
    (bench.ws / ".git").symlink_to("l/real")
    await sh(bench, f"cd {bench.ws}; {script}; echo x > .git/hooks/evil", bench.ws)
    assert list((bench.ws / ".git/hooks").iterdir()) == []


@pytest.mark.parametrize("place", ["proj", "org/proj"])
async def test_repositories_inside_the_workspace_are_not_moved_aside(bench: Bench, place: str) -> None:
    repository = bench.ws / place
    (repository / ".git/hooks").mkdir(parents=True)
    hook = repository / ".git/hooks/evil"
    top = bench.ws / place.split("/")[0]
    for moved in {repository, top}:
        await sh(bench, f"{ASIDE.format(moved)}; echo x > {hook}", bench.ws)
        await sh(bench, f"mkdir -p {bench.ws}/a/b; mv {moved} {bench.ws}/a/b/; echo x > {hook}", bench.ws)
    assert repository.is_dir()
    assert not hook.exists()


async def test_a_repository_stays_fenced_whatever_is_made_beside_it(bench: Bench) -> None:
    (bench.ws / "zz/.git").mkdir(parents=True)
    roots = bench.runner.roots.open()
    many = f"cd {bench.ws}; i=0; while [ $i -lt 600 ]; do mkdir a$i; i=$((i+1)); done"
    assert (await run(bench, planned(bench, roots, bench.ws), many)).exit_code == 0
    result = await run(bench, planned(bench, roots, bench.ws), f"echo x > {bench.ws}/zz/.git/evil")
    assert result.exit_code != 0
    assert os.listdir(bench.ws / "zz/.git") == []


async def test_pinned_directories_can_be_worked_in(bench: Bench, tmp_path: Path) -> None:
    ws = tmp_path / "outer/mid/ws"
    (ws / "proj/.git").mkdir(parents=True)
    script = (
        f"cd {ws} && mkdir a && echo x > a/f && mv a b && mv b/f proj/f && mv proj/f ../g && chmod 700 proj"
        " && rm -r b && ln ../g ../h && mkdir ../../new && rmdir ../../new"
    )
    result = await sh(bench, script, ws, tmp_path / "outer")
    assert result.exit_code == 0, result.stderr
    assert sorted(os.listdir(ws.parent)) == ["g", "h", "ws"]


async def test_a_root_is_opened_where_it_was_resolved_or_not_at_all(bench: Bench, tmp_path: Path) -> None:
    """A command of another conversation changes it between the plan and the start."""
    big, ws = tmp_path / "big", tmp_path / "big/p/ws"
    ws.mkdir(parents=True)
    plan = planned(bench, bench.runner.roots.open(), ws)
    victim = tmp_path / "outside/ws"
    victim.mkdir()
    assert (await sh(bench, f"mv {big}/p {big}/p0 && ln -s {tmp_path}/outside {big}/p", big)).exit_code == 0
    result = await run(bench, plan, f"echo x > {ws}/new; mkdir {ws}/.git; ls -a {victim}")
    assert result.stdout == b".\n..\n"
    assert os.listdir(victim) == []


async def test_without_namespaces_a_root_is_opened_no_other_way(degraded: Bench, tmp_path: Path) -> None:
    big, ws = tmp_path / "big", tmp_path / "big/p/ws"
    ws.mkdir(parents=True)
    plan = planned(degraded, degraded.runner.roots.open(), ws)
    victim = tmp_path / "outside/ws"
    victim.mkdir()
    assert (await run(degraded, plan, f"echo x > {ws}/new")).exit_code == 0
    (big / "p").rename(big / "p0")
    (big / "p").symlink_to(tmp_path / "outside")
    assert (await run(degraded, plan, f"echo x > {ws}/new")).exit_code != 0
    assert os.listdir(victim) == []


async def test_a_root_that_went_and_came_back_is_used_again(bench: Bench) -> None:
    roots = bench.runner.roots.open()
    assert (await run(bench, planned(bench, roots, bench.ws), f"echo x > {bench.ws}/f")).exit_code == 0
    bench.ws.rename(bench.ws.with_name("old"))
    bench.ws.mkdir()
    assert (await run(bench, planned(bench, roots, bench.ws), f"echo x > {bench.ws}/f")).exit_code == 0
    assert (bench.ws / "f").exists()


async def test_roots_inside_one_another_and_by_links_are_all_writable(bench: Bench, tmp_path: Path) -> None:
    for name in ("a/b/c", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ln").symlink_to("a/b")
    (tmp_path / "a/b/in").symlink_to("c")
    roots = [tmp_path / name for name in ("a/b/in", "a", "ln", "other")]
    script = f"cd {tmp_path} && for d in a a/b a/b/c other; do echo x > $d/f || exit 1; done"
    result = await sh(bench, script, tmp_path / "a/b/c", *roots)
    assert result.exit_code == 0, result.stderr


async def test_a_held_name_follows_no_link(bench: Bench, tmp_path: Path) -> None:
    """The launcher creates the placeholders, and may write where the command may not."""
    plan = planned(bench, bench.runner.roots.open(), bench.ws)
    bench.ws.rmdir()
    bench.ws.symlink_to(tmp_path / "outside")
    before = (tmp_path / "outside").stat().st_mtime_ns
    await run(bench, plan, "true")
    assert (tmp_path / "outside").stat().st_mtime_ns == before


async def test_read_only_opens_nothing(bench: Bench) -> None:
    plan = bench.runner.plan(ReadOnly(), str(bench.ws), bench.runner.roots.open())
    assert plan is not None
    assert (await run(bench, plan, f"echo x > {bench.ws}/f")).exit_code != 0


@pytest.fixture
def name(tmp_path: Path) -> bytes:
    return os.fsencode(tmp_path / ".git")


def test_a_name_is_held_by_a_marked_directory_until_the_last_has_given_it_back(name: bytes) -> None:
    names = PlaceholderDirs()
    first, second = names.acquire([name]), names.acquire([name])
    assert first.held == second.held == (name,)
    assert os.stat(name).st_mtime_ns == MARK_NS
    names.release(first.held)
    assert os.path.isdir(name)
    names.release(second.held)
    assert not os.path.lexists(name)


def test_a_kept_directory_serves_the_next_command_and_is_removed_unless_it_is_needed(name: bytes) -> None:
    names = PlaceholderDirs()
    names.keep(names.acquire([name]).held)
    made = os.stat(name).st_ino
    again = names.acquire([name])
    assert (again.held, os.stat(name).st_ino) == ((name,), made)
    names.remove_unused()
    assert os.path.isdir(name)
    names.keep(again.held)
    names.remove_unused()
    assert not os.path.lexists(name)


def test_a_kept_directory_that_somebody_removed_or_replaced_is_not_taken_for_it(name: bytes) -> None:
    names = PlaceholderDirs()
    names.keep(names.acquire([name]).held)
    os.rmdir(name)
    again = names.acquire([name])
    assert again.held == (name,)
    assert os.stat(name).st_mtime_ns == MARK_NS
    names.keep(again.held)
    os.rmdir(name)
    os.mkdir(name)
    assert names.acquire([name]) == Acquired(held=(), found=(name,))
    names.remove_unused()
    assert os.path.isdir(name)


def test_what_is_there_already_is_somebody_elses(name: bytes) -> None:
    os.mkdir(name)
    names = PlaceholderDirs()
    taken = names.acquire([name])
    assert (taken.held, taken.found) == ((), (name,))
    names.release_all()
    assert os.path.isdir(name)


def test_who_found_a_name_takes_it_from_nobody_who_holds_it(name: bytes) -> None:
    """One command finds the directory of the user, who then removes it; the next command creates a placeholder
    there.
    """
    os.mkdir(name)
    names = PlaceholderDirs()
    found = names.acquire([name])
    os.rmdir(name)
    held = names.acquire([name])
    assert held.held == (name,)
    names.release(found.held)
    assert os.path.isdir(name)
    names.release(held.held)
    assert not os.path.lexists(name)


def test_two_servers_share_a_directory(name: bytes) -> None:
    one, other = PlaceholderDirs(), PlaceholderDirs()
    taken, theirs = one.acquire([name]), other.acquire([name])
    assert taken.held == theirs.held == (name,)
    one.release(taken.held)
    assert os.path.isdir(name)
    again = one.acquire([name])
    assert again.held == (name,)
    other.release_all()
    assert os.path.isdir(name)
    one.release(again.held)
    assert not os.path.lexists(name)


def test_what_somebody_puts_into_it_stays(name: bytes) -> None:
    names = PlaceholderDirs()
    taken = names.acquire([name])
    Path(os.fsdecode(name), "HEAD").write_text("ref: refs/heads/main\n")
    names.release(taken.held)
    assert os.listdir(name) == [b"HEAD"]


def test_a_folder_that_is_missing_holds_nothing(tmp_path: Path) -> None:
    taken = PlaceholderDirs().acquire([os.fsencode(tmp_path / "missing" / ".git")])
    assert (taken.held, taken.found) == ((), ())


def test_a_link_is_not_followed(tmp_path: Path, name: bytes) -> None:
    target = tmp_path / "target"
    target.mkdir()
    os.utime(target, ns=(MARK_NS, MARK_NS))
    os.symlink(target, name)
    names = PlaceholderDirs()
    assert names.acquire([name]) == Acquired(held=(), found=(name,))
    target.rmdir()
    assert names.acquire([name]) == Acquired(held=(), found=(name,))
    names.release_all()
    assert os.path.islink(name)


def test_what_a_killed_launcher_left_is_removed_by_the_next_and_nothing_else(tmp_path: Path) -> None:
    left, theirs = bytes(tmp_path / ".codex"), bytes(tmp_path / ".agents")
    os.mkdir(left)
    os.utime(left, ns=(MARK_NS, MARK_NS))
    os.mkdir(theirs)
    reserved = PlaceholderDirs()
    assert reserved.acquire([left, theirs]) == Acquired(held=(left,), found=(theirs,))
    reserved.release_all()
    assert os.listdir(tmp_path) == [".agents"]


def test_a_child_that_was_forked_meanwhile_does_not_keep_a_name(tmp_path: Path) -> None:
    name = bytes(tmp_path / ".git")
    one, other = PlaceholderDirs(), PlaceholderDirs()
    one.acquire([name])
    other.acquire([name])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # the child has the descriptors, like children of the launcher
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    one.release_all()
    other.release_all()
    os.close(writer)
    os.close(reader)
    os.waitpid(child, 0)
    assert not os.path.exists(name)


def test_a_shortage_is_an_error_and_holds_nothing(tmp_path: Path, name: bytes) -> None:
    """Without the placeholder a command that notices the shortage could take the name."""
    names = PlaceholderDirs()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.fsencode(tmp_path / "first")
    filling = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 50, hard))
        while True:
            filling.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        os.close(filling.pop())
        with pytest.raises(OSError, match="open files"):
            names.acquire((first, name))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in filling:
            os.close(number)
    assert names.holders == {}
    assert not os.path.lexists(first)
    assert not os.path.lexists(name)
    assert names.acquire((first, name)).held == (first, name)
    names.release_all()
