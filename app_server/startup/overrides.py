"""The settings of the process and of a request, under the overrides of the command line. Fast to import."""

from __future__ import annotations

from app_server.core.config.settings import load_config
from app_server.core.config.types import CliOverrides, Config, SettingsPlace
from app_server.startup.launch import Launch
from protocol.policy import AskForApproval


def launched_settings(launch: Launch) -> Config:
    """Load the settings of a conversation that asks for nothing. Raises ConfigError."""
    cli, environment = cli_overrides(launch), launch.environment
    return load_config(SettingsPlace(home=launch.home, cwd=launch.cwd, cli=cli, environment=environment))


def cli_overrides(launch: Launch) -> CliOverrides:
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
