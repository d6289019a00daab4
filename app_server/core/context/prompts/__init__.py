"""What the model is told about its work, in files beside this one; they are our own words."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def prompt(name: str) -> str:
    """The text of `name`.md."""
    return files(__name__).joinpath(f"{name}.md").read_text("utf-8")
