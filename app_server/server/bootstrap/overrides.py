"""The overrides of the command line, as a layer of the settings. Fast to import."""

from __future__ import annotations

import json

from app_server.engine.config.config_values import CliOverrides
from app_server.server.bootstrap.launch import ProcessOptions
from app_server_protocol.policy import AskForApproval


def cli_overrides(launch: ProcessOptions) -> CliOverrides:
    """Return the layer of a command line. Its named options are settings, over those of `-c`. Raises ValueError for an
    unknown approval policy.
    """
    policy = launch.approval_policy
    named = {
        "model": launch.model,
        "approval_policy": str(AskForApproval(policy)) if policy else None,
        "sandbox_mode": launch.sandbox_mode,
    }
    # A JSON string is a string in TOML, too.
    as_settings = (
        (key, json.dumps(text, ensure_ascii=False)) for key, text in named.items() if text is not None
    )
    return CliOverrides(
        settings=(*launch.settings, *as_settings),
        profile=launch.profile,
        writable_folders=launch.writable_folders,
        enable=launch.enable,
        disable=launch.disable,
    )
