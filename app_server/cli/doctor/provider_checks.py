"""Checks of the servers that a conversation uses. A model provider must have the settings for a request, answer, and
accept the key. The MCP servers must start, as for a conversation, and offer tools. Also checks the shared server of all
clients of the user: whether one runs, and what prevents it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

import anyio

from app_server.cli.doctor.checks import Check, CheckStatus, broken, ok, warning
from app_server.engine.auth.credentials import Credentials
from app_server.engine.client_context import ClientIdentity
from app_server.engine.config.config_values import Config, ProviderConfig
from app_server.engine.config.providers import built_in_providers
from app_server.engine.http.address import origin
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.mcp.mcp_server import McpServer
from app_server.engine.model.endpoints import endpoint, is_azure, key_source
from app_server.engine.model.model_facts import ModelFacts, catalogue_date
from app_server.engine.model.served_models import ModelsUnknown, ServedModels
from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import ModelError
from app_server.engine.support.socket_paths import SocketPaths
from app_server.engine.support.user_messages import Problem
from app_server.server.proxy.probe_socket import DaemonState, look

REFUSED = (401, 403)
NO_LIST = (404, 405, 501)
"""HTTP statuses of servers that have no list of models."""

NOBODY = ClientIdentity(originator="", user_agent="")


def checked_providers(config: Config, env: Mapping[str, str]) -> list[ProviderConfig]:
    """Return the provider of new conversations, and all other providers that the user configured."""
    built_in = built_in_providers(env)
    own = [each for name, each in config.providers.items() if name not in built_in]
    return [config.provider, *(each for each in own if each.id != config.provider.id)]


def check_provider(
    config: Config,
    provider: ProviderConfig,
    env: Mapping[str, str],
    login: Credentials | None,
    answer: ServedModels | ModelsUnknown | None,
) -> Check:
    """Check one provider. `login` is the login of the user; `answer` is None if no request was sent to the provider. A
    problem counts as broken only for the provider of new conversations; else it is a warning.
    """
    name, current = f"provider {provider.id}", provider.id == config.provider.id
    login = login if provider.requires_openai_auth else None
    try:
        target = endpoint(provider, "models", env=env, identity=NOBODY, login=login)
    except ModelError as error:
        return _failed(name, _unusable(provider, error), current=current)
    source, where = key_source(provider, env, login), origin(target.url) or "its address"
    if provider.requires_openai_auth and source is None:
        return _failed(name, user_messages.NOBODY_LOGGED_IN, current=current)
    unset = [variable for variable in provider.env_http_headers.values() if not env.get(variable, "").strip()]
    if unset and provider.id != "openai":
        return warning(name, f"headers are left out, because {', '.join(unset)} is not set", "set it")
    key = f"key {source}" if source else "no key"
    match answer:
        case None:
            return ok(name, f"{where}, {key}; not asked without --online")
        case ServedModels():
            return _answering(name, config, provider, answer, f"{where}, {key}", current=current)
        case ModelsUnknown(unreachable=True):
            problem = user_messages.provider_unreachable(provider.id, where, answer.reason)
            return _failed(name, problem, current=current)
        case ModelsUnknown(status=status) if status in REFUSED:
            problem = (
                user_messages.key_refused(provider.id, source)
                if source
                else user_messages.key_not_sent(provider.id)
            )
            return _failed(name, problem, current=current)
        case ModelsUnknown(status=status) if status is not None and status not in NO_LIST:
            advice = "look at the provider's status, its `base_url` and its `query_params`"
            return _failed(name, Problem(f"{where} answers with {answer.reason}", advice), current=current)
        case ModelsUnknown():
            text = (
                f"{where} answers, but lists no models ({answer.reason}); its key cannot be checked for free"
            )
            return warning(name, text, "begin a conversation to see whether it works")


def _answering(
    name: str, config: Config, provider: ProviderConfig, served: ServedModels, where: str, *, current: bool
) -> Check:
    """Check the configured model against the models that its provider serves."""
    text, names = f"{where}; it answers and offers {len(served.models)} models", served.names
    if not current:
        return ok(name, text)
    facts = ModelFacts(config, served)
    model = facts.default()
    if model is None:
        return warning(name, f"{text}, and no model is configured", f"set `model`: {_some(names)}")
    if config.thread.model and _is_missing(facts, provider, model):
        problem = user_messages.model_unknown(provider.id, model)
        upgrade = facts.row(model).upgrade
        advice = f"its successor is {upgrade.model}" if upgrade and upgrade.model in names else problem.advice
        return warning(name, problem.what, f"{advice}: {_some(names)}")
    own, window = config.model.context_window, facts.row(model).context_window
    if own is not None and window is not None and own > window and served.kind not in ("openai", "chatgpt"):
        what = f"`model_context_window` is {own:,}, and the window of `{model}` there is {window:,} tokens"
        return warning(name, what, "lower it, or load the model with a larger window")
    size = own or window
    return ok(name, f"{text}; `{model}`" + (f" with a window of {size:,} tokens" if size else ""))


def check_catalogue(today: date) -> Check:
    """Check the age of the catalogue of models in this version."""
    name, dated = "models", catalogue_date()
    days = (today - dated).days
    text = f"the catalogue is of {dated.isoformat()}"
    if days > OLD_CATALOGUE_DAYS:
        return warning(name, f"{text}, {days} days old", "install a newer version for newer models")
    return ok(name, text)


OLD_CATALOGUE_DAYS = 120
"""Age of the catalogue in days from which newer models probably exist."""


def _failed(name: str, problem: Problem, *, current: bool) -> Check:
    status = CheckStatus.BROKEN if current else CheckStatus.WARNING
    return Check(name, status, problem.what, problem.advice)


def _unusable(provider: ProviderConfig, error: ModelError) -> Problem:
    if provider.env_key is None:
        return (
            user_messages.no_base_url(provider.id) if provider.base_url is None else Problem(str(error), "")
        )
    problem = user_messages.key_missing(provider.env_key)
    return Problem(problem.what, provider.env_key_instructions or problem.advice)


def _is_missing(facts: ModelFacts, provider: ProviderConfig, model: str) -> bool:
    """Return whether the provider does not offer a model. Azure is not checked: it lists models, but requests name
    deployments.
    """
    return not is_azure(provider) and facts.is_served(model) is False


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


async def check_mcp_servers(manager: McpManager) -> list[Check]:
    """Check each configured MCP server, with the startup timeout of its settings. All servers are ended afterwards."""
    async with anyio.create_task_group() as group:
        group.start_soon(manager.run_servers)
        await manager.ready()
        checks = [_check(manager, name) for name in manager.configs]
        await manager.close()
    return checks


def _check(manager: McpManager, name: str) -> Check:
    title, server = f"mcp server {name}", manager.servers.get(name)
    if server is None:
        return ok(title, "disabled")
    if server.failure is not None:
        what = server.config.transport.MAIN_SETTINGS
        return broken(
            title, server.failure.message, f"correct {what} in [mcp_servers.{name}], or set `enabled = false`"
        )
    if not server.running:
        limit = f"{server.config.startup_timeout_sec:g}"
        return broken(title, f"has not started within {limit} seconds", "raise its `startup_timeout_sec`")
    tools = tuple(tool.tool for tool in server.tools)
    listed = f": {_some(tools)}" if tools else ""
    return ok(title, f"started{_introduced(server)}, {len(tools)} tools{listed}")


def _introduced(server: McpServer) -> str:
    """Return the name and version of a server, and the revision of MCP that is spoken with it."""
    info, revision = server.introduction.info, server.introduction.revision
    named = [info.get(key) for key in ("name", "version")] if isinstance(info, dict) else []
    name = " ".join(text[:60] for text in named if isinstance(text, str) and text.isprintable())
    return (f", {name}" if name else "") + (f", MCP {revision}" if revision else "")


SHARED_SERVER = "shared server"


def check_shared_server(place: SocketPaths, version: str) -> Check:
    """Check the shared server at its place. `version` is the version of this program."""
    found = look(place)
    if found.obstacle is not None:
        advice = "move it away; until then each proxy serves its client by itself"
        return warning(SHARED_SERVER, f"none can be started: {found.obstacle}", advice)
    if found.is_locked:
        return _running(place, found, version)
    if found.is_answered:
        return warning(SHARED_SERVER, f"another program listens on {place.socket}", "end that program")
    if found.is_starting:
        return ok(SHARED_SERVER, "one is being started")
    left = (
        "; the socket of one that was killed is left, and the next one replaces it" if found.is_left else ""
    )
    return ok(SHARED_SERVER, f"none runs{left}{_otherwise(found)}")


def _running(place: SocketPaths, found: DaemonState, version: str) -> Check:
    who = f"pid {found.said.get('pid', 'unknown')}"
    if not found.is_answered:
        if found.is_starting:
            return ok(SHARED_SERVER, "one is being started")
        what = f"one ({who}) holds {place.server_lock} and cannot be reached on {place.socket}"
        return warning(SHARED_SERVER, what, f"end it (`lslocks` shows the holder); its log is {place.log}")
    runs = found.said.get("version", version)
    where = ", ".join(map(str, found.said.get("addresses", [place.socket])))
    if runs != version:
        text = f"version {runs} runs ({who}), and this is {version}"
        return warning(SHARED_SERVER, text, "`app-server daemon reload` starts this one in its place")
    return ok(SHARED_SERVER, f"version {runs} runs ({who}) on {where}{_otherwise(found)}")


def _otherwise(found: DaemonState) -> str:
    return "; clients of codex find a server of codex" if found.is_known_otherwise else ""
