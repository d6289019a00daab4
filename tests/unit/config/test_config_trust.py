"""The user's word about a folder holds where it should, and nobody else's does."""

from pathlib import Path

import pytest

from app_server.core.config.load import load_config
from app_server.core.config.trust import trust_of
from app_server.core.config.types import CliOverrides, RequestOverrides
from protocol.policy import AskForApproval, ReadOnly, WorkspaceWrite


def linked_worktree(main: Path, linked: Path, back: Path | None = None) -> None:
    """The files that `git worktree add` makes; `back` is what the repository says of the link."""
    admin = main / ".git" / "worktrees" / "one"
    admin.mkdir(parents=True)
    linked.mkdir(parents=True)
    (linked / ".git").write_text(f"gitdir: {admin}\n")
    (admin / "gitdir").write_text(f"{back or linked / '.git'}\n")


def test_a_folder_without_a_trust_level(tmp_path: Path) -> None:
    assert trust_of(tmp_path, {}) is None
    assert trust_of(tmp_path, {"/elsewhere": "trusted"}) is None


@pytest.mark.parametrize(("level", "trust"), [("trusted", True), ("untrusted", False)])
def test_the_folder_itself(tmp_path: Path, level: str, trust: bool) -> None:
    assert trust_of(tmp_path, {str(tmp_path): level}) is trust


def test_a_folder_below_a_trusted_one_is_not_trusted_without_a_repository(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert trust_of(tmp_path / "sub", {str(tmp_path): "trusted"}) is None


def test_a_trusted_repository_is_trusted_throughout(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert trust_of(tmp_path / "a" / "b", {str(tmp_path): "trusted"}) is True


def test_a_repository_inside_a_trusted_one_speaks_for_itself(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "vendor" / ".git").mkdir(parents=True)
    assert trust_of(tmp_path / "vendor", {str(tmp_path): "trusted"}) is None


def test_the_trust_level_of_the_nearest_folder_applies(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    levels = {str(tmp_path): "trusted", str(tmp_path / "sub"): "untrusted"}
    assert trust_of(tmp_path / "sub", levels) is False


def test_links_are_resolved_on_both_sides(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert trust_of(tmp_path / "link", {str(tmp_path / "real"): "trusted"}) is True
    assert trust_of(tmp_path / "real", {str(tmp_path / "link"): "trusted"}) is True


def test_a_link_out_of_a_trusted_repository_leads_out_of_the_trust(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "repo" / "link").symlink_to(tmp_path / "other")
    assert trust_of(tmp_path / "repo" / "link", {str(tmp_path / "repo"): "trusted"}) is None


def test_a_linked_worktree_shares_the_trust_of_its_repository(tmp_path: Path) -> None:
    linked_worktree(tmp_path / "main", tmp_path / "linked")
    assert trust_of(tmp_path / "linked", {str(tmp_path / "main"): "trusted"}) is True


def test_a_folder_that_only_claims_to_be_a_worktree_does_not(tmp_path: Path) -> None:
    linked_worktree(tmp_path / "main", tmp_path / "linked")
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / ".git").write_text((tmp_path / "linked" / ".git").read_text())
    assert trust_of(tmp_path / "evil", {str(tmp_path / "main"): "trusted"}) is None


def test_odd_git_files_are_no_worktrees(tmp_path: Path) -> None:
    for number, content in enumerate(
        (b"", b"gitdir: ", b"gitdir: \0", b"\xff\xfe", b"x" * 100_000, b"gitdir: /")
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / ".git").write_bytes(content)
        assert trust_of(folder, {str(tmp_path): "trusted"}) is None
        assert trust_of(folder, {str(folder): "trusted"}) is True


@pytest.mark.parametrize(("level", "writes"), [("trusted", True), ("untrusted", False)])
def test_only_a_trusted_folder_may_be_written_to_by_default(tmp_path: Path, level: str, writes: bool) -> None:
    (tmp_path / "config.toml").write_text(f"[projects.'{tmp_path}']\ntrust_level = '{level}'\n")
    config = load_config(tmp_path, cwd=tmp_path, cli=CliOverrides(), request=RequestOverrides(), env={})
    assert config.permissions.approval_policy is AskForApproval.ON_REQUEST
    assert isinstance(config.permissions.sandbox_policy, WorkspaceWrite if writes else ReadOnly)
