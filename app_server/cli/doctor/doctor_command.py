"""`app-server doctor`: runs the checks of `cli.doctor` on the real machine and the configuration, and prints
their results, as text while they run or as JSON at the end. Owns the exit status.

A composition root: it uses the components of a server, so a check does what a conversation would. Without `online`, it
makes no network connection.
"""

from __future__ import annotations

import json
import logging
import platform
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import anyio
from msgspec import Struct
from msgspec.structs import asdict

from app_server import __version__
from app_server.cli.doctor import machine_checks
from app_server.cli.doctor.checks import Check, CheckStatus, broken, ok, warning
from app_server.cli.doctor.provider_checks import (
    check_catalogue,
    check_mcp_servers,
    check_provider,
    check_shared_server,
    checked_providers,
)
from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.credentials import Credentials, read_auth
from app_server.engine.checkpoints import kept_files
from app_server.engine.client_context import ClientIdentity
from app_server.engine.config.config_values import Config, ProviderConfig, SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.hooks import hook_files, hook_notice, hook_presence
from app_server.engine.http.lazy_http import LazyProviderHttp
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.mcp.runtime_interface import DISCOVERS_FIRST, McpRuntime
from app_server.engine.model.discovery import Discovery
from app_server.engine.model.served_models import ModelsUnknown, ServedModels
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.support.client_info import own_user_agent
from app_server.engine.support.engine_errors import AuthError, ConfigError, GitError, SandboxShortage
from app_server.engine.support.socket_paths import place_of_home
from app_server.engine.workspace.git.find_git import find_git
from app_server.engine.workspace.git.run_git import run_git
from app_server.server.composition import auth_manager, command_runner
from app_server.server.server_settings import ServerSettings

log = logging.getLogger(__name__)

GIT_SECONDS = 10.0


def as_text(check: Check) -> str:
    """Return a line with the result, and a line below it with advice."""
    line = f"{check.status.value:<8} {check.name}: {_one_line(check.found)}"
    return f"{line}\n{'':<8} → {_one_line(check.advice)}" if check.advice else line


def summary(checks: Sequence[Check]) -> str:
    counts = Counter(check.status for check in checks)
    listed = ", ".join(f"{counts[status]} {status.value}" for status in CheckStatus)
    return f"\n{len(checks)} checks: {listed}"


def as_json(checks: Sequence[Check]) -> str:
    return json.dumps(
        {
            "version": __version__,
            "ok": exit_status(checks) == 0,
            "checks": [asdict(check) | {"advice": check.advice or None} for check in checks],
        },
        indent=2,
        ensure_ascii=False,
    )


def exit_status(checks: Sequence[Check]) -> int:
    """Return 0 if no check has failed."""
    return 1 if any(check.status is CheckStatus.BROKEN for check in checks) else 0


def _one_line(text: str) -> str:
    """Return the text without line ends and control characters, which a program may have printed."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def run_doctor(settings: ServerSettings, *, online: bool, json: bool) -> int:
    checks: list[Check] = []

    def receive(check: Check) -> None:
        checks.append(check)
        if not json:
            print(as_text(check), flush=True)  # noqa: T201  a command for people, without a wire

    anyio.run(partial(diagnose, settings, receive, online=online))
    print(as_json(checks) if json else summary(checks))  # noqa: T201
    sys.stdout.flush()
    return exit_status(checks)


async def diagnose(settings: ServerSettings, report: Callable[[Check], None], *, online: bool) -> None:
    """Run every check and report its result at once. The failure of a check does not end the others."""
    loaded = _load(settings)
    config = loaded if isinstance(loaded, Config) else None
    credentials = machine_checks.known_credentials(settings.environment, read_auth(settings.home), config)
    async with command_runner(settings) as runner:
        for name, run in _checks(settings, runner, loaded, online=online).items():
            for check in await _guarded(name, run):
                report(machine_checks.redacted(check, credentials))


def _checks(
    settings: ServerSettings, runner: CommandRunner, loaded: Config | ConfigError, *, online: bool
) -> Mapping[str, Callable[[], Awaitable[list[Check]]]]:
    checks: dict[str, Callable[[], Awaitable[list[Check]]]] = {
        "python": _system,
        "sandbox": partial(_sandbox, runner),
        "home": partial(_home, settings),
        "git": partial(_git, settings),
        "disk": partial(_disk, settings),
        "config": partial(_config, settings, loaded),
    }
    if isinstance(loaded, Config):
        configured = _Configured(settings, runner, loaded, online=online)
        checks |= {
            "models": configured.models,
            "providers": configured.providers,
            "mcp servers": configured.mcp_servers,
            "hooks": configured.hooks,
        }
    return checks


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


async def _system() -> list[Check]:
    return [
        ok("python", f"{platform.python_version()} at {sys.executable}"),
        machine_checks.check_system(sys.platform, platform.release(), platform.machine()),
    ]


async def _sandbox(runner: CommandRunner) -> list[Check]:
    try:
        return [machine_checks.check_sandbox(await runner.sandbox.state(), await runner.sandbox.layers())]
    except SandboxShortage as error:
        return [warning("sandbox", str(error), "run this again when the machine has less to do")]


async def _home(settings: ServerSettings) -> list[Check]:
    home = settings.home
    return [
        machine_checks.check_home(home),
        machine_checks.check_credentials_file(home),
        machine_checks.check_locks(home, settings.cwd),
        check_shared_server(place_of_home(str(home)), __version__),
    ]


async def _git(settings: ServerSettings) -> list[Check]:
    program = find_git(settings.environment, settings.cwd)
    try:
        result = await run_git(program.version_command(), timeout=GIT_SECONDS)
    except GitError:
        version = None
    else:
        version = result.stdout.decode("utf-8", "replace") or None
    return [
        machine_checks.check_git(version, program.search_path),
        machine_checks.check_batches(version, ray=find_spec("ray") is not None),
    ]


async def _disk(settings: ServerSettings) -> list[Check]:
    temporary = Path(settings.environment.get("TMPDIR") or tempfile.gettempdir())
    places = {
        "disk of the home": settings.home,
        "disk for temporary files": temporary,
        "disk of the workspace": settings.cwd,
    }
    checks = [
        machine_checks.check_disk(name, str(place), machine_checks.free_space(place))
        for name, place in places.items()
    ]
    return [*checks, *check_checkpoints(settings.home)]


def check_checkpoints(home: Path) -> list[Check]:
    """Tell how much the checkpoints of a home take; nothing if there are none."""
    found = kept_files.sizes(home)
    if not found:
        return []
    size, most = (
        bytes // (1024 * 1024) for bytes in (sum(each[1] for each in found), kept_files.MAX_HOME_BYTES)
    )
    threads = "1 thread" if len(found) == 1 else f"{len(found)} threads"
    return [ok("checkpoints", f"{threads}, {size:,} MiB; beyond {most:,} MiB those of the oldest threads go")]


async def _config(settings: ServerSettings, loaded: Config | ConfigError) -> list[Check]:
    return machine_checks.check_config(settings.home, loaded)


def check_hooks(config: Config, source: SettingsSource) -> list[Check]:
    """Check the hooks of the folder in which the command was started; none if nothing defines any."""
    cwd = str(source.cwd)
    if not hook_presence.may_have_hooks(config, cwd):
        return []
    found = hook_files.HookFiles(config, source).load(cwd)
    running = f"{sum(each.runs for each in found.handlers())} run in {cwd}"
    notice = hook_notice.hooks_notice(found)
    if notice is None:
        return [ok("hooks", running)]
    text = f"{running}. {notice} {hook_notice.hook_lines(found.waiting)}"
    return [warning("hooks", text, "decide with `/hooks` in `app-server chat`")]


class _Configured(Struct, frozen=True):
    """The checks of the providers, servers and programs that the configuration names."""

    settings: ServerSettings
    runner: CommandRunner
    config: Config
    online: bool

    async def models(self) -> list[Check]:
        return [check_catalogue(datetime.now(UTC).date())]

    async def providers(self) -> list[Check]:
        environment = self.settings.environment
        auth = auth_manager(self.settings)
        auth.settings = self.config.login
        providers = checked_providers(self.config, environment)
        try:
            login = await self._login(auth)
        except AuthError as error:
            advice = "log in again, or set OPENAI_API_KEY where the server is started"
            return [broken(f"provider {self.config.provider.id}", str(error), advice)]
        http = LazyProviderHttp(environment)
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
        self, provider: ProviderConfig, http: LazyProviderHttp, login: Credentials | None
    ) -> ServedModels | ModelsUnknown | None:
        """List models, a request that costs nothing."""
        if not self.online:
            return None
        agent = own_user_agent(self.settings.environment)
        identity = ClientIdentity(originator=agent.originator, user_agent=agent.text())
        discovery = Discovery(provider, http, env=self.settings.environment, identity=identity, login=login)
        return await discovery.ask(self.config.thread.model)

    async def hooks(self) -> list[Check]:
        return check_hooks(self.config, self.settings)

    async def mcp_servers(self) -> list[Check]:
        configured = self.config.mcp_servers
        asked = {
            name: each for name, each in configured.items() if self.online or not each.transport.IS_REMOTE
        }
        runtime = McpRuntime(
            environment=self.settings.environment,
            home=str(self.config.home),
            cwd=str(self.config.cwd),
            runner=self.runner,
            version=own_user_agent(self.settings.environment).version,
            discovers_first=self.config.features.enabled(DISCOVERS_FIRST),
        )
        checks = await check_mcp_servers(McpManager(MappingProxyType(asked), lambda: runtime))
        left = configured.keys() - asked.keys()
        return checks + [ok(f"mcp server {name}", "not asked without --online") for name in sorted(left)]
