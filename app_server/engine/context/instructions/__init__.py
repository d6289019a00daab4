"""Instructions for the model: the files beside this one, in our own words."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def instruction_text(name: str) -> str:
    """Read the text of `name`.md."""
    return Path(__file__).with_name(f"{name}.md").read_text("utf-8")
