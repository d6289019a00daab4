"""A JSON-RPC app server over stdio with a whole coding agent inside."""

__version__ = "0.60.0"

PROTOCOL_VERSION = "0.171.0"
"""Newest version of `codex app-server` whose API is supported. Clients read it from the user agent and from
`--version`, and derive from it what the server supports.
"""

STORED_VERSION = "0.58.0"
"""Version of `codex` in whose format conversations are stored; their first line names it."""
