"""Arguments of commands that print facts: `features list` and `debug models`."""

from __future__ import annotations

from typing import Final

from app_server.cli.parser.arguments import SETTINGS, Subcommand, flag, one_shot

COMMANDS: Final = (
    Subcommand(
        "features list",
        "list the features, and which are on",
        [SETTINGS],
        one_shot("debug_commands", "list_features"),
        "app-server features list",
        "app-server features list --enable web_search_request   # as threads would have them with it",
    ),
    Subcommand(
        "debug models",
        "print the models with their context windows, as JSON",
        [SETTINGS, flag("--bundled", "print the catalogue of this version, whatever the provider serves")],
        one_shot("debug_commands", "list_models"),
        "app-server debug models",
        "app-server debug models --bundled   # as a beginning of a `model_catalog_json`",
        "app-server debug models -c model_provider=openai   # of another provider",
    ),
)
