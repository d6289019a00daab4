"""Where the user's custom prompts are. Fast to import."""

from __future__ import annotations

FOLDER = "prompts"
"""Relative to the home of the server."""
