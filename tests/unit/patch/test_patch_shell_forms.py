"""Which command lines are patches."""

import subprocess
import sys

import pytest

from app_server.core.patch.shell_forms import NotAPatch, ParseProblem, PatchCall, ShellForm, find_patch
from tests.unit.patch.worlds import wrap

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
        (script(f"apply_patch <<'EOF' > log\n{PATCH}\nEOF"), NotAPatch()),
        (script("apply_patch 'x' > log"), NotAPatch()),
        (["apply_patch"], NotAPatch()),
        (["apply_patch", "a", "b"], NotAPatch()),
        (["ls"], NotAPatch()),
        ([], NotAPatch()),
        (script("echo apply_patch"), NotAPatch()),
        (script(f"cd sub; apply_patch <<'EOF'\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"cd a && cd b && apply_patch <<'EOF'\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"cd $HOME && apply_patch <<'EOF'\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"cd - && apply_patch <<'EOF'\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"cd && apply_patch <<'EOF'\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"apply_patch <<'EOF'\n{PATCH}\nEOF\necho hi"), NotAPatch()),
        (script(f"apply_patch <<'EOF' && echo hi\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"apply_patch <<'EOF' > out\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"apply_patch <<'EOF' | tee out\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"apply_patch <<'EOF' &\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"! apply_patch <<'EOF'\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"X=1 apply_patch <<'EOF'\n{PATCH}\nEOF"), NotAPatch()),
        (script(f"echo x || apply_patch <<'EOF'\n{PATCH}\nEOF"), NotAPatch()),
        (script('apply_patch "$(cat p)"'), NotAPatch()),
        (script("apply_patch < p"), NotAPatch()),
        (script("apply_patch <<< 'x'"), NotAPatch()),
        (script("apply_patch <<'EOF'\n\ud800\nEOF"), NotAPatch()),
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
from app_server.core.patch.shell_forms import PatchCall, find_patch
from app_server.core.process_memory import return_large_blocks
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
