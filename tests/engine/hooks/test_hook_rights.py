"""What a hook may run outside of the sandbox: nothing that a command of the thread may have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app_server.engine.approvals.shell.code_runners import CODE_RUNNERS, runs_code_of_folder
from app_server.engine.hooks.hook_definitions import HookDefinition, HookHandler
from app_server.engine.hooks.hook_rights import HookPlaces
from app_server_protocol.engine.hook_events import HookEvent, HookSource


class Folders:
    """A workspace, in which commands may write, and a home, in which they may not."""

    def __init__(self, root: Path) -> None:
        self.workspace, self.home = root / "workspace", root / "home"
        for folder in (self.workspace, self.home, self.home / "bin"):
            folder.mkdir()

    def script(self, path: Path) -> str:
        path.write_text("#!/bin/sh\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def runs_outside(
        self,
        command: str,
        *,
        source: HookSource = HookSource.USER,
        sandbox: bool | None = None,
        project_sandbox: bool = True,
        files: tuple[str, ...] = (),
        path: str = "/usr/bin:/bin",
    ) -> bool:
        places = HookPlaces(
            cwd=str(self.workspace),
            environment={"PATH": path, "HOME": str(self.home), "CLAUDE_PROJECT_DIR": str(self.workspace)},
            written=(str(self.workspace),),
            exposed=(str(self.workspace),),
            project_sandbox=project_sandbox,
        )
        definition = HookDefinition(event=HookEvent.STOP, command=command, sandbox=sandbox)
        return places.runs_outside(
            HookHandler(definition=definition, source=source, source_path="/h", named_files=files)
        )


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(Path(os.path.realpath(tmp_path)))


def test_a_script_of_the_home_runs_outside(folders: Folders) -> None:
    script = folders.script(folders.home / "bin/guard.sh")
    assert folders.runs_outside(script)
    assert folders.runs_outside(f"{script} --strict | tail -n 1")
    assert folders.runs_outside(f"bash {script}")
    assert folders.runs_outside("~/bin/guard.sh")
    assert folders.runs_outside("echo done")


def test_what_a_command_may_have_written_runs_in_the_sandbox(folders: Folders) -> None:
    script = folders.script(folders.workspace / "guard.sh")
    own = folders.script(folders.home / "bin/guard.sh")
    for command in (
        *(
            script,
            "./guard.sh",
            "guard.sh",
            f"bash {script}",
            "sh guard.sh",
            f". {script}",
            f"{own} guard.sh",
        ),
        *('"$CLAUDE_PROJECT_DIR"/guard.sh', "${CLAUDE_PROJECT_DIR}/guard.sh", f"env X=1 {script}"),
        *(f"bash -c '{script}'", f"{own}; {script}", f"{own} --rules={script}"),
    ):
        assert not folders.runs_outside(command), command


def test_links_count_by_where_they_are_and_by_where_they_lead(folders: Folders) -> None:
    script = folders.script(folders.workspace / "guard.sh")
    own = folders.script(folders.home / "bin/guard.sh")
    (folders.home / "out").symlink_to(script)
    (folders.workspace / "in").symlink_to(own)
    assert not folders.runs_outside(f"{folders.home}/out")
    assert not folders.runs_outside(f"{folders.workspace}/in")


def test_files_that_only_trust_knows_count_too(folders: Folders) -> None:
    assert not folders.runs_outside("echo x", files=(str(folders.workspace / "any"),))


def test_programs_on_a_path_through_the_workspace_run_in_the_sandbox(folders: Folders) -> None:
    folders.script(folders.workspace / "guard")
    assert not folders.runs_outside("guard", path=f"{folders.workspace}:/usr/bin:/bin")
    assert not folders.runs_outside("date", path="bin:/usr/bin")


@pytest.mark.parametrize("program", sorted(CODE_RUNNERS))
def test_programs_that_run_code_of_the_folder_run_in_the_sandbox(program: str) -> None:
    for command in (
        program,
        f"/usr/bin/{program} x",
        f"cd / && {program}",
        f"timeout 5 {program} x",
        f"x=$({program})",
    ):
        assert runs_code_of_folder(command), command


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("python3 -c 'import x'", True),
        ("python3 -m x", True),
        ("python3", True),
        ("python3 /opt/guard.py", False),
        ("python3 -I /opt/guard.py -m x", False),
        ("node -e 1", True),
        ("node --require ./x /opt/a.js", True),
        ("bash", True),
        ("bash script.sh", True),
        ("bash /opt/script.sh", False),
        ("bash -c 'echo x'", False),
        ("bash -c make", True),
        ('eval "$(cat plan)"', True),
        ("$RUNNER test", True),
        ("source env.sh", True),
        ("jq -r .x | grep -q y", False),
        ("test -f a && exit 2", False),
    ],
)
def test_interpreters_and_shells(command: str, runs: bool) -> None:
    assert runs_code_of_folder(command) is runs


def test_a_hook_of_the_home_may_say_where_it_runs(folders: Folders) -> None:
    own = folders.script(folders.home / "bin/guard.sh")
    assert folders.runs_outside("make", sandbox=False)
    assert not folders.runs_outside(own, sandbox=True)


def test_a_hook_of_a_project_runs_in_the_sandbox(folders: Folders) -> None:
    own = folders.script(folders.home / "bin/guard.sh")
    for source in (HookSource.PROJECT, HookSource.SESSION, HookSource.CLIENT):
        assert not folders.runs_outside(own, source=source)
        assert not folders.runs_outside(own, source=source, sandbox=False)


def test_the_user_may_lift_that_and_then_the_rule_of_the_home_holds(folders: Folders) -> None:
    own = folders.script(folders.home / "bin/guard.sh")
    lifted = {"source": HookSource.PROJECT, "project_sandbox": False}
    assert folders.runs_outside(own, **lifted)  # type: ignore[arg-type]
    assert not folders.runs_outside(own, sandbox=True, **lifted)  # type: ignore[arg-type]
    assert not folders.runs_outside("make", sandbox=False, **lifted)  # type: ignore[arg-type]
