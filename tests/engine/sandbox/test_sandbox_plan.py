"""Sandbox plans made of policy and facts, and facts read from the disk."""

import os
import sys
from pathlib import Path

import pytest

from app_server.engine.sandbox.inspect import inspect
from app_server.engine.sandbox.make_plan import make_plan
from app_server.engine.sandbox.plan import KeptFolders, RootFacts, RootOptions, SandboxFacts, SandboxPlan
from app_server.engine.sandbox.roots import ServerRoots
from app_server.engine.support.engine_errors import SandboxShortage
from app_server.engine.support.real_path import within
from app_server_protocol.policy import DangerFullAccess, ReadOnly, WorkspaceWrite
from tests.support.shortage import open_files

HOME = "/home/u/.codex"


def facts(*roots: RootFacts, temporary: tuple[RootFacts, ...] = (), superuser: bool = False) -> SandboxFacts:
    return SandboxFacts(HOME, roots, temporary, superuser=superuser)


def planned(*roots: RootFacts, temporary: tuple[RootFacts, ...] = ()) -> SandboxPlan:
    plan = make_plan(WorkspaceWrite(), facts(*roots, temporary=temporary))
    assert plan is not None
    return plan


def test_full_access_has_no_plan_and_read_only_no_roots() -> None:
    assert make_plan(DangerFullAccess(), facts()) is None
    plan = make_plan(ReadOnly(), facts(RootFacts("/ws", "/ws")))
    assert plan is not None
    assert (plan.writable_roots, plan.network, plan.private_temp) == ((), False, True)


def test_existing_names_are_fenced_and_all_are_reserved() -> None:
    plan = make_plan(WorkspaceWrite(), facts(RootFacts("/ws", "/real", ("/real/.git",))))
    assert plan is not None
    assert plan.writable_roots == ("/real",)
    assert plan.protected == ("/real/.git",)
    assert plan.reserved == ("/real/.agents", "/real/.aws", "/real/.codex", "/real/.git")


def test_temporary_folders_are_roots_without_reserved_names() -> None:
    plan = make_plan(
        WorkspaceWrite(), facts(RootFacts("/ws", "/ws"), temporary=(RootFacts("/tmp", "/private/tmp"),))
    )
    assert plan is not None
    assert plan.writable_roots == ("/ws", "/private/tmp")
    assert all(within(name, "/ws") for name in plan.reserved)
    assert not plan.private_temp


def test_a_link_inside_a_root_opens_nothing() -> None:
    through = RootFacts("/ws/sub", "/home/u", ("/home/u/.git",), links=("/ws/sub",))
    plan = planned(RootFacts("/ws", "/ws"), through)
    assert plan.writable_roots == ("/ws",)
    assert plan.protected == ()
    assert all(within(name, "/ws") for name in plan.reserved)
    assert plan.notices == (
        "Commands may not write in /ws/sub: it is reached by a link that commands may change.",
    )


def test_a_link_inside_a_root_is_judged_by_where_it_lies_and_not_by_its_name() -> None:
    """`/ln` leads to `/big/p/ws`, and `/big/p` has become a link to `/out`."""
    through = RootFacts("/ln", "/out/ws", links=("/ln", "/big/p"))
    for named in ((through, RootFacts("/big", "/big")), (RootFacts("/big", "/big"), through)):
        assert planned(*named).writable_roots == ("/big",)


def test_a_link_inside_a_root_that_stays_inside_is_covered_and_its_names_are_reserved() -> None:
    plan = planned(
        RootFacts("/ws", "/ws"), RootFacts("/ws/l", "/ws/d/sub", ("/ws/d/sub/.git",), links=("/ws/l",))
    )
    assert plan.writable_roots == ("/ws",)
    assert "/ws/d/sub/.git" in plan.protected
    assert "/ws/d/sub/.codex" in plan.reserved
    assert plan.pinned == ("/ws/d", "/ws/d/sub")
    assert plan.notices == ()


def test_a_link_where_other_conversations_could_write_opens_nothing() -> None:
    plan = planned(RootFacts("/ws/sub", "/out", links=("/ws/sub",), by_changeable_link=True))
    assert plan.writable_roots == ()
    assert len(plan.notices) == 1


def test_a_root_that_has_become_a_link_is_left_out_and_reported() -> None:
    plan = planned(RootFacts("/ln", None, replaced="/big/p/ws"), RootFacts("/big", "/big"))
    assert plan.writable_roots == ("/big",)
    assert "/big/p/ws" in plan.notices[0]


def test_links_outside_of_every_root_are_the_users_own() -> None:
    plan = planned(RootFacts("/ln", "/big/p/ws", links=("/ln",)), RootFacts("/other", "/other"))
    assert plan.writable_roots == ("/big/p/ws", "/other")
    assert plan.notices == ()


def test_roots_inside_roots_are_covered_in_any_order_and_depth() -> None:
    names = ["/a", "/a/b/c", "/a/b", "/z", "/a/b/c/d", "/az"]
    for order in (names, names[::-1]):
        plan = planned(*(RootFacts(name, name) for name in order))
        assert set(plan.writable_roots) == {"/a", "/z", "/az"}
        assert plan.pinned == ("/a/b", "/a/b/c", "/a/b/c/d")


def test_what_lies_above_a_fence_is_pinned_up_to_the_root() -> None:
    plan = planned(RootFacts("/tmp/t/ws", "/tmp/t/ws"), temporary=(RootFacts("/tmp", "/tmp"),))
    assert plan.writable_roots == ("/tmp",)
    assert plan.pinned == ("/tmp/t", "/tmp/t/ws")
    far = planned(RootFacts("/ws", "/ws", ("/ws/.git", "/ws/d/e/real", "/elsewhere/real")))
    assert far.protected == ("/ws/.git", "/ws/d/e/real")
    assert far.pinned == ("/ws/d", "/ws/d/e")


def test_what_lies_inside_a_fence_needs_none_of_its_own() -> None:
    plan = planned(RootFacts("/ws", "/ws", ("/ws/.git", "/ws/.git/worktrees/w", "/ws/.git/hooks")))
    assert plan.protected == ("/ws/.git",)
    assert plan.pinned == ()


def test_the_home_and_the_links_to_it_are_fenced_with_what_lies_above() -> None:
    plan = make_plan(
        WorkspaceWrite(),
        SandboxFacts(
            "/ws/state/home", (RootFacts("/ws", "/ws"),), home_links=("/ws/conf/link", "/other/link")
        ),
    )
    assert plan is not None
    assert plan.protected == ("/ws/conf/link", "/ws/state/home")
    assert plan.pinned == ("/ws/conf", "/ws/state")


def test_fences_of_other_conversations_hold_inside_the_roots() -> None:
    found = SandboxFacts(HOME, (RootFacts("/p", "/p"),), others=("/p/a/sub/.git", "/q/.git"))
    plan = make_plan(WorkspaceWrite(), found)
    assert plan is not None
    assert plan.protected == ("/p/a/sub/.git",)
    assert plan.pinned == ("/p/a", "/p/a/sub")


@pytest.mark.parametrize("refused", ["/", HOME])
def test_a_refused_root_covers_no_other_and_is_reported(refused: str) -> None:
    plan = planned(
        RootFacts("/ws", "/ws"), temporary=(RootFacts(refused, refused), RootFacts("/tmp", "/tmp"))
    )
    assert plan.writable_roots == ("/ws", "/tmp")
    assert len(plan.notices) == 1
    assert refused in plan.notices[0]
    assert not plan.private_temp


def test_without_a_temporary_folder_that_is_granted_a_command_gets_its_own() -> None:
    plan = planned(RootFacts("/ws", "/ws"), temporary=(RootFacts("/", "/"), RootFacts("/gone", None)))
    assert plan.private_temp


def test_a_root_that_is_not_searched_is_reported() -> None:
    plan = planned(RootFacts("/ws", "/ws", incomplete=True))
    assert plan.notices[0].startswith("/ws: ")


@pytest.mark.parametrize("real", [None, "/", HOME, HOME + "/sessions"])
def test_roots_that_are_never_granted(real: str | None) -> None:
    plan = make_plan(WorkspaceWrite(), facts(RootFacts("/somewhere", real)))
    assert plan is not None
    assert plan.writable_roots == ()


def test_the_servers_home_is_fenced_inside_a_root() -> None:
    plan = make_plan(WorkspaceWrite(), facts(RootFacts("/home/u", "/home/u", (HOME,))))
    assert plan is not None
    assert HOME in plan.protected


def test_root_keeps_its_way_with_files_of_others_only_there() -> None:
    foreign = RootFacts("/ws", "/ws", foreign=True)
    for superuser in (True, False):
        plan = make_plan(WorkspaceWrite(), facts(foreign, superuser=superuser))
        assert plan is not None
        assert plan.foreign_files is superuser


def test_within_compares_whole_components() -> None:
    assert within("/a/b", "/a")
    assert within("/a", "/a")
    assert within("/a", "/")
    assert not within("/a-evil", "/a")


def roots_of(cwd: Path, *roots: str) -> dict[str, RootFacts]:
    found = inspect(
        WorkspaceWrite(writable_roots=roots, exclude_slash_tmp=True),
        str(cwd),
        home="/nowhere",
        roots=ServerRoots().open(),
    )
    return {root.path: root for root in found.roots}


def test_links_and_missing_roots(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    found = roots_of(tmp_path / "link", str(tmp_path / "none"), str(tmp_path / "file"))
    assert [root.real for root in found.values()] == [str(tmp_path / "real"), None, None]


def test_what_git_points_to_is_found(tmp_path: Path) -> None:
    for folder in ("ws", "main/.git/worktrees/w"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "main/.git/worktrees/w/commondir").write_text("../..\n")
    (tmp_path / "ws/.git").write_text("gitdir: ../main/.git/worktrees/w\n")
    (root,) = roots_of(tmp_path / "ws").values()
    main = tmp_path / "main/.git"
    assert root.protected == (str(tmp_path / "ws/.git"), str(main / "worktrees/w"), str(main))


def test_repositories_inside_a_root_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub/.git").mkdir(parents=True)
    (tmp_path / "packages/inner/.git").mkdir(parents=True)
    (tmp_path / ".codex").symlink_to("somewhere")
    (tmp_path / "somewhere").mkdir()
    (root,) = roots_of(tmp_path).values()
    assert set(root.protected) == {
        str(tmp_path / "sub/.git"),
        str(tmp_path / "packages/inner/.git"),
        str(tmp_path / ".codex"),
        str(tmp_path / "somewhere"),
    }


@pytest.mark.parametrize(
    "content", [b"\xff\x00gitdir", b"gitdir: a\x00b", b"gitdir: " + b"x" * 5000, b"gitdir:", b"gitdir: .."]
)
def test_a_git_file_that_is_none_is_survived(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)
    (root,) = roots_of(tmp_path).values()
    assert all(within(fence, str(tmp_path)) and fence != str(tmp_path) for fence in root.protected)
    assert root.protected[0] == str(tmp_path / ".git")


def test_every_link_on_the_way_to_git_is_found(tmp_path: Path) -> None:
    (tmp_path / "a/real/hooks").mkdir(parents=True)
    (tmp_path / "d").symlink_to("a")
    (tmp_path / ".git").symlink_to("d/real")
    (root,) = roots_of(tmp_path).values()
    assert set(root.protected) == {str(tmp_path / name) for name in (".git", "d", "a/real")}


def test_hooks_that_are_a_link_are_found_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "githooks").mkdir()
    (tmp_path / ".git/hooks").symlink_to("../githooks")
    (root,) = roots_of(tmp_path).values()
    assert str(tmp_path / "githooks") in root.protected


def test_a_git_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    (root,) = roots_of(tmp_path).values()
    assert root.protected == (str(tmp_path / ".git"),)


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
@pytest.mark.parametrize(("deep", "told"), [(False, "cannot be read"), (True, "cannot be looked through")])
def test_a_shortage_leaves_no_fence_out(tmp_path: Path, deep: bool, told: str) -> None:
    """There is no plan then, and the next one has all protections."""
    (tmp_path / "main").mkdir()
    (tmp_path / "main/.git").mkdir()
    if deep:
        (tmp_path / "ws/sub/.git").mkdir(parents=True)
    else:
        (tmp_path / "ws").mkdir()
        (tmp_path / "ws/.git").write_text("gitdir: ../main/.git\n")
    policy = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    roots = ServerRoots().open()
    with open_files(0), pytest.raises(SandboxShortage, match=f"{told}.*try again"):
        inspect(policy, str(tmp_path / "ws"), home="/nowhere", roots=roots)
    (root,) = inspect(policy, str(tmp_path / "ws"), home="/nowhere", roots=roots).roots
    assert str(tmp_path / ("ws/sub/.git" if deep else "main/.git")) in root.protected


def test_the_facts_have_the_users_rights_and_the_owner_of_each_root(tmp_path: Path) -> None:
    for policy in (ReadOnly(), WorkspaceWrite()):
        found = inspect(policy, str(tmp_path), home="/nowhere", roots=ServerRoots().open())
        assert found.superuser == (os.geteuid() == 0)
    (root,) = roots_of(tmp_path).values()
    assert not root.foreign
    if os.geteuid() == 0:
        os.chown(tmp_path, 12345, -1)
        (root,) = roots_of(tmp_path).values()
        assert root.foreign


def test_roots_keep_their_names_also_where_they_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/loop").symlink_to("loop")
    found = roots_of(tmp_path / "ws", "none", "loop")
    assert set(found) == {str(tmp_path / name) for name in ("ws", "ws/none", "ws/loop")}


def test_all_links_of_what_git_executes_are_found(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name in ("hooks", "config"):
        (tmp_path / f"my{name}").mkdir()
        (tmp_path / ".git" / name).symlink_to(tmp_path / f"my{name}")
    (root,) = roots_of(tmp_path).values()
    assert {str(tmp_path / "myhooks"), str(tmp_path / "myconfig")} <= set(root.protected)
    assert str(tmp_path / ".git") in root.protected


@pytest.mark.parametrize("excluded", [False, True])
def test_the_temporary_folder_of_the_environment_is_a_root_unless_it_is_excluded(
    tmp_path: Path, excluded: bool
) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "tmp/a/b/.git").mkdir(parents=True)
    (tmp_path / "tmp/a/.git").mkdir(parents=True)
    policy = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=excluded)
    tmpdir, roots = str(tmp_path / "tmp"), ServerRoots().open()
    found = inspect(policy, str(tmp_path / "ws"), home="/nowhere", roots=roots, options=RootOptions(tmpdir))
    assert [root.path for root in found.temporary] == ([] if excluded else [str(tmp_path / "tmp")])
    for root in found.temporary:
        assert root.protected == (str(tmp_path / "tmp/a/.git"),), "only the first level is searched there"


@pytest.mark.parametrize("tmpdir", [None, "", "tmp"])
def test_a_relative_temporary_folder_is_none(tmp_path: Path, tmpdir: str | None) -> None:
    roots, policy = ServerRoots().open(), WorkspaceWrite()
    assert [root.name for root in roots.temporary(policy, str(tmp_path), tmpdir)] == ["/tmp"]


def test_each_client_has_its_own_temporary_folder(tmp_path: Path) -> None:
    roots, policy = ServerRoots().open(), WorkspaceWrite(exclude_slash_tmp=True)
    for name in ("a", "b"):
        found = roots.temporary(policy, "/ws", str(tmp_path / name))
        assert [root.name for root in found] == [str(tmp_path / name)]
    assert roots.known() == {"/ws"}


# --- folders with the server's own files
def test_a_kept_folder_in_a_root_is_protected_and_is_no_root_itself() -> None:
    kept = KeptFolders(("/ws/out",), "/ws/out/.work/w")
    policy = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)

    def planned(root: str) -> SandboxPlan:
        plan = make_plan(policy, SandboxFacts(home="/home", roots=(RootFacts(root, root),), kept=kept))
        assert plan is not None
        return plan

    around = planned("/ws")
    assert "/ws/out" in around.protected
    assert around.indispensable == ("/ws/out",)
    for inside in ("/ws/out", "/ws/out/homes", "/ws/out/.work/other", "/ws/out/.work/w"):
        assert planned(inside).writable_roots == ()
        assert "the server keeps its own files in" in planned(inside).notices[0]
    assert planned("/ws/out/.work/w/task").writable_roots == ("/ws/out/.work/w/task",)


def test_a_place_for_work_in_the_home_may_be_a_root() -> None:
    policy = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    kept = KeptFolders((), "/home/tmp/batch/w")
    for root, granted in (("/home/tmp/batch/w/task", True), ("/home/tmp/batch", False), ("/home", False)):
        plan = make_plan(policy, SandboxFacts(home="/home", roots=(RootFacts(root, root),), kept=kept))
        assert plan is not None
        assert plan.writable_roots == ((root,) if granted else ())
