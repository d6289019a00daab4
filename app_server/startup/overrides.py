"""The settings of the process and of a request, under the overrides of the command line. Fast to import."""

from __future__ import annotations

from app_server.core.config.settings import load_config
from app_server.core.config.types import CliOverrides, Config, RequestOverrides
from app_server.startup.launch import Launch
from protocol.policy import AskForApproval


def settings_of_request(launch: Launch, request: RequestOverrides) -> Config:
    """As the full server loads them. Raises ConfigError."""
    return load_config(
        launch.home,
        cwd=launch.cwd,
        cli=cli_overrides(launch),
        request=request,
        env=launch.environment,
    )


def cli_overrides(launch: Launch) -> CliOverrides:
    policy = launch.approval_policy
    return CliOverrides(
        settings=launch.settings,
        profile=launch.profile,
        model=launch.model,
        approval_policy=AskForApproval(policy) if policy else None,
        sandbox_mode=launch.sandbox_mode,
        enable=launch.enable,
        disable=launch.disable,
    )
