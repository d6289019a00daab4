"""Instructions for the model: the files beside this one, in our own words."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def instruction_text(name: str) -> str:
    """The text of `name`.md."""
    return files(__name__).joinpath(f"{name}.md").read_text("utf-8")
