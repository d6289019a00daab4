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


@dataclass(frozen=True, slots=True)
class Capabilities:
    elicitation: bool = False
    """Answers `elicitationRequest` of the conversation API."""
    experimental_api: bool = False
    opted_out: tuple[str, ...] = ()
    """Methods of notifications that are not wanted."""


def parse_capabilities(raw: Mapping[str, Json] | None) -> Capabilities:
    """Read what is known. Unknown names and values of another shape are ignored: to other servers they mean something,
    and a client that cannot even initialize is of no use to its user.
    """
    given = raw or {}
    opted_out = given.get("optOutNotificationMethods")
    return Capabilities(
        elicitation=given.get("elicitation") is True,
        experimental_api=given.get("experimentalApi") is True,
        opted_out=tuple(name for name in opted_out if isinstance(name, str))
        if isinstance(opted_out, list)
        else (),
    )


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
