"""The images that `--image` names."""

from __future__ import annotations

from collections.abc import Iterable

from app_server.client.command_line import InvalidCommandLine
from app_server.client.failures import InvalidArgument
from app_server.client.options import image
from app_server_protocol.v2.item_parts import UserInput


def images(paths: Iterable[str]) -> list[UserInput]:
    """Return the images. Raises InvalidCommandLine."""
    try:
        return [image(path) for path in paths]
    except InvalidArgument as error:
        raise InvalidCommandLine(f"--image: {error}") from None
