"""Warnings that concern no thread, as text for a person. Pure."""

from __future__ import annotations

from app_server_protocol.v2 import server as wire

WARNINGS = {each.method: each for each in (wire.WARNING, wire.CONFIG_WARNING, wire.DEPRECATION_NOTICE)}
"""Notifications of warnings, by method."""


def plain_warning(event: object) -> str | None:
    """Return the warning of a notification as text for a person; None if it is no warning."""
    match event:
        case wire.WarningNotification(message=message):
            return message
        case wire.ConfigWarningNotification(summary=summary, details=details, path=path, range=place):
            where = f"{path}:{place.start.line}: " if path and place else ""
            return where + " ".join(filter(None, (summary, details)))
        case wire.DeprecationNoticeNotification(summary=summary, details=details):
            return " ".join(filter(None, (summary, details)))
        case _:
            return None
