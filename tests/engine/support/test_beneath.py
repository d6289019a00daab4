"""Names beneath a folder: nothing outside of it is read, written or removed; and links that cannot be read."""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app_server.engine.config.project_trust import main_worktree, trust_of
from app_server.engine.context.project_docs import find_instructions
from app_server.engine.context.skills.skill_catalog import discover, project_roots
from app_server.engine.support.real_path import followed_path, real_path
from app_server.engine.support.rooted_fs import MAX_DEPTH, RefusedName, RootDir, TooLarge, read_named
from app_server.engine.workspace.git.repository import find_repository, project_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("outside")
    return tmp_path / "ws"


@pytest.fixture
def beneath(root: Path) -> Iterator[RootDir]:
    with RootDir(root) as opened:
        yield opened


def test_a_file_is_read_by_its_name(root: Path, beneath: RootDir) -> None:
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "c").write_bytes(b"text")
    assert beneath.read("a/b/c", 10) == b"text"
    assert beneath.list("a") == ["b"]
    assert beneath.stat("./a//b/c").st_size == 4


def test_a_link_is_not_followed_at_the_end_or_on_the_way(root: Path, beneath: RootDir) -> None:
    (root / "link").symlink_to("../out/file")
    (root / "folder").symlink_to("../out")
    for name in ("link", "folder/file"):
        with pytest.raises(OSError, match=r"link|symbolic|Not a directory|regular"):
            beneath.read(name, 100)
    for change in (beneath.remove, lambda name: beneath.replace(name, b"x", 0o644)):
        with pytest.raises(OSError, match="Errno"):
            change("folder/file")
    assert (root.parent / "out" / "file").read_text() == "outside"
    assert beneath.read_link("link") == b"../out/file"


def test_parent_folders_are_refused(beneath: RootDir) -> None:
    with pytest.raises(RefusedName):
        beneath.read("../out/file", 100)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", ""])
def test_a_name_that_is_none_is_an_error_of_the_system(beneath: RootDir, name: str) -> None:
    with pytest.raises(OSError, match="Errno"):
        beneath.read(name, 100)


def test_links_that_stay_inside_are_followed_where_it_is_asked_for(root: Path, beneath: RootDir) -> None:
    (root / "docs").mkdir()
    (root / "docs" / "real").write_text("text")
    (root / "docs" / "up").symlink_to("../docs/real")
    (root / "absolute").symlink_to(root / "docs" / "up")
    assert beneath.read("absolute", 10, follow_links=True) == b"text"


def test_links_that_lead_out_or_nowhere_are_refused(root: Path, beneath: RootDir) -> None:
    (root / "out").symlink_to("../out/file")
    (root / "absolute").symlink_to(root.parent / "out" / "file")
    (root / "similar").symlink_to(f"{root}-2/file")
    (root / "loop").symlink_to("loop")
    for name in ("out", "absolute", "similar", "loop"):
        with pytest.raises(OSError, match="Errno"):
            beneath.read(name, 100, follow_links=True)


def test_the_root_itself_may_not_be_reached_by_a_link(root: Path) -> None:
    (root.parent / "link").symlink_to("ws")
    with pytest.raises(OSError, match="Errno"):
        RootDir(root.parent / "link")
    with RootDir.named_by_user(root.parent / "link") as opened:
        assert opened.list() == []


@pytest.mark.parametrize("name", ["auth.json", "app-server-control/ws-token"])
def test_credentials_are_refused_by_whatever_name(root: Path, name: str) -> None:
    home = root.parent / "home"
    (home / name).parent.mkdir(parents=True)
    (home / name).write_text("key")
    os.link(home / name, root / "plain")
    with RootDir(root, home) as opened, pytest.raises(RefusedName):
        opened.read("plain", 100)


def test_a_link_in_a_fence_leads_no_further_than_the_fence(root: Path) -> None:
    home = root / ".home"
    home.mkdir()
    (root / "file").write_text("inside")
    (root / "in").symlink_to(root / "file")
    (root / "escape").symlink_to("../out/file")
    (root.parent / "to_in").symlink_to(root / "in")
    (root.parent / "to_escape").symlink_to(root / "escape")
    (root.parent / "to_out").symlink_to("out/../../../" + "../" * 9 + str(root.parent / "out/file"))
    (home / "own").symlink_to(root.parent / "out" / "file")

    def read(path: Path) -> bytes:
        return read_named(path, 100, home, (str(root),))

    assert [read(root / "in"), read(root.parent / "to_in")] == [b"inside", b"inside"]
    for path in (root / "escape", root.parent / "to_escape"):
        with pytest.raises(RefusedName):
            read(path)
    assert read(root.parent / "to_out") == b"outside", "no command changes a link there"
    assert read(home / "own") == b"outside", "the user's own, though the home lies in the fence"


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="/proc")
def test_what_shows_a_process_is_refused(root: Path) -> None:
    (root / "link").symlink_to("/proc/self/environ")
    for path in (root / "link", "/proc/self/environ", f"/proc/{os.getpid()}/maps"):
        with pytest.raises(RefusedName):
            read_named(path, 1 << 20)
    assert read_named("/proc/filesystems", 1 << 20)


def test_pipes_and_folders_are_no_files(root: Path, beneath: RootDir) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    with pytest.raises(RefusedName):
        beneath.read("pipe", 100)
    with pytest.raises(IsADirectoryError):
        beneath.read("folder", 100)


def test_a_large_file_is_refused(root: Path, beneath: RootDir) -> None:
    (root / "large").write_bytes(b"12345")
    with pytest.raises(TooLarge):
        beneath.read("large", 4)
    assert beneath.read("large", 5) == b"12345"


def test_a_file_is_replaced_whole_with_its_bits(root: Path, beneath: RootDir) -> None:
    beneath.replace("new/folder/file", b"one", 0o600)
    beneath.replace("new/folder/file", b"two", 0o755)
    assert (root / "new/folder/file").read_bytes() == b"two"
    assert stat.S_IMODE((root / "new/folder/file").stat().st_mode) == 0o755
    beneath.replace_with_link("new/link", b"anywhere")
    assert os.readlink(root / "new/link") == "anywhere"
    assert sorted(each.name for each in root.rglob("*")) == ["file", "folder", "link", "new"]


def test_what_cannot_be_replaced_leaves_nothing_behind(root: Path, beneath: RootDir) -> None:
    (root / "folder" / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match="Errno"):
        beneath.replace("folder", b"text", 0o644)
    with pytest.raises(OSError, match="Errno"):
        beneath.replace_with_link("folder", b"text")
    assert beneath.list() == ["folder"]


def test_removed_are_files_and_empty_folders(root: Path, beneath: RootDir) -> None:
    beneath.replace("a/b/c", b"", 0o644)
    with pytest.raises(OSError, match="Errno"):
        beneath.remove_folder("a/b")
    beneath.remove("a/b/c")
    beneath.remove_folder("a/b")
    assert beneath.list("a") == []


def test_the_depth_is_bounded(beneath: RootDir) -> None:
    with pytest.raises(OSError, match="too long"):
        beneath.replace("d/" * (MAX_DEPTH + 1) + "x", b"", 0o644)


NAMES = st.lists(st.sampled_from(["a", "b", "c", "..", ".", "", "/"]), max_size=6).map("/".join)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(links=st.dictionaries(st.sampled_from(["a", "b", "c", "d/a", "d/b"]), NAMES), name=NAMES)
def test_no_tree_of_links_leads_out(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str], name: str
) -> None:
    top = tmp_path_factory.mktemp("top")
    (top / "ws" / "d").mkdir(parents=True)
    for place in (top, top / "ws", top / "ws" / "d"):
        (place / "file").write_text("inside" if place != top else "outside")
    for link, target in links.items():
        (top / "ws" / link).symlink_to(target or ".")
    with RootDir(top / "ws") as opened:
        for follow_links in (False, True):
            try:
                found = opened.read(f"{name}/file", 100, follow_links=follow_links)
            except OSError:
                continue
            assert found == b"inside"


def test_a_folder_that_is_exchanged_with_a_link_meanwhile_leads_nowhere(root: Path) -> None:
    """Another thread replaces a folder by a link to one outside, as a command could."""
    (root / "d").mkdir()
    (root / "d" / "file").write_text("inside")
    (root / "link").symlink_to("../out")
    stop = threading.Event()

    def exchange() -> None:
        while not stop.is_set():
            for source, target in (("d", "kept"), ("link", "d"), ("d", "link"), ("kept", "d")):
                os.rename(root / source, root / target)

    swapping = threading.Thread(target=exchange)
    swapping.start()
    seen = set()
    try:
        for round in range(2000):
            with RootDir(root) as opened:
                try:
                    seen.add(opened.read("d/file", 100))
                    opened.replace("d/new", b"%d" % round, 0o644)
                    opened.remove("d/new")
                except OSError:
                    pass
    finally:
        stop.set()
        swapping.join()
    assert seen <= {b"inside"}
    assert os.listdir(root.parent / "out") == ["file"]


def test_a_file_that_is_made_aside_leaves_nothing_beside_its_place(root: Path, beneath: RootDir) -> None:
    (root / "aside").mkdir()
    with RootDir(root / "aside") as aside, beneath.staged("d/file", 0o640, aside) as file:
        file.write(b"new")
        assert list((root / "d").iterdir()) == []
        assert [place.name[:4] for place in (root / "aside").iterdir()] == ["tmp_"]
    assert list((root / "aside").iterdir()) == []
    assert ((root / "d" / "file").read_text(), (root / "d" / "file").stat().st_mode & 0o777) == ("new", 0o640)


TOO_LONG = "x" * 300
"""Name that no file system here supports."""


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a link that this user may not read, like `/proc/PID/cwd` of another user's process.

    There is a circular link beside it.
    """
    (tmp_path / "circle").symlink_to("circle")
    link = tmp_path / "secret"
    link.symlink_to("/etc")
    read = os.readlink

    def readlink(path: str, *, dir_fd: int | None = None) -> str:
        if os.fsdecode(path) == (link.name if dir_fd is not None else str(link)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return read(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "readlink", readlink)
    return link


def test_a_link_that_cannot_be_read_is_kept(tmp_path: Path, secret: Path) -> None:
    for path in (secret, secret / "below", tmp_path / "circle"):
        with pytest.raises(OSError, match=r"secret|circle"):
            followed_path(path)
    assert real_path(secret) == str(secret)
    assert real_path(tmp_path / "circle/x") == str(tmp_path / "circle/x")
    (tmp_path / "way").symlink_to("secret/below")
    assert real_path(tmp_path / "way") == str(tmp_path / "way")
    (tmp_path / "folder").symlink_to(".")
    assert real_path(tmp_path / "folder/secret/x/y") == f"{secret}/x/y"


def test_what_can_be_read_is_resolved(tmp_path: Path) -> None:
    (tmp_path / "to").mkdir()
    (tmp_path / "way").symlink_to("to")
    assert (
        real_path(tmp_path / "way/none") == followed_path(tmp_path / "way/none") == str(tmp_path / "to/none")
    )
    assert real_path(tmp_path / TOO_LONG) == str(tmp_path / TOO_LONG)


def test_a_repository_with_links_that_cannot_be_read_is_opened(tmp_path: Path, secret: Path) -> None:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "AGENTS.md").symlink_to(secret / "x")
    (repository / ".agents").symlink_to(secret)
    assert find_instructions(tmp_path / "home", repository, 1000) is None
    assert discover(project_roots(repository)) == ([], [])
    (repository / ".git").rmdir()
    (repository / ".git").write_text(f"gitdir: {secret}/x")
    assert main_worktree(repository) == str(repository)
    assert trust_of(secret, {str(secret): "trusted"})


def test_folders_whose_names_are_too_long_have_no_repository(tmp_path: Path) -> None:
    cwd = tmp_path / TOO_LONG
    assert project_of(cwd, "skills", lambda refusal: None).folders == [cwd]
    assert main_worktree(cwd) is None
    (tmp_path / ".git").write_text(f"gitdir: {TOO_LONG}")
    assert find_repository(tmp_path) is None
