"""The temporary folder of the demo, with a git repository and a home for the server.

It is in `tmp` of the user's home, where confined commands of other servers cannot change the settings of the demo, and
is deleted at the end. The user's own settings, keys and git settings are neither read nor changed.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio

from app_server.cli.demo.demo_script import FILES, DemoModel
from app_server.cli.demo.scripted_model import ScriptedModel
from app_server.client.failures import AppServerError
from app_server.engine.support.home import home_folder
from app_server.engine.support.private_folders import private_folder
from app_server_protocol.values import Redacted

if TYPE_CHECKING:
    from app_server.client.options import StartOptions

MODEL = "demo-model"
CONFIG = """\
model = "{model}"
model_provider = "demo"
sandbox_mode = "workspace-write"

[sandbox_workspace_write]
exclude_slash_tmp = true
exclude_tmpdir_env_var = true

[models."{model}*"]
display_name = "Scripted model"

[model_providers.demo]
name = "Scripted model"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""

THREAD: Final[StartOptions] = {"approval_policy": "untrusted"}
"""Settings of the demo's threads: the user is asked about each command that is not known to only read."""
WITHHELD = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "CODEX_API_KEY")
"""Names of variables that are removed from the environment: the server runs without a key."""


class DemoSetupError(AppServerError):
    """The demo cannot be set up on this machine."""


class DemoWorkspace(Redacted, frozen=True):
    HIDDEN = ("environment",)
    root: Path
    environment: Mapping[str, str]
    model: ScriptedModel

    @property
    def repository(self) -> Path:
        return self.root / "workspace"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def outside(self) -> Path:
        return self.root / "note.txt"

    def configure(self, model_url: str) -> None:
        (self.home / "config.toml").write_text(CONFIG.format(model=MODEL, url=model_url), encoding="utf-8")


@asynccontextmanager
async def temporary_workspace(environment: Mapping[str, str]) -> AsyncIterator[DemoWorkspace]:
    """Make the folder for the block. Raises DemoSetupError if git is missing, or if the user's home is not writable."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(private_folder(home_folder(environment), "demo"))
        except OSError as error:
            raise DemoSetupError(f"no folder can be made in the home: {error}") from None
        workspace = _built(folder, environment)
        await _git(workspace, "init", "-q")
        await _git(workspace, "add", ".")
        await _git(
            workspace, "-c", "user.name=Demo", "-c", "user.email=demo@localhost", "commit", "-qm", "A script"
        )
        yield workspace


def _built(folder: str, environment: Mapping[str, str]) -> DemoWorkspace:
    root = Path(folder).resolve()
    workspace = DemoWorkspace(root, _environment(environment, root), ScriptedModel(DemoModel()))
    for each in (workspace.repository, workspace.home):
        each.mkdir()
    for name, text in FILES.items():
        (workspace.repository / name).write_text(text, encoding="utf-8")
    return workspace


def _environment(environment: Mapping[str, str], root: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in environment.items() if name not in WITHHELD}
    git = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    return kept | git | {"CODEX_HOME": str(root / "home"), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


async def _git(workspace: DemoWorkspace, *arguments: str) -> None:
    command = ("git", "-C", str(workspace.repository), "-c", "commit.gpgsign=false", *arguments)
    try:
        with anyio.fail_after(30):
            done = await anyio.run_process(
                command, check=False, env=workspace.environment, stdin=subprocess.DEVNULL
            )
    except FileNotFoundError:
        raise DemoSetupError("git is not installed, or not on the PATH") from None
    except TimeoutError:
        raise DemoSetupError(f"git {arguments[0]} took too long") from None
    if done.returncode:
        raise DemoSetupError(f"git {arguments[0]} failed: {done.stderr.decode(errors='replace').strip()}")


@asynccontextmanager
async def demo_surroundings(environment: Mapping[str, str]) -> AsyncIterator[DemoWorkspace]:
    """Make a temporary folder whose settings name the demo model, which is served until the block ends.

    Raises DemoSetupError.
    """
    async with temporary_workspace(environment) as workspace, workspace.model.serving() as url:
        workspace.configure(url)
        yield workspace
