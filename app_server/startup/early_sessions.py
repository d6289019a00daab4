"""What `session/new` asks for and is answered, for `early_conversations`. Fast to import."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app_server.apis.acp.builtin_commands import shown_builtins
from app_server.apis.acp.opening import SessionFolders, UnfitFolder, plan_session
from app_server.core.auth.home_login import HomeLogin, env_api_key
from app_server.core.config.types import Config
from app_server.core.custom_prompts.folder import FOLDER
from app_server.startup.early_answers import compact_json
from app_server.startup.early_conversations import PlannedConversation
from app_server.startup.launch import Launch
from app_server.startup.overrides import settings_of_request
from protocol.jsonrpc import Request, dump_notification
from protocol.names import SESSION_UPDATE
from protocol.paths import sound_path

if TYPE_CHECKING:
    from protocol.base import Json

PARAMETERS = {"cwd", "mcpServers", "additionalDirectories", "_meta"}


def planned_session(launch: Launch, request: Request) -> PlannedConversation | None:
    """Raises ConfigError.

    Left to the full server: MCP servers of the client, which need validation; a login that has to be renewed; prompts
    of the user, which are read for the list of commands.
    """
    folders = _folders(request.params)
    if folders is None:
        return None
    try:
        plan = plan_session(
            lambda overrides: settings_of_request(launch, overrides), launch.environment, folders
        )
    except UnfitFolder:
        return None
    if not os.path.isdir(folders.cwd) or not _is_logged_in(launch, plan.config) or _has_prompts(launch):
        return None
    shown, commands = plan.options.shown(), shown_builtins(undo=plan.config.features.enabled("ghost_commit"))
    return PlannedConversation(
        plan.config,
        lambda new: {"sessionId": new.begun.id, **shown},
        lambda new: (_commands_update(new.begun.id, commands),),
    )


def _commands_update(session_id: str, commands: Json) -> bytes:
    update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    return dump_notification(SESSION_UPDATE, compact_json({"sessionId": session_id, "update": update}))


def _has_prompts(launch: Launch) -> bool:
    """The user's own are commands, too."""
    try:
        return bool(os.listdir(launch.home / FOLDER))
    except OSError:
        return False


def _folders(params: Json) -> SessionFolders | None:
    """None where a parameter is unknown, or not of the form that needs no validation."""
    if not isinstance(params, dict) or not params.keys() <= PARAMETERS or params.get("mcpServers", []) != []:
        return None
    cwd, more = params.get("cwd"), params.get("additionalDirectories") or []
    if not isinstance(cwd, str) or not isinstance(more, list):
        return None
    return SessionFolders(cwd, more) if _are_paths((cwd, *more)) else None


def _are_paths(values: Sequence[Json]) -> bool:
    try:
        return all(isinstance(value, str) and sound_path(value) == value for value in values)
    except ValueError:
        return False


def _is_logged_in(launch: Launch, config: Config) -> bool:
    """Whether that is known without a request, where the configured provider needs it."""
    if not config.provider.requires_openai_auth:
        return True
    key = env_api_key(launch.environment, acp=True)
    login = HomeLogin(home=launch.home, clock=time.time, env_api_key=key).under(config.login)
    return login.ready() is not None
