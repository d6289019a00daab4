"""The overrides of the command line, as a layer of the settings. Fast to import."""

from __future__ import annotations

from app_server.engine.config.config_values import CliOverrides
from app_server.server.bootstrap.launch import ProcessOptions
from app_server_protocol.policy import AskForApproval


def cli_overrides(launch: ProcessOptions) -> CliOverrides:
    policy = launch.approval_policy
    return CliOverrides(
        settings=launch.settings,
        profile=launch.profile,
        model=launch.model,
        approval_policy=AskForApproval(policy) if policy else None,
        sandbox_mode=launch.sandbox_mode,
        writable_folders=launch.writable_folders,
        enable=launch.enable,
        disable=launch.disable,
    )
