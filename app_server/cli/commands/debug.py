"""`app-server debug models`: facts for other programs."""

from __future__ import annotations

from app_server.cli.arguments import add_flag, add_settings
from app_server.cli.command_parser import CommandParser
from app_server.cli.commands import features

run = features.run


def add_arguments(parser: CommandParser) -> None:
    models = parser.add_command("models", "print the models with their context windows, as JSON")
    models.examples = (
        "app-server debug models",
        "app-server debug models --bundled   # as a beginning of a `model_catalog_json`",
        "app-server debug models -c model_provider=openai   # of another provider",
    )
    add_settings(models)
    add_flag(models, "--bundled", help="print the catalogue of this version, whatever the provider serves")
