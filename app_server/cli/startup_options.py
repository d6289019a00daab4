"""The options of `codex app-server` for its start: checks of the settings before serving, and messages about options
without effect.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from app_server import PROTOCOL_VERSION
from app_server.engine.config.settings_service import UserSettings
from app_server.engine.support.engine_errors import ConfigError
from app_server.server.bootstrap.launch import parse_launch
from app_server.server.bootstrap.overrides import cli_overrides
from app_server.server.bootstrap.standard_streams import complain

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "startup_sign_out": "logins are not managed by an organization; `app-server logout` forgets one",
    "startup_client_info": "a client names itself in `initialize`",
    "cloud_skills_snapshot": "skills are files, of the home and of the workspace",
    "code_mode_host": "there is no code mode",
}
"""Options that are accepted, with the reason why they have no effect."""


def checked_status(options: Mapping[str, Any]) -> int | None:
    """Return the exit status of a process that does not serve, because its request is done, or because the settings are
    not as strict as requested. None if it serves.
    """
    for name, why in WITHOUT_EFFECT.items():
        if options.get(name):
            complain("app-server", f"--{name.replace('_', '-')} has no effect", why)
    strict, printing = options.get("strict_config"), options.get("print_startup_config")
    if not strict and not printing:
        return None
    problem = _problem(options, strict=bool(strict))
    if problem is not None:
        complain("app-server", problem)
        return 1
    if not printing:
        return None
    requirements = {"requirements": None}
    print(json.dumps({"appServerVersion": PROTOCOL_VERSION, "configRequirements": requirements}))  # noqa: T201
    return 0


def _problem(options: Mapping[str, Any], *, strict: bool) -> str | None:
    """Return the problem of the settings, or None. With `strict`, a setting that is unknown or ignored is a problem."""

    try:
        launch = parse_launch(options, os.environ)
        settings = UserSettings(
            home=launch.home, cwd=launch.cwd, cli=cli_overrides(launch), environment=launch.environment
        )
        warnings = settings.load().notices.warnings
    except (ValueError, ConfigError) as error:
        return str(error)
    return str(warnings[0]) if strict and warnings else None
