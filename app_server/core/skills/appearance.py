"""What a skill says of itself to clients, in `agents/openai.yaml` beside its SKILL.md: how to show it, and whether the
model may choose it by itself. Pure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from app_server.core.skills.front_matter import one_line
from app_server.core.skills.skill import SkillAppearance

SETTINGS_FILE = "agents/openai.yaml"
MAX_TEXT = 1024


def appearance(settings: Mapping[str, str], folder: str) -> SkillAppearance | None:
    """None where it says nothing. Icons are paths in the folder of the skill, whatever is there."""
    shown = SkillAppearance(
        display_name=_text(settings, "display_name"),
        short_description=_text(settings, "short_description"),
        icon_small=_icon(settings, "icon_small", folder),
        icon_large=_icon(settings, "icon_large", folder),
        brand_color=_text(settings, "brand_color"),
        default_prompt=_text(settings, "default_prompt"),
    )
    return None if shown == SkillAppearance() else shown


def is_implicit(settings: Mapping[str, str]) -> bool:
    return settings.get("policy.allow_implicit_invocation", "true").lower() != "false"


def _text(settings: Mapping[str, str], key: str) -> str | None:
    return one_line(settings.get(f"interface.{key}", ""))[:MAX_TEXT] or None


def _icon(settings: Mapping[str, str], key: str, folder: str) -> str | None:
    given = _text(settings, key)
    if given is None or os.path.isabs(given):
        return None
    path = os.path.normpath(os.path.join(folder, given))
    return path if path.startswith(f"{folder}/") else None
