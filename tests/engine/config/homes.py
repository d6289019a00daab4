"""Settings of a home that tests write and load."""

from collections.abc import Mapping
from pathlib import Path

from app_server.engine.config.config_values import CliOverrides, Config, RequestOverrides, SettingsSource
from app_server.engine.config.settings_service import load_config


def load(
    home: Path,
    text: str | None = None,
    cli: CliOverrides | None = None,
    request: RequestOverrides | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Config:
    """Load the configuration of a conversation. `text` is written to the file; None leaves the file unchanged."""
    if text is not None:
        (home / "config.toml").write_text(text, encoding="utf-8")
    place = SettingsSource(home=home, cwd=cwd or home, cli=cli or CliOverrides(), environment=env or {})
    return load_config(place, request or RequestOverrides())
