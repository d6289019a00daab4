"""The server's reading of the user's surroundings: home, login shell, encodings, marks of repositories."""

import os
import pwd
from pathlib import Path

import pytest

from app_server.engine import system_ports
from app_server.engine.config.project_trust import main_worktree, marks_repository
from app_server.engine.context.project_docs import find_instructions
from app_server.engine.support.home import home_folder
from app_server.engine.support.text_of_bytes import text_of_bytes
from app_server.engine.workspace.git.repository import project_of
from app_server.engine.workspace.git.safe_directories import is_safe_directory


@pytest.mark.parametrize(
    ("named", "home"),
    [
        *(("~", "/h/u"), ("~/x", "/h/u/x"), ("~root/x", f"{pwd.getpwuid(0).pw_dir}/x")),
        *(("/a/~", "/a/~"), ("", "/h/u/.codex")),
    ],
)  # fmt: skip
def test_a_tilde_in_the_name_of_the_home_is_expanded(named: str, home: str) -> None:
    assert home_folder({"HOME": "/h/u", "CODEX_HOME": named}) == home


@pytest.mark.parametrize("shell", ["/usr/sbin/nologin", "/bin/false", "/not/installed/bash", "/bin/cat", ""])
def test_a_shell_that_runs_no_scripts_is_replaced(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    account = list(pwd.getpwuid(os.getuid()))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pwd.struct_passwd((*account[:6], shell)))
    assert system_ports._shell({}) in ("/bin/bash", "/usr/bin/bash")
    monkeypatch.setattr(system_ports, "_runs", lambda program: False)
    assert system_ports._shell({"PATH": "/opt"}) == "/bin/sh"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_mark_says_how_a_text_is_encoded(encoding: str, tmp_path: Path) -> None:
    text = "Always use tabs – ümlaut.\r\n"
    mark = "\ufeff" if encoding in ("utf-16-le", "utf-16-be") else ""
    content = (mark + text).encode(encoding)
    assert text_of_bytes(content) == text
    (tmp_path / "AGENTS.md").write_bytes(content)
    assert (find_instructions(tmp_path / "home", tmp_path, 1000) or "").strip() == text.strip()


def test_bytes_of_no_encoding_are_an_error_or_replaced() -> None:
    with pytest.raises(UnicodeDecodeError):
        text_of_bytes(b"a\xff")
    assert text_of_bytes(b"a\xff", errors="replace") == "a\ufffd"


def test_an_empty_folder_called_git_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "a"
    inner.mkdir()
    (tmp_path / "AGENTS.md").write_text("of somebody else")
    assert not marks_repository(tmp_path / ".git")
    assert project_of(inner, "skills", lambda refusal: None).folders == [inner]
    assert find_instructions(tmp_path / "home", inner, 1000) is None
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main")
    assert project_of(inner, "skills", lambda refusal: None).folders == [tmp_path, inner]
    assert main_worktree(inner) == str(tmp_path)


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can give files to another user")
    (tmp_path / "ws" / ".git").mkdir(parents=True)
    (tmp_path / "ws" / ".git" / "HEAD").write_text("ref: refs/heads/main")
    (tmp_path / "ws" / "AGENTS.md").write_text("Use tabs.")
    for each in (tmp_path / "ws", *(tmp_path / "ws").rglob("*")):
        os.chown(each, 54321, 54321)
    return tmp_path / "ws"


@pytest.mark.parametrize(
    ("settings", "safe"),
    [
        ("directory = {ws}", True),
        ("directory = {top}/*", True),
        ("directory = *", True),
        ("directory = /elsewhere", False),
        ("directory = {ws}x", False),
        ("directory = {ws}\n\tdirectory =", False),
        ("directory = ~/ws", True),
        ("", False),
    ],
)
def test_a_repository_that_git_is_told_to_trust_instructs(strangers: Path, settings: str, safe: bool) -> None:
    home = strangers.parent
    (home / "included").write_text(f"[safe]\n\t{settings.format(ws=strangers, top=home)}\n")
    environment = {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
    assert not is_safe_directory(strangers, environment)
    (home / ".gitconfig").write_text("[include]\n\tpath = included\n")
    assert is_safe_directory(strangers, environment) is safe
    told: list[str] = []
    found = find_instructions(home / "h", strangers, 1000, on_refusal=told.append, environment=environment)
    assert (found, told == []) == ("Use tabs." if safe else None, safe)
    (strangers / "AGENTS.md").unlink()
    (strangers / "AGENTS.md").write_text("Of a third.")
    os.chown(strangers / "AGENTS.md", 11111, 11111)
    assert find_instructions(home / "h", strangers, 1000, environment=environment) is None
