"""The lasting settings of a thread, declared once, in `SettingsFields`. From the declaration come `ThreadSettings`, the
value that a turn runs with, and `SettingsPatch`, a change of some of its fields: by a request that opens a thread, by a
turn, or by what a stored thread had.

A new field is a line of the declaration. Everything on its way goes by the names of the declaration:

1. `patch_of` makes a patch of the parameters of a request;
2. `ThreadSettings.patched` applies a patch: to the configuration when a thread is opened, to the settings of an open
   one later;
3. `TurnContextItem` (`app_server_protocol.rollout`) stores the field of the same name with each turn, and gives it
   back as a patch when the thread is resumed, forked or loaded;
4. `struct_from` shows it in the shape of an API that has the field.

So a field is given to a function by its name only where an API or the rollout writes it in another form. Values whose
meaning depends on another field are in `COMPANIONS`, and in `ThreadSettings.patched`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum, StrEnum
from posixpath import join, normpath
from typing import Any, Final, Generic, Literal, Never, TypeVar

import msgspec
from msgspec import Struct

from app_server_protocol.outgoing import EngineStruct
from app_server_protocol.policy import (
    AskForApproval,
    QuestionKinds,
    ReadOnly,
    ReasoningSummary,
    SandboxPolicy,
    TurnMode,
    roots_beside,
    with_roots,
)
from app_server_protocol.values import replace

T = TypeVar("T")


class Unset(Enum):
    """Marker of a setting that is not given, for fields in which None has a meaning."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET

U = TypeVar("U")
"""Type of a field that is not given: `Unset` in a patch, `Never` in a value."""


class ModeSettings(Struct, frozen=True):
    kind: TurnMode = TurnMode.DEFAULT
    instructions: str | None = None
    """The client's own instructions for this mode; None stands for the server's."""


DEFAULT_MODE: Final = ModeSettings()


class PromptMode(StrEnum):
    APPEND = "append"
    """The text is a developer message beside the instructions of the server."""
    OVERRIDE = "override"
    """The text stands in for the instructions of the server."""


class SystemPrompt(EngineStruct):
    """Instructions for the model that a client gave for one session."""

    mode: PromptMode
    text: str


class SettingsFields(Struct, Generic[U], frozen=True, kw_only=True):
    """Declaration of the settings. The defaults are those of a value; in a patch, each field is UNSET by default."""

    cwd: str | U
    """Working directory. In a patch, a relative one is relative to the one before."""
    model: str | U = ""
    """Name of the model; empty if none was chosen: `engine.model.model_facts` finds the default when a thread opens."""
    effort: str | U | None = None
    """A value of `ReasoningEffort`, or another word that the provider has to understand; None for the model's own."""
    summary: ReasoningSummary | U | None = None
    """Summary of the reasoning; None for that of the model's row."""
    service_tier: str | U | None = None
    """Speed or price class of requests, which the model has, or `default`; None if none was chosen."""
    approval_policy: AskForApproval | U = AskForApproval.ON_REQUEST
    granular: QuestionKinds | U | None = None
    """Kinds of questions that may be asked; None for all that the approval policy has."""
    sandbox_policy: SandboxPolicy | U = ReadOnly()
    permission_profile: str | U | None = None
    """Name of the permission profile that the sandbox policy is; None if the sandbox was chosen in another way."""
    workspace_roots: tuple[str, ...] | U = ()
    """Folders besides the working directory that the client named; a policy with writable roots has them, too. In a
    patch, all folders of the client's workspace.
    """
    mode: ModeSettings | U = DEFAULT_MODE
    system_prompt: SystemPrompt | U | None = None
    """Instructions of the client that opened the session; None if it gave none."""


FIELDS: Final = SettingsFields.__struct_fields__
COMPANIONS: Final[Mapping[str, str]] = {
    "granular": "approval_policy",
    "permission_profile": "sandbox_policy",
}
"""Fields that complete another field, by their names: a patch without the other one does not change them, and a patch
with the other one alone resets them to None.
"""


RIGHTS: Final = ("approval_policy", "granular", "sandbox_policy", "permission_profile")
"""Fields about what the agent may do, and when the user is asked."""


class ThreadSettings(SettingsFields[Never], frozen=True, kw_only=True):
    """Settings of the next turn, and of later ones until they are changed."""

    def patched(self, patch: SettingsPatch) -> ThreadSettings:
        """Return the settings after a change."""
        given = patch.given()
        for companion, owner in COMPANIONS.items():
            if owner in given:
                given.setdefault(companion, None)
            else:
                given.pop(companion, None)
        cwd = normpath(join(self.cwd, given["cwd"])) if "cwd" in given else self.cwd
        roots, before = self.workspace_roots, () if "sandbox_policy" in given else self.workspace_roots
        if "workspace_roots" in given:
            roots = roots_beside(cwd, given["workspace_roots"])
        policy = with_roots(given.get("sandbox_policy", self.sandbox_policy), roots, before)
        return replace(self, **{**given, "cwd": cwd, "workspace_roots": roots, "sandbox_policy": policy})

    def part(self, names: Collection[str]) -> SettingsPatch:
        """Return the patch that gives the named fields the values that they have here."""
        return SettingsPatch(**{name: getattr(self, name) for name in names})

    def asks(self, about: Callable[[QuestionKinds], bool]) -> bool:
        """Return whether questions of this kind may be asked."""
        return self.granular is None or about(self.granular)


class _EachUnset(msgspec.StructMeta):
    """Makes UNSET the default of each declared field."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _EachUnset:
        fields = {"__annotations__": dict.fromkeys(FIELDS, "Any"), **dict.fromkeys(FIELDS, UNSET)}
        return super().__new__(mcls, name, bases, {**namespace, **fields}, **options)


class SettingsPatch(SettingsFields[Unset], frozen=True, kw_only=True, metaclass=_EachUnset):
    """A change of settings; a field that is UNSET is not changed."""

    cwd: str | Unset = UNSET

    def given(self) -> dict[str, Any]:
        """Return the fields that are not UNSET, by name."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not UNSET}

    def without(self, names: Collection[str]) -> SettingsPatch:
        """Return the patch without some fields."""
        return SettingsPatch(**{name: value for name, value in self.given().items() if name not in names})

    def over(self, lower: SettingsPatch) -> SettingsPatch:
        """Return both patches as one; where both give a field, this one counts."""
        given = self.given()
        replaced = (companion for companion, owner in COMPANIONS.items() if owner in given)
        return SettingsPatch(**{**lower.without((*replaced,)).given(), **given})


UNCHANGED: Final = SettingsPatch()


def or_unset(value: T | None) -> T | Literal[Unset.UNSET]:
    """Replace None by UNSET, for parameters in which None means that no value was given."""
    return UNSET if value is None else value


def patch_of(source: object, **converted: object) -> SettingsPatch:
    """Return the settings that `source` names in fields of the same names, in which None means that no value is given.
    `converted` are the fields that it has under other names or in other forms.
    """
    named = {name: or_unset(getattr(source, name, None)) for name in FIELDS if name not in converted}
    return SettingsPatch(**named, **converted)  # type: ignore[arg-type]  # by name
