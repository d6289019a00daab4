"""`app-server demo`: a conversation with the real server in a subprocess, as an editor would hold it.

1. A server starts, a conversation begins.
2. A turn: streamed text, a command that only reads, one that is asked about, a patch that is asked about.
3. A turn in which nobody is asked and the sandbox stops a command that writes outside of the workspace.
4. The server ends; the stored conversation is checked.
5. A second server resumes the conversation and runs a turn.

Each step is checked. No key, no network, and nothing of the user's is touched.
"""

from __future__ import annotations

import os
import sys

import anyio

from app_server.client.command_line import INTERRUPTED, cancel_on_signal
from app_server.client.failures import AppServerError
from app_server.demo.acts import Acts
from app_server.demo.checks import Checks, DemoStopped
from app_server.demo.expectations import Expectations
from app_server.demo.person import Person, who_decides
from app_server.demo.screen import Screen
from app_server.demo.script import Script
from app_server.demo.scripted_model import ScriptedModel
from app_server.demo.workspace import DemoSetupError, DemoWorkspace, temporary_workspace


def run_demo(*, yes: bool) -> int:
    """The exit status: 0 only if all checks passed."""
    screen = Screen.on(sys.stdout, os.environ)
    checks = Checks(screen)
    if not anyio.run(_until_signal, screen, checks, who_decides(screen, sys.stdin, yes=yes)):
        screen.line("interrupted")
        return INTERRUPTED
    screen.title("the end")
    screen.line(_summary(checks))
    return checks.status


async def _until_signal(screen: Screen, checks: Checks, person: Person) -> bool:
    """False if a signal ended it, after cleaning up."""
    finished = False
    async with anyio.create_task_group() as group:
        await group.start(cancel_on_signal, group.cancel_scope)
        await _play(screen, checks, person)
        finished = True
        group.cancel_scope.cancel()
    return finished


async def _play(screen: Screen, checks: Checks, person: Person) -> None:
    try:
        async with temporary_workspace(os.environ) as workspace:
            script = Script(workspace.outside)
            model = ScriptedModel(script)
            async with model.serving() as url:
                workspace.configure(url)
                expected = Expectations(workspace, model, script, screen, checks)
                await _acts(Acts(workspace, screen, person, checks, expected))
    except DemoSetupError as error:
        checks.stopped(str(error))


async def _acts(acts: Acts) -> None:
    try:
        await acts.first_server()
        acts.look_at_what_was_stored()
        await acts.second_server()
    except (AppServerError, DemoStopped) as error:
        acts.checks.stopped(str(error.__cause__ or error))
        _show_log(acts.workspace, acts.screen)


def _show_log(workspace: DemoWorkspace, screen: Screen) -> None:
    for line in workspace.last_logged():
        screen.note("log", line)


def _summary(checks: Checks) -> str:
    if checks.failed:
        return f"{checks.failed} of {checks.failed + checks.passed} checks failed."
    if checks.denied:
        return (
            f"{checks.passed} checks passed, but not everything was shown: {checks.denied} steps were "
            "denied. `app-server demo --yes` approves them."
        )
    return f"{checks.passed} checks passed. The temporary folder is gone, with everything in it."
