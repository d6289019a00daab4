"""What a skill is: a folder with a `SKILL.md` that says what it is for. Nothing here reads files."""

from __future__ import annotations

from enum import Enum

from protocol.records import dataclass

SKILL_FILE = "SKILL.md"


class SkillOwner(Enum):
    """Whose skill it is; the value is its rank in lists."""

    REPOSITORY = 0
    """The project's."""
    USER = 1
    """The user's, in their home or in a folder that the client named."""
    SYSTEM = 2
    """Installed into the home by a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillAppearance:
    """How clients show a skill."""

    display_name: str | None = None
    short_description: str | None = None
    icon_small: str | None = None
    """An absolute path in the skill's folder, as `icon_large`."""
    icon_large: str | None = None
    brand_color: str | None = None
    default_prompt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    name: str
    """One line."""
    description: str
    """One line: when to use it."""
    short_description: str | None = None
    """For clients."""
    path: str
    """Of its SKILL.md, without links."""
    owner: SkillOwner
    enabled: bool = True
    implicit: bool = True
    """Whether the model may choose it by itself; else only the user hands it over."""
    appearance: SkillAppearance | None = None
    inside: str | None = None
    """The real folder that its files may not lead out of; None: the user's own may."""


@dataclass(frozen=True, slots=True)
class SkillProblem:
    """A SKILL.md that is no skill, and why."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class SkillSet:
    """What there is for one working directory, in the order of lists."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[SkillProblem, ...] = ()

    def usable(self, path: str) -> Skill | None:
        """The skill with this SKILL.md, if it is switched on."""
        return next((skill for skill in self.skills if skill.enabled and skill.path == path), None)
