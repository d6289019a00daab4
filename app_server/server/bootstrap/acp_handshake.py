"""Answers `initialize` of the Agent Client Protocol while the server is being loaded. Fast to import.

The answer depends on whether the configured provider needs a login.
"""

from __future__ import annotations

import logging

from app_server.engine.config.config_values import SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.support.client_info import EarlyInitialize
from app_server.engine.support.engine_errors import ConfigError
from app_server.server.apis.acp.acp_client import auth_methods, initialize_result, parse_client
from app_server.server.bootstrap.handshake import AnsweredInitialize, InitializeResponder
from app_server.server.bootstrap.launch import ProcessOptions
from app_server.server.bootstrap.overrides import cli_overrides
from app_server_protocol.jsonrpc import INITIALIZE, Message, Request, dump_response, with_version

log = logging.getLogger(__name__)

MAX_VERSION = 1 << 16


def acp_responder(launch: ProcessOptions) -> InitializeResponder:
    def respond(first: Message | None) -> AnsweredInitialize | None:
        if not isinstance(first, Request) or first.method != INITIALIZE or not isinstance(first.params, dict):
            return None
        version = first.params.get("protocolVersion")
        if type(version) is not int or not 0 <= version < MAX_VERSION:
            return None
        environment = launch.environment
        try:
            cli = cli_overrides(launch)
            place = SettingsSource(home=launch.home, cwd=launch.cwd, cli=cli, environment=environment)
            needs_login = load_config(place).provider.requires_openai_auth
        except ConfigError:
            needs_login = False  # a session reports the error in the settings
        except Exception:  # the full server then reports the error
            log.exception("initialize could not be answered early")
            return None
        client = parse_client(first.params)
        result = initialize_result(auth_methods(environment, needs_login=needs_login))
        early = EarlyInitialize(client.name, client.version, params=first.params)
        return AnsweredInitialize(with_version(dump_response(first.id, result)), early)

    return respond
