"""The names of built-in tools, which are loaded for them only where somebody else has tools, too."""

from __future__ import annotations

from app_server.core.lazy import Lazy


def _load_builtin() -> frozenset[str]:
    from app_server.core.tools.registry import BUILTIN_NAMES  # noqa: PLC0415 - all tools hang on it

    return BUILTIN_NAMES


def _load_reserved() -> frozenset[str]:
    from app_server.core.tools.registry import RESERVED_NAMES  # noqa: PLC0415 - the same

    return RESERVED_NAMES


BUILTIN = Lazy(_load_builtin)
"""Names that MCP tools cannot take."""

RESERVED = Lazy(_load_reserved)
"""Names that tools of a client cannot take."""
