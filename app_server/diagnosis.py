"""The composition root of `app-server doctor`: gives the checks of `core.diagnostics` the real machine.

It uses the components that a server is made of, so a check tries what a conversation would. Without `online`, it makes
no network connection.
"""

from __future__ import annotations

import logging
import platform
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from app_server import __version__
from app_server.core.auth.auth_manager import AuthManager
from app_server.core.auth.credentials import Credentials
from app_server.core.auth.home_login import read_auth
from app_server.core.caller import ClientIdentity
from app_server.core.config.settings import load_config
from app_server.core.config.types import Config, McpHttpTransport, ProviderConfig
from app_server.core.diagnostics import machine
from app_server.core.diagnostics.providers import check_mcp_servers, check_provider, checked_providers
from app_server.core.diagnostics.settings import Redaction, check_config
from app_server.core.diagnostics.sharing import check_shared_server
from app_server.core.errors import AuthError, ConfigError, GitError, SandboxShortage
from app_server.core.exec.runner import CommandRunner
from app_server.core.git.run_git import GitProgram, run_git
from app_server.core.http.lazy_http import LazyHttp
from app_server.core.mcp.interfaces import McpRuntime
from app_server.core.mcp.mcp_manager import McpManager
from app_server.core.model.model_list import ModelList, ModelsUnknown, list_models
from app_server.identity import own_user_agent
from app_server.places.looking import look
from app_server.places.socket_place import place_of_home
from app_server.server import ServerSettings, auth_manager, command_runner
from protocol.checks import Check, broken, ok, warning

log = logging.getLogger(__name__)

GIT_SECONDS = 10.0


async def diagnose(settings: ServerSettings, report: Callable[[Check], None], *, online: bool) -> None:
    """Run every check and report its result at once. No check ends the others."""
    redaction = Redaction(settings.environment, read_auth(settings.home))

    def report_all(checks: Iterable[Check]) -> None:
        for check in checks:
            report(redaction.apply(check))

    loaded = _load(settings)
    if isinstance(loaded, Config):
        redaction.learn(loaded)
    async with command_runner(settings) as runner:
        for name, run in _Machine(settings, runner).checks().items():
            report_all(await _guarded(name, run))
        report_all(check_config(settings.home, loaded))
        if isinstance(loaded, Config):
            for name, run in _Configured(settings, runner, loaded, online=online).checks().items():
                report_all(await _guarded(name, run))


async def _guarded(name: str, run: Callable[[], Awaitable[list[Check]]]) -> list[Check]:
    try:
        return await run()
    except Exception as error:
        log.exception("the check %s failed", name)
        advice = "report this with the traceback that APP_SERVER_LOG=warn shows"
        return [broken(name, f"the check itself failed ({type(error).__name__})", advice)]


def _load(settings: ServerSettings) -> Config | ConfigError:
    try:
        return load_config(settings)
    except ConfigError as error:
        return error


class _Machine(Struct, frozen=True):
    """The checks that need no configuration."""

    settings: ServerSettings
    runner: CommandRunner

    def checks(self) -> Mapping[str, Callable[[], Awaitable[list[Check]]]]:
        return {
            "python": self._system,
            "sandbox": self._sandbox,
            "home": self._home,
            "git": self._git,
            "disk": self._disk,
        }

    async def _system(self) -> list[Check]:
        return [
            machine.check_python(sys.version_info[:3], sys.executable),
            machine.check_system(sys.platform, platform.release(), platform.machine()),
        ]

    async def _sandbox(self) -> list[Check]:
        try:
            return [
                machine.check_sandbox(await self.runner.sandbox.state(), await self.runner.sandbox.layers())
            ]
        except SandboxShortage as error:
            return [warning("sandbox", str(error), "run this again when the machine has less to do")]

    async def _home(self) -> list[Check]:
        home = self.settings.home
        return [
            machine.check_home(home),
            machine.check_credentials_file(home),
            machine.check_locks(home, self.settings.cwd),
            check_shared_server(place_of_home(str(home)), look, __version__),
        ]

    async def _git(self) -> list[Check]:
        program = GitProgram()
        try:
            result = await run_git(program.version_command(), timeout=GIT_SECONDS)
        except GitError:
            version = None
        else:
            version = result.stdout.decode("utf-8", "replace") or None
        return [
            machine.check_git(version, program.search_path),
            machine.check_batches(version, ray=find_spec("ray") is not None),
        ]

    async def _disk(self) -> list[Check]:
        temporary = Path(self.settings.environment.get("TMPDIR") or tempfile.gettempdir())
        places = {
            "disk of the home": self.settings.home,
            "disk for temporary files": temporary,
            "disk of the workspace": self.settings.cwd,
        }
        return [
            machine.check_disk(name, str(place), machine.free_space(place)) for name, place in places.items()
        ]


class _Configured(Struct, frozen=True):
    """The checks of what the configuration names."""

    settings: ServerSettings
    runner: CommandRunner
    config: Config
    online: bool

    def checks(self) -> Mapping[str, Callable[[], Awaitable[list[Check]]]]:
        return {"providers": self._providers, "mcp servers": self._mcp_servers}

    async def _providers(self) -> list[Check]:
        environment = self.settings.environment
        auth = auth_manager(self.settings)
        auth.settings = self.config.login
        providers = checked_providers(self.config, environment)
        try:
            login = await self._login(auth)
        except AuthError as error:
            advice = "log in again, or set OPENAI_API_KEY where the server is started"
            return [broken(f"provider {self.config.provider.id}", str(error), advice)]
        http = LazyHttp(environment)
        try:
            return [
                check_provider(self.config, each, environment, login, await self._ask(each, http, login))
                for each in providers
            ]
        finally:
            await http.aclose()

    async def _login(self, auth: AuthManager) -> Credentials | None:
        """Return the login; with `online`, refresh a token that has expired, as a turn would do. Raises AuthError."""
        needed = self.config.provider.requires_openai_auth
        return await auth.credentials() if self.online and needed else auth.stored_credentials()

    async def _ask(
        self, provider: ProviderConfig, http: LazyHttp, login: Credentials | None
    ) -> ModelList | ModelsUnknown | None:
        """Lists models, which costs nothing."""
        if not self.online:
            return None
        agent = own_user_agent(self.settings.environment)
        identity = ClientIdentity(originator=agent.originator, user_agent=agent.text())
        return await list_models(
            provider, http, env=self.settings.environment, identity=identity, login=login
        )

    async def _mcp_servers(self) -> list[Check]:
        configured = self.config.mcp_servers
        asked = {
            name: each
            for name, each in configured.items()
            if self.online or not isinstance(each.transport, McpHttpTransport)
        }
        runtime = McpRuntime(
            environment=self.settings.environment,
            home=str(self.config.home),
            cwd=str(self.config.cwd),
            runner=self.runner,
            version=own_user_agent(self.settings.environment).version,
        )
        checks = await check_mcp_servers(McpManager(MappingProxyType(asked), lambda: runtime))
        left = configured.keys() - asked.keys()
        return checks + [ok(f"mcp server {name}", "not asked without --online") for name in sorted(left)]
