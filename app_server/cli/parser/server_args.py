"""Arguments of commands that serve: `app-server`, which is what no command means, and `acp`."""

from __future__ import annotations

from typing import Final

from app_server.cli.parser.arguments import SERVER_OPTIONS, Subcommand

COMMANDS: Final = (
    Subcommand(
        "app-server",
        "serve stdin and stdout; the same as no command",
        SERVER_OPTIONS,
        None,
        "app-server",
        "app-server -c model=gpt-5 -s read-only   # with settings that go before config.toml",
    ),
    Subcommand(
        "acp",
        "serve stdin and stdout in the Agent Client Protocol",
        SERVER_OPTIONS,
        None,
        "app-server acp",
        "app-server acp -m gpt-5   # with another model",
    ),
)
