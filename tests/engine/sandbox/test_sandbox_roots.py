"""The real paths of named roots, whatever commands do to them, and the commands' view of the home."""

import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app_server.engine.sandbox.inspect import inspect
from app_server.engine.sandbox.launcher import namespaces
from app_server.engine.sandbox.launcher.placeholder_dirs import MARK_NS
from app_server.engine.sandbox.make_plan import make_plan
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.sandbox.roots import (
    MAX_LINKS,
    MAX_LOOKS,
    MAX_REPOSITORIES,
    ConversationRoots,
    NestedRepositories,
    ServerRoots,
    resolve,
)
from app_server_protocol.policy import ReadOnly, WorkspaceWrite

Planned = Callable[..., SandboxPlan]


@pytest.fixture
def server() -> ServerRoots:
    return ServerRoots()


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """Return the plan of a conversation, as the runner makes it."""

    def plan(roots: ConversationRoots, cwd: str, *more: str, home: str = "/nowhere") -> SandboxPlan:
        policy = WorkspaceWrite(
            writable_roots=tuple(str(tmp_path / name) for name in more),
            exclude_slash_tmp=True,
            exclude_tmpdir_env_var=True,
        )
        made = make_plan(policy, inspect(policy, str(tmp_path / cwd), home=home, roots=roots))
        assert made is not None
        roots.server.written.update(made.writable_roots)
        return made

    return plan


def link(path: Path, target: Path | str) -> None:
    path.symlink_to(target)


def replace_by_link(path: Path, target: Path) -> None:
    path.rename(path.with_name(path.name + ".old"))
    link(path, target)


def test_resolving_names_the_links_that_were_followed(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    link(tmp_path / "one", "two/../two")
    link(tmp_path / "two", tmp_path / "a")
    found = resolve(str(tmp_path / "one/b/./missing/../new"))
    assert found is not None
    assert found.real == str(tmp_path / "a/b/new")
    assert found.links == tuple(str(tmp_path / name) for name in ("one", "two", "two"))


def test_what_leads_nowhere_is_not_resolved(tmp_path: Path) -> None:
    link(tmp_path / "loop", "loop")
    for n in range(MAX_LINKS + 1):
        link(tmp_path / f"l{n}", f"l{n + 1}")
    for path in (str(tmp_path / "loop"), str(tmp_path / "l0"), "relative", "/a\0b", "/" + "x" * 5000):
        assert resolve(path) is None


def test_a_name_keeps_what_it_stood_for_first(tmp_path: Path, server: ServerRoots, planned: Planned) -> None:
    (tmp_path / "big/p/ws").mkdir(parents=True)
    (tmp_path / "out/ws").mkdir(parents=True)
    link(tmp_path / "ln", "big/p/ws")
    roots = server.open()
    assert planned(roots, "ln").writable_roots == (str(tmp_path / "big/p/ws"),)
    (tmp_path / "ln").unlink()
    link(tmp_path / "ln", "out/ws")
    assert planned(roots, "ln").writable_roots == (str(tmp_path / "big/p/ws"),)


def test_a_root_whose_path_has_become_a_link_is_left_out_until_it_is_none(
    tmp_path: Path, server: ServerRoots, planned: Planned
) -> None:
    (tmp_path / "big/p/ws").mkdir(parents=True)
    (tmp_path / "out/ws").mkdir(parents=True)
    roots = server.open()
    planned(roots, "big/p/ws")
    replace_by_link(tmp_path / "big/p", tmp_path / "out")
    plan = planned(roots, "big/p/ws")
    assert plan.writable_roots == ()
    assert str(tmp_path / "big/p/ws") in plan.notices[0]
    (tmp_path / "big/p").unlink()
    (tmp_path / "big/p.old").rename(tmp_path / "big/p")
    assert planned(roots, "big/p/ws").writable_roots == (str(tmp_path / "big/p/ws"),)


def test_a_name_is_resolved_when_the_conversation_gets_it_and_not_when_it_is_used(
    tmp_path: Path, server: ServerRoots, planned: Planned
) -> None:
    (tmp_path / "proj/sub").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    inner = server.open()
    inner.learn(ReadOnly(), str(tmp_path / "proj/sub"))
    planned(server.open(), "proj")
    replace_by_link(tmp_path / "proj/sub", tmp_path / "out")
    assert planned(inner, "proj/sub").writable_roots == ()


@pytest.mark.parametrize("ended", [False, True], ids=["open", "closed"])
def test_a_new_conversation_does_not_follow_links_that_commands_of_another_could_make(
    tmp_path: Path, server: ServerRoots, planned: Planned, *, ended: bool
) -> None:
    (tmp_path / "proj/sub").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    outer = server.open()
    planned(outer, "proj")
    replace_by_link(tmp_path / "proj/sub", tmp_path / "out")
    if ended:
        outer.close()
    for roots in (server.open(), server.once()):
        plan = planned(roots, "proj/sub")
        assert plan.writable_roots == ()
        assert len(plan.notices) == 1


def test_a_new_server_does_not_follow_what_commands_of_the_last_one_left(
    tmp_path: Path, planned: Planned
) -> None:
    (tmp_path / "big/p").mkdir(parents=True)
    (tmp_path / "out/ws").mkdir(parents=True)
    link(tmp_path / "ln", "big/p/ws")
    (tmp_path / "big/p").rmdir()
    link(tmp_path / "big/p", tmp_path / "out")
    plan = planned(ServerRoots().open(), "ln", "big")
    assert plan.writable_roots == (str(tmp_path / "big"),)


def test_roots_that_are_removed_and_made_anew_are_granted_again(
    tmp_path: Path, server: ServerRoots, planned: Planned
) -> None:
    roots = server.open()
    (tmp_path / "ws").mkdir()
    assert planned(roots, "ws", "later/x").writable_roots == (str(tmp_path / "ws"),)
    (tmp_path / "ws").rmdir()
    assert planned(roots, "ws", "later/x").writable_roots == ()
    for name in ("ws", "later/x"):
        (tmp_path / name).mkdir(parents=True)
    assert planned(roots, "ws", "later/x").writable_roots == (str(tmp_path / "ws"), str(tmp_path / "later/x"))


def test_a_root_that_did_not_exist_and_came_as_a_link_is_left_out(
    tmp_path: Path, server: ServerRoots, planned: Planned
) -> None:
    (tmp_path / "ws").mkdir()
    roots = server.open()
    planned(roots, "ws", "ws/build")
    link(tmp_path / "ws/build", "/etc")
    plan = planned(roots, "ws", "ws/build")
    assert plan.writable_roots == (str(tmp_path / "ws"),)
    assert len(plan.notices) == 1


def test_conversations_keep_the_fences_of_one_another(
    tmp_path: Path, server: ServerRoots, planned: Planned
) -> None:
    (tmp_path / "proj/a/b/c/.git").mkdir(parents=True)
    inner, outer = server.open(), server.open()
    planned(inner, "proj/a/b/c")
    assert str(tmp_path / "proj/a/b/c/.git") in planned(outer, "proj").protected
    inner.close()
    assert planned(outer, "proj").protected == ()


def test_links_to_the_home_are_fenced(tmp_path: Path, server: ServerRoots, planned: Planned) -> None:
    (tmp_path / "ws/conf").mkdir(parents=True)
    (tmp_path / "state").mkdir()
    link(tmp_path / "ws/conf/home", tmp_path / "state")
    plan = planned(server.open(), "ws", home=str(tmp_path / "ws/conf/home"))
    assert plan.protected == (str(tmp_path / "ws/conf/home"),)
    assert plan.pinned == (str(tmp_path / "ws/conf"),)


def test_a_repository_that_was_found_cannot_be_crowded_out(tmp_path: Path) -> None:
    pointer = tmp_path / "zz/.git"
    pointer.mkdir(parents=True)
    found = NestedRepositories(str(tmp_path))
    assert found.pointers() == [str(pointer)]
    for n in range(2 * MAX_LOOKS):
        (tmp_path / f"a{n}/.git").mkdir(parents=True)
    for _ in range(8):
        pointers = found.pointers()
    assert str(pointer) in pointers
    assert len(pointers) == MAX_REPOSITORIES
    assert found.incomplete


def test_new_repositories_are_found_in_their_turn(tmp_path: Path) -> None:
    for n in range(2 * MAX_LOOKS):
        (tmp_path / f"a{n}").mkdir()
    found = NestedRepositories(str(tmp_path))
    assert found.pointers() == []
    made = {str(tmp_path / f"a{n}/.git") for n in range(0, 2 * MAX_LOOKS, 100)}
    for path in made:
        Path(path).mkdir()
    for _ in range(5):
        pointers = found.pointers()
    assert set(pointers) == made
    shutil.rmtree(tmp_path / "a0")
    assert set(found.pointers()) == made - {str(tmp_path / "a0/.git")}
    assert not found.incomplete


def test_a_placeholder_is_no_repository_until_it_holds_something(tmp_path: Path) -> None:
    """Otherwise the folder of another conversation could not be renamed shortly after its command."""
    pointer = tmp_path / "sub/.git"
    pointer.mkdir(parents=True)
    os.utime(pointer, ns=(MARK_NS, MARK_NS))
    found = NestedRepositories(str(tmp_path))
    assert found.pointers() == []
    (pointer / "HEAD").write_text("ref: refs/heads/main")
    os.utime(pointer, ns=(MARK_NS, MARK_NS))
    assert found.pointers() == [str(pointer)]


def test_a_repository_behind_a_link_is_none_of_this_root(tmp_path: Path) -> None:
    """Its path could not be opened without following the link, and no command could run any more."""
    (tmp_path / "ws/a/proj/.git").mkdir(parents=True)
    found = NestedRepositories(str(tmp_path / "ws"))
    assert len(found.pointers()) == 1
    (tmp_path / "ws/a").rename(tmp_path / "moved")
    link(tmp_path / "ws/a", tmp_path / "moved")
    assert found.pointers() == []


def test_another_conversations_root_behind_a_link_is_left_alone(
    tmp_path: Path, server: ServerRoots, planned: Planned
) -> None:
    (tmp_path / "proj/sub").mkdir(parents=True)
    (tmp_path / "out/.git").mkdir(parents=True)
    inner, outer = server.open(), server.open()
    planned(inner, "proj/sub")
    replace_by_link(tmp_path / "proj/sub", tmp_path / "out")
    assert planned(outer, "proj").protected == ()


def test_as_many_links_are_followed_as_the_limit_says(tmp_path: Path) -> None:
    (tmp_path / f"l{MAX_LINKS}").mkdir()
    for n in range(MAX_LINKS):
        link(tmp_path / f"l{n}", f"l{n + 1}")
    found = resolve(str(tmp_path / "l0/."))
    assert found is not None
    assert (found.real, len(found.links)) == (str(tmp_path / f"l{MAX_LINKS}"), MAX_LINKS)


def test_repositories_are_searched_in_folders_and_not_behind_links(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("root/a/.git", "root/a/b/.git", "root/a/b/c/.git", "root/.git/x/.git", "out/.git"):
        (tmp_path / name).mkdir(parents=True)
    link(root / "linked", tmp_path / "out")
    (root / "file").write_text("")
    nested = NestedRepositories(str(root))
    assert set(nested.pointers()) == {str(root / "a/.git"), str(root / "a/b/.git")}
    assert not nested.incomplete
    (root / "new/.git").mkdir(parents=True)
    assert set(nested.pointers()) == {str(root / name) for name in ("a/.git", "a/b/.git", "new/.git")}
    assert set(NestedRepositories(str(root), 1).pointers()) == {
        str(root / "a/.git"),
        str(root / "new/.git"),
    }


def test_a_survey_ends_and_says_that_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app_server.engine.sandbox.roots.SURVEY_ENTRIES", 6)
    monkeypatch.setattr("app_server.engine.sandbox.roots.MAX_ENTRIES", 4)
    for n in range(4):
        (tmp_path / f"d{n}/inner/.git").mkdir(parents=True)
    nested = NestedRepositories(str(tmp_path))
    assert len(nested.pointers()) == 2, "four entries of the root, and one of each of two folders"
    assert not nested.incomplete
    (tmp_path / "d4").mkdir()
    nested = NestedRepositories(str(tmp_path))
    nested.pointers()
    assert nested.incomplete


def test_a_closed_conversation_is_known_no_longer(tmp_path: Path, server: ServerRoots) -> None:
    first, second = server.open(), server.open()
    for roots, name in ((first, "a"), (second, "b")):
        (tmp_path / name).mkdir()
        roots.learn(WorkspaceWrite(), str(tmp_path / name))
    assert server.known() == {str(tmp_path / "a"), str(tmp_path / "b")}
    first.close()
    assert server.known() == {str(tmp_path / "b")}
    second.close()
    assert server.known() == frozenset()


def test_a_working_directory_is_what_it_was_when_it_was_given(server: ServerRoots, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    link(tmp_path / "ln", "a")
    roots = server.open()
    assert roots.real(str(tmp_path / "ln")) == str(tmp_path / "ln"), "nobody gave it yet"
    roots.learn(WorkspaceWrite(), str(tmp_path / "ln"))
    replace_by_link(tmp_path / "ln", tmp_path)
    assert roots.real(f"{tmp_path}/./ln") == str(tmp_path / "a")
    roots.close()


if sys.platform != "linux":
    pytest.skip("mounts of Linux", allow_module_level=True)


def test_a_home_that_another_folder_replaces_meanwhile_is_shown_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[int] = []

    def replaced_once(path: bytes, secrets: list[bytes], folder: int) -> Any:
        folders.append(folder)
        if len(folders) == 1:
            raise OSError(errno.EINVAL, "no mount")
        return folder

    monkeypatch.setattr(namespaces, "_show", replaced_once)
    shown: Any = namespaces.show(os.fsencode(tmp_path), [])
    assert len(folders) == 2
    os.close(shown)  # the last one is kept


def test_a_home_that_is_replaced_all_the_time_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(path: bytes, secrets: list[bytes], folder: int) -> Any:
        raise OSError(errno.EINVAL, "no mount")

    monkeypatch.setattr(namespaces, "_show", replaced)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="again and again"):
        namespaces.show(os.fsencode(tmp_path), [])
    assert len(os.listdir("/proc/self/fd")) == before
