"""From policy and facts to a plan; from the disk to facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from app_server.core.sandbox.inspect import inspect
from app_server.core.sandbox.plan import RootFacts, SandboxFacts, make_plan, within
from protocol.policy import DangerFullAccess, ReadOnly, WorkspaceWrite

HOME = "/home/u/.codex"


def facts(*roots: RootFacts, temporary: tuple[RootFacts, ...] = (), superuser: bool = False) -> SandboxFacts:
    return SandboxFacts(HOME, roots, temporary, superuser)


def test_full_access_has_no_plan_and_read_only_no_roots() -> None:
    assert make_plan(DangerFullAccess(), facts()) is None
    plan = make_plan(ReadOnly(), facts(RootFacts("/ws", "/ws")))
    assert plan is not None
    assert (plan.writable_roots, plan.network, plan.private_temp) == ((), False, True)


def test_existing_names_are_fenced_and_all_are_reserved() -> None:
    plan = make_plan(WorkspaceWrite(), facts(RootFacts("/ws", "/real", ("/real/.git",))))
    assert plan is not None
    assert plan.writable_roots == ("/real",)
    assert plan.fences == ("/real/.git",)
    assert plan.reserved == ("/real/.agents", "/real/.codex", "/real/.git")


def test_temporary_folders_are_roots_without_reserved_names() -> None:
    plan = make_plan(
        WorkspaceWrite(), facts(RootFacts("/ws", "/ws"), temporary=(RootFacts("/tmp", "/private/tmp"),))
    )
    assert plan is not None
    assert plan.writable_roots == ("/ws", "/private/tmp")
    assert all(within(name, "/ws") for name in plan.reserved)
    assert not plan.private_temp


def test_a_root_below_another_is_not_resolved_on_its_own() -> None:
    plan = make_plan(WorkspaceWrite(), facts(RootFacts("/ws", "/ws"), RootFacts("/ws/sub", "/home/u")))
    assert plan is not None
    assert plan.writable_roots == ("/ws",)
    assert all(within(name, "/ws") for name in plan.reserved)


@pytest.mark.parametrize("real", [None, "/", HOME, HOME + "/sessions"])
def test_roots_that_are_never_granted(real: str | None) -> None:
    plan = make_plan(WorkspaceWrite(), facts(RootFacts("/somewhere", real)))
    assert plan is not None
    assert plan.writable_roots == ()


def test_the_servers_home_is_fenced_inside_a_root() -> None:
    plan = make_plan(WorkspaceWrite(), facts(RootFacts("/home/u", "/home/u", (HOME,))))
    assert plan is not None
    assert HOME in plan.fences


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


def roots_of(cwd: Path, **policy: object) -> dict[str, RootFacts]:
    found = inspect(
        WorkspaceWrite.model_validate({"exclude_slash_tmp": True, **policy}),
        str(cwd),
        home="/nowhere",
        tmpdir=None,
    )
    return {root.path: root for root in found.roots}


def test_links_and_missing_roots(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    found = roots_of(tmp_path / "link", writable_roots=[str(tmp_path / "none"), str(tmp_path / "file")])
    assert [root.real for root in found.values()] == [str(tmp_path / "real"), None, None]


def test_what_git_points_to_is_found(tmp_path: Path) -> None:
    for folder in ("ws", "main/.git/worktrees/w"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "main/.git/worktrees/w/commondir").write_text("../..\n")
    (tmp_path / "ws/.git").write_text("gitdir: ../main/.git/worktrees/w\n")
    (root,) = roots_of(tmp_path / "ws").values()
    main = tmp_path / "main/.git"
    assert root.fences == (str(tmp_path / "ws/.git"), str(main / "worktrees/w"), str(main))


def test_repositories_one_level_down_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub/.git").mkdir(parents=True)
    (tmp_path / ".codex").symlink_to("nothing")
    (root,) = roots_of(tmp_path).values()
    assert set(root.fences) == {
        str(tmp_path / "sub/.git"),
        str(tmp_path / ".codex"),
        str(tmp_path / "nothing"),
    }


def test_a_git_file_that_is_none_is_survived(tmp_path: Path) -> None:
    (tmp_path / ".git").write_bytes(b"\xff\x00gitdir")
    (root,) = roots_of(tmp_path).values()
    assert root.fences == (str(tmp_path / ".git"),)
