"""What a model writes: patches and command lines. Nothing of it makes a parser fail otherwise than by name."""

import shlex
from functools import partial

from hypothesis import example, given
from hypothesis import strategies as st

from app_server.core.patch.changes import shown_changes
from app_server.core.patch.parse import PatchError, parse_patch
from app_server.core.patch.planner import NoSnapshot, Snapshot, plan_patch
from app_server.core.patch.shell_forms import find_patch
from app_server.core.shell.dangerous_commands import is_dangerous
from app_server.core.shell.safe_commands import is_known_safe as judge_safe
from app_server.core.shell.script import split_script
from app_server.core.shell.summaries import parse_command
from tests.fuzz.mutation import mutated, thorough

is_known_safe = partial(judge_safe, trusts=lambda program: True)

PATCHES = (
    b"*** Begin Patch\n*** Add File: new.txt\n+hello\n+w\xc3\xb6rld\n*** End Patch\n",
    b"*** Begin Patch\n*** Update File: old.txt\n@@ def f():\n one\n-two\n+zwei\n three\n*** End Patch",
    b"*** Begin Patch\n*** Update File: old.txt\n*** Move to: moved.txt\n@@\n-one\n+eins\n"
    b"*** End of File\n*** End Patch",
    b"*** Begin Patch\n*** Delete File: old.txt\n*** Add File: sub/b\n+\n*** End Patch",
)
SCRIPTS = (
    b"ls -la && cat README.md | head -n 3",
    b"git status; git log --oneline -5 > out.txt",
    b"rg --files 'a b' \"$HOME\" || find . -name '*.py' -exec rm {} +",
    b"cd sub && sed -n '1,20p' file # comment",
    b"apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: a\n*** End Patch\nEOF",
    b"for f in *; do echo $f; done & (cd /; pwd) 2>&1",
    b"sudo rm -rf / --no-preserve-root; bash -c 'echo `whoami`'",
)


class Files:
    """A disk with one file."""

    def resolve_path(self, path: str) -> str:
        if "\0" in path:
            raise PatchError("a path holds a NUL")
        return path

    def read_file(self, real: str) -> Snapshot | NoSnapshot:
        return (
            Snapshot(b"one\ntwo\nthree\n", 0o644)
            if real == "/ws/old.txt"
            else NoSnapshot("absent", absent=True)
        )


def text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@thorough
@given(mutated(PATCHES))
def test_a_patch_is_a_plan_or_an_error_for_the_model(data: bytes) -> None:
    refused: PatchError | None = None
    try:
        plan = plan_patch(parse_patch(text(data)), "/ws", Files())
    except PatchError as error:
        refused = error
    if refused is not None:
        assert refused.for_model()
    else:
        assert plan.document("call", recover=False)
        # One without edits is refused by its emptiness, later.
        assert bool(shown_changes(plan)) == bool(plan.edits)


@thorough
@given(mutated(SCRIPTS))
@example(b"$(" * 2000)
@example(b"((" * 2000)
def test_a_command_line_is_judged_whatever_it_is(data: bytes) -> None:
    script = text(data)
    for argv in (["sh", "-c", script], ["bash", "-lc", script], script.split(), [script]):
        assert isinstance(is_known_safe(argv), bool)
        assert isinstance(is_dangerous(argv), bool)
        assert len(parse_command(argv)) < 10_000
        find_patch(argv)


DANGEROUS = (
    "rm -rf x",
    "git push",
    "curl http://x",
    "tee f",
    "python3 -c 1",
    "dd of=/dev/sda",
    "chmod 777 x",
)


@thorough
@given(
    st.sampled_from(DANGEROUS),
    mutated(SCRIPTS[:2]),
    st.sampled_from(["; ", " && ", " | ", "\n", " || ", " & "]),
)
def test_nothing_that_holds_an_unsafe_command_is_safe(unsafe: str, data: bytes, between: str) -> None:
    """Whatever stands before it, as long as the whole is still understood to hold it as a command."""
    script = text(data) + between + unsafe
    commands = split_script(script)
    if commands is not None and any(shlex.split(unsafe) == list(command) for command in commands):
        assert not is_known_safe(["bash", "-lc", script])


@thorough
@given(st.sampled_from(DANGEROUS), st.sampled_from(["; ", " && ", " | ", "\n", " || ", " & "]))
def test_an_unsafe_command_is_found_behind_a_safe_one(unsafe: str, between: str) -> None:
    assert not is_known_safe(["bash", "-lc", f"ls{between}{unsafe}"])
    assert not is_known_safe(["bash", "-lc", f"{unsafe}{between}ls"])
    assert not is_known_safe(["bash", "-lc", f"ls $({unsafe})"])
