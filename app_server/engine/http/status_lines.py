"""Statuses of HTTP in words. Imported as a module, so that it is loaded with the first failure only."""

from __future__ import annotations

from http import HTTPStatus


def status_line(status: int) -> str:
    """Return a status with its reason: `404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} <unknown status code>"
