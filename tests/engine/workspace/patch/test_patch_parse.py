"""Patches as text: the grammar, the command lines that are patches, and which of them are applied, need an approval, or
are refused.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.workspace.patch import parse
from app_server.engine.workspace.patch.disk_files import git_directories
from app_server.engine.workspace.patch.planner import Place
from app_server.engine.workspace.patch.safety import AskUser, Reject, Verdict, WriteScope, assess
from app_server.engine.workspace.patch.shell_forms import ParseProblem, PatchCall, ShellForm, find_patch
from app_server_protocol.policy import AskForApproval
from tests.engine.workspace.patch.worlds import wrap

HEADERS = "Valid hunk headers: '*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'"


def hunk(*lines: str, headers: tuple[str, ...] = (), at_end: bool = False) -> parse.Hunk:
    marked = tuple(parse.HunkLine(line[0], line[1:]) for line in lines)  # type: ignore[arg-type]  # the tests' own marks
    return parse.Hunk(headers, marked, at_end)


def test_every_operation_is_read_in_order() -> None:
    text = wrap(
        "*** Add File: a/new.txt",
        "+one",
        "+",
        "*** Delete File: gone.txt",
        "*** Update File: old.txt",
        "*** Move to: new place.txt",
        "@@ class A",
        "@@   def f",
        " keep",
        "-old",
        "+new",
        "",
        "@@",
        "+last",
        "*** End of File",
    )
    assert parse.parse_patch(text) == parse.Patch(
        (
            parse.AddFile("a/new.txt", "one\n\n"),
            parse.DeleteFile("gone.txt"),
            parse.UpdateFile(
                "old.txt",
                (
                    hunk(" keep", "-old", "+new", " ", headers=("class A", "  def f")),
                    hunk("+last", at_end=True),
                ),
                "new place.txt",
            ),
        )
    )


def test_the_first_hunk_may_go_without_a_marker() -> None:
    assert parse.parse_patch(wrap("*** Update File: f", "-a", "+b")) == parse.Patch(
        (parse.UpdateFile("f", (hunk("-a", "+b"),)),)
    )


@pytest.mark.parametrize("start", ["<<EOF", "<<'EOF'", '<<"EOF"'])
def test_a_heredoc_around_the_patch_is_taken_off(start: str) -> None:
    text = f"{start}\n{wrap('*** Delete File: f')}\nEOF\n"
    assert parse.parse_patch(text) == parse.Patch((parse.DeleteFile("f"),))


def test_a_patch_with_carriage_returns_is_the_same_patch() -> None:
    text = wrap("*** Update File: f", "@@", "-a", "+b")
    assert parse.parse_patch(text.replace("\n", "\r\n")) == parse.parse_patch(text)


def test_an_empty_patch_has_no_operations() -> None:
    assert parse.parse_patch(wrap()) == parse.Patch(())


def test_an_added_file_may_be_empty() -> None:
    assert parse.parse_patch(wrap("*** Add File: f")) == parse.Patch((parse.AddFile("f", ""),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("", "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("*** Begin Patch", "invalid patch: The last line of the patch must be '*** End Patch'"),
        (
            "*** Begin Patch\n*** Delete File: f\n",
            "invalid patch: The last line of the patch must be '*** End Patch'",
        ),
        (
            wrap("*** Frobnicate File: old.txt"),
            f"invalid hunk at line 2, '*** Frobnicate File: old.txt' is not a valid hunk header. {HEADERS}",
        ),
        (
            wrap("*** Environment ID: x", "*** Add File: n"),
            f"invalid hunk at line 2, '*** Environment ID: x' is not a valid hunk header. {HEADERS}",
        ),
        (
            wrap("*** Add File: ", "+x"),
            f"invalid hunk at line 2, '*** Add File:' is not a valid hunk header. {HEADERS}",
        ),
        (
            wrap("*** Add File: a", "b", "+x"),
            f"invalid hunk at line 3, 'b' is not a valid hunk header. {HEADERS}",
        ),
    ],
)
def test_messages_that_models_know_stay_as_they_are(text: str, message: str) -> None:
    with pytest.raises(parse.PatchSyntaxError) as caught:
        parse.parse_patch(text)
    assert str(caught.value) == message
    assert caught.value.for_model() == f"apply_patch verification failed: {message}"


@pytest.mark.parametrize(
    ("lines", "line", "mentions"),
    [
        (("*** Update File: f",), 2, "'f'"),
        (("*** Update File: f", "*** Move to: g"), 2, "'f'"),
        (("*** Update File: f", "*** Move to: ", "@@", "-a"), 3, "no path"),
        (("*** Update File: f", "@@"), 4, "the end of the patch"),
        (("*** Update File: f", "@@", "*** End of File"), 4, "End of File"),
        (("*** Update File: f", "@@", "zork"), 4, "'zork'"),
        (("*** Update File: f", "@@", " a", "zork"), 5, "'zork'"),
        (("*** Update File: f", "@@", "-a", "*** End of File", "+b"), 6, "'+b'"),
        (("*** Delete File: d", "foo"), 3, "'foo'"),
    ],
)
def test_a_broken_hunk_is_reported_with_its_line(lines: tuple[str, ...], line: int, mentions: str) -> None:
    with pytest.raises(parse.PatchSyntaxError, match=f"^invalid hunk at line {line}, ") as caught:
        parse.parse_patch(wrap(*lines))
    assert mentions in str(caught.value)


MARKERS = ("*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Update File: b", "*** Delete File: c")
OTHERS = (
    "*** Move to: d",
    "*** End of File",
    "***",
    "@@",
    "@@ x",
    "+x",
    "-y",
    " z",
    "",
    "<<EOF",
    "EOF",
    "\r",
    "\0",
)
FRAGMENTS = st.sampled_from((*MARKERS, *OTHERS))


@given(st.one_of(st.text(), st.lists(st.one_of(FRAGMENTS, st.text(max_size=5))).map("\n".join)))
def test_no_text_raises_anything_else(text: str) -> None:
    for candidate in (text, wrap(text)):
        with contextlib.suppress(parse.PatchSyntaxError):
            parse.parse_patch(candidate)


PATCH = wrap("*** Update File: f", "@@", "-it's $HOME `x`", "+b")
BODY = PATCH + "\n"


def script(text: str, shell: str = "bash", flag: str = "-lc") -> list[str]:
    return [shell, flag, text]


@pytest.mark.parametrize(
    ("argv", "form"),
    [
        (["apply_patch", PATCH], PatchCall(PATCH)),
        (["applypatch", "nothing"], PatchCall("nothing")),
        (script(f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"), PatchCall(BODY)),
        (script(f"apply_patch <<'EOF'\n{PATCH}\nEOF"), PatchCall(BODY)),
        (script(f"applypatch <<EOF\n{PATCH}\nEOF"), PatchCall(BODY)),
        (script(f'apply_patch <<"PATCH"\n{PATCH}\nPATCH'), PatchCall(BODY)),
        (script(f"cd sub && apply_patch <<'EOF'\n{PATCH}\nEOF"), PatchCall(BODY, "sub")),
        (script(f"cd 'a b' && apply_patch <<'EOF'\n{PATCH}\nEOF"), PatchCall(BODY, "a b")),
        (script(f"cd \"a b\" && apply_patch <<'EOF'\n{PATCH}\nEOF"), PatchCall(BODY, "a b")),
        (script(f"apply_patch <<'EOF'\n{PATCH}\nEOF", "/bin/zsh", "-c"), PatchCall(BODY)),
        (script("apply_patch '*** Begin Patch\n*** End Patch'"), PatchCall("*** Begin Patch\n*** End Patch")),
        (script("cd sub && apply_patch 'x'"), PatchCall("x", "sub")),
        (script(f"apply_patch <<'EOF' > log\n{PATCH}\nEOF"), None),
        (script("apply_patch 'x' > log"), None),
        (["apply_patch"], None),
        (["apply_patch", "a", "b"], None),
        (["ls"], None),
        ([], None),
        (script("echo apply_patch"), None),
        (script(f"cd sub; apply_patch <<'EOF'\n{PATCH}\nEOF"), None),
        (script(f"cd a && cd b && apply_patch <<'EOF'\n{PATCH}\nEOF"), None),
        (script(f"cd $HOME && apply_patch <<'EOF'\n{PATCH}\nEOF"), None),
        (script(f"cd - && apply_patch <<'EOF'\n{PATCH}\nEOF"), None),
        (script(f"cd && apply_patch <<'EOF'\n{PATCH}\nEOF"), None),
        (script(f"apply_patch <<'EOF'\n{PATCH}\nEOF\necho hi"), None),
        (script(f"apply_patch <<'EOF' && echo hi\n{PATCH}\nEOF"), None),
        (script(f"apply_patch <<'EOF' > out\n{PATCH}\nEOF"), None),
        (script(f"apply_patch <<'EOF' | tee out\n{PATCH}\nEOF"), None),
        (script(f"apply_patch <<'EOF' &\n{PATCH}\nEOF"), None),
        (script(f"! apply_patch <<'EOF'\n{PATCH}\nEOF"), None),
        (script(f"X=1 apply_patch <<'EOF'\n{PATCH}\nEOF"), None),
        (script(f"echo x || apply_patch <<'EOF'\n{PATCH}\nEOF"), None),
        (script('apply_patch "$(cat p)"'), None),
        (script("apply_patch < p"), None),
        (script("apply_patch <<< 'x'"), None),
        (script("apply_patch <<'EOF'\n\ud800\nEOF"), None),
    ],
)
def test_patches_are_distinguished_from_other_commands(argv: list[str], form: ShellForm) -> None:
    assert find_patch(argv) == form


@pytest.mark.parametrize("argv", [[PATCH], script(PATCH)])
def test_a_patch_without_its_command_is_explained(argv: list[str]) -> None:
    form = find_patch(argv)
    assert isinstance(form, ParseProblem)
    assert form.message.startswith("apply_patch verification failed: ")


LONG_SCRIPT = """
from app_server.engine.workspace.patch.shell_forms import PatchCall, find_patch
from app_server.engine.support.process_memory import return_large_blocks
return_large_blocks()
patch = "*** Begin Patch\\n*** Add File: n\\n" + ("+" + "y" * 60 + "\\n") * 80_000 + "*** End Patch\\n"
form = find_patch(["bash", "-lc", f"apply_patch <<'EOF'\\n{patch}EOF\\n"])
assert isinstance(form, PatchCall), form
assert form.patch == patch
"""


@pytest.mark.isolated
def test_a_long_script_is_read_where_freed_blocks_go_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", LONG_SCRIPT], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


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
        (["/ws/a"], ON_REQUEST, WS, None),
        (["/ws/a"], ON_FAILURE, WS, None),
        (["/ws/a"], NEVER, WS, None),
        (["/ws/a"], UNTRUSTED, WS, AskUser()),
        (["/ws/a"], UNTRUSTED, None, AskUser()),
        (["/etc/a"], NEVER, None, None),
        (["/ws/a"], NEVER, WriteScope(), OUTSIDE),
        (["/ws/a", "/out/b"], NEVER, WS, OUTSIDE),
        (["/ws/a", "/out/b"], ON_REQUEST, WS, AskUser()),
        (["/ws/a", "/out/b"], ON_FAILURE, WS, AskUser()),
        (["/ws-evil/a"], NEVER, WS, OUTSIDE),
        (["/ws/home/auth.json"], NEVER, WS, OUTSIDE),
        (["/ws/homely"], NEVER, WS, None),
        (["/ws/.gitignore"], NEVER, WS, None),
        (["/etc/a"], NEVER, WriteScope(("/",)), None),
        (["/w/.git/x"], NEVER, WriteScope(("/w/.git",)), None),
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
