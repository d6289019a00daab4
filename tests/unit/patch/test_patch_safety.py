"""Which patches are applied, asked about, refused."""

from pathlib import Path

import pytest

from app_server.core.patch.disk_files import git_directories
from app_server.core.patch.patch_plan import Place
from app_server.core.patch.safety import AskUser, AutoApprove, Reject, Verdict, WriteScope, assess
from protocol.policy import AskForApproval

UNTRUSTED, ON_FAILURE, ON_REQUEST, NEVER = AskForApproval
WS = WriteScope(("/ws",), ("/ws/home",))
OUTSIDE = Reject("writing outside of the project; rejected by user approval settings")


def place(real: str, label: str | None = None) -> Place:
    return Place(label or real, real, real, label is not None)


@pytest.mark.parametrize(
    ("paths", "approval", "scope", "verdict"),
    [
        ([], ON_REQUEST, WS, Reject("empty patch")),
        ([], UNTRUSTED, None, Reject("empty patch")),
        (["/ws/a"], ON_REQUEST, WS, AutoApprove()),
        (["/ws/a"], ON_FAILURE, WS, AutoApprove()),
        (["/ws/a"], NEVER, WS, AutoApprove()),
        (["/ws/a"], UNTRUSTED, WS, AskUser()),
        (["/ws/a"], UNTRUSTED, None, AskUser()),
        (["/etc/a"], NEVER, None, AutoApprove()),
        (["/ws/a"], NEVER, WriteScope(), OUTSIDE),
        (["/ws/a", "/out/b"], NEVER, WS, OUTSIDE),
        (["/ws/a", "/out/b"], ON_REQUEST, WS, AskUser()),
        (["/ws/a", "/out/b"], ON_FAILURE, WS, AskUser()),
        (["/ws-evil/a"], NEVER, WS, OUTSIDE),
        (["/ws/home/auth.json"], NEVER, WS, OUTSIDE),
        (["/ws/homely"], NEVER, WS, AutoApprove()),
        (["/ws/.gitignore"], NEVER, WS, AutoApprove()),
        (["/etc/a"], NEVER, WriteScope(("/",)), AutoApprove()),
        (["/w/.git/x"], NEVER, WriteScope(("/w/.git",)), AutoApprove()),
    ],
)
def test_a_verdict_for_each_policy(
    paths: list[str], approval: AskForApproval, scope: WriteScope | None, verdict: Verdict
) -> None:
    assert assess([place(path) for path in paths], approval, scope) == verdict


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        ".git",
        "sub/.git/config",
        ".codex/config.toml",
        ".agents/x",
        ".GIT/hooks/x",
        ".g\u200cit/x",
    ],
)
def test_what_decides_what_is_run_is_never_written_unasked(path: str) -> None:
    assert assess([place(f"/ws/{path}")], NEVER, WS) == OUTSIDE
    assert isinstance(assess([place(f"/ws/{path}")], ON_REQUEST, WS), AskUser)


def test_the_user_is_shown_where_a_link_leads() -> None:
    verdict = assess([place("/out/real", "link")], ON_REQUEST, WS)
    assert verdict == AskUser("link is a link to /out/real")


def test_the_user_is_told_what_can_change_what_is_run() -> None:
    verdict = assess([place("/ws/a"), place("/ws/sub/.git/config"), place("/ws/.codex/x")], ON_REQUEST, WS)
    assert verdict == AskUser("/ws/sub/.git/config, /ws/.codex/x can change what git or the agent will run")


def test_what_the_model_reads_of_a_refusal() -> None:
    assert OUTSIDE.for_model() == (
        "patch rejected: writing outside of the project; rejected by user approval settings"
    )


def test_git_directories_are_found_under_any_name(tmp_path: Path) -> None:
    for name in ("HEAD", "objects", "refs"):
        (tmp_path / "ws/bare.git" / name).mkdir(parents=True)
    (tmp_path / "ws/.git").write_text("gitdir: g\n")
    (tmp_path / "ws/sub").mkdir()
    (tmp_path / "ws/sub/.git").write_text("gitdir: ../elsewhere\n")
    ws = str(tmp_path / "ws")
    assert git_directories([f"{ws}/g/hooks/x"], [ws], "/home") == (f"{ws}/g",)
    assert git_directories([f"{ws}/bare.git/hooks/x"], [ws], "/home") == (f"{ws}/bare.git", f"{ws}/g")
    assert git_directories([f"{ws}/sub/f"], [ws], "/home") == (f"{ws}/elsewhere", f"{ws}/g")
    assert git_directories(["/elsewhere/f"], [ws], "/home") == ()
