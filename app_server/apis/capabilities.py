"""What a client announces in `initialize`, and what it is answered. Imports nothing that takes time."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json


class InvalidCapability(ValueError):
    """A capability that is known has a value of another type; its name is the argument."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    elicitation: bool = False
    """Answers `elicitationRequest` of the conversation API."""
    experimental_api: bool = False
    opted_out: tuple[str, ...] = ()
    """Methods of notifications that are not wanted."""


def parse_capabilities(raw: Mapping[str, Json] | None) -> Capabilities:
    """Unknown names are ignored. Raises InvalidCapability."""
    given = raw or {}
    opted_out = given.get("optOutNotificationMethods")
    if opted_out is not None and not (
        isinstance(opted_out, list) and all(isinstance(each, str) for each in opted_out)
    ):
        raise InvalidCapability("optOutNotificationMethods")
    if "elicitation" in given and given["elicitation"] is None:  # the conversation API has no null here
        raise InvalidCapability("elicitation")
    return Capabilities(_flag(given, "elicitation"), _flag(given, "experimentalApi"), tuple(opted_out or ()))


def _flag(given: Mapping[str, Json], name: str) -> bool:
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise InvalidCapability(name)
    return bool(value)


def initialize_result(user_agent: str, home: Path, *, capabilities: bool) -> bytes:
    """Clients of the conversation API get the user agent alone. Those that announce capabilities are of a newer kind,
    and need to know the server's home and platform (docs/adr/0029).
    """
    result = {"userAgent": user_agent}
    if capabilities:
        result |= {"codexHome": str(home), "platformFamily": "unix", "platformOs": platform_os()}
    return json.dumps(result, separators=(",", ":")).encode("ascii")


def platform_os() -> str:
    return "macos" if sys.platform == "darwin" else "linux"
