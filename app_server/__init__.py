"""A JSON-RPC app server over stdio with a whole coding agent inside."""

__version__ = "0.58.0"
