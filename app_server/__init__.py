"""A JSON-RPC app server over stdio with a whole coding agent inside."""

__version__ = "0.60.0"

PROTOCOL_VERSION = "0.169.0"
"""The newest `codex app-server` whose API is spoken. Clients read it from the user agent and from `--version`, and
decide by it what they may ask for; stored conversations carry it too."""
