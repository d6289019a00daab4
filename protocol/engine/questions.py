"""What a client is asked besides consent, with answers that the conversation API has no words for; and the tools that
it brings to a conversation, which it is asked to run.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.base import EngineModel, omit_none
from protocol.records import dataclass
from protocol.responses import FunctionCallOutputContentItem
from protocol.structs import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallQuestion:
    """The model calls a tool that the client brought."""

    call_id: str
    tool: str
    namespace: str | None
    arguments: Json


@dataclass(frozen=True, slots=True)
class ToolCallAnswer:
    """What the tool came to, for the model."""

    success: bool
    content: tuple[FunctionCallOutputContentItem, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    label: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """One question of the model to the user, with answers to choose from; another one may be given as well."""

    id: str
    header: str
    text: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class UserInputQuestion:
    """The model asks the user."""

    call_id: str
    inquiries: tuple[Inquiry, ...]


@dataclass(frozen=True, slots=True)
class UserInputAnswer:
    """By the id of the inquiry."""

    answers: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class KeepRule:
    """The command is approved, and so is from now on every one that begins with these words, if its approval request
    proposed them.
    """

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllowFiles:
    """The patch is approved, and so is every later one of the session that changes none but its files."""


class ClientTool(EngineModel):
    """As the model is offered it, and as a conversation stores it."""

    name: str
    namespace: str | None = omit_none()
    """Groups tools. The model knows the tool by both names."""
    description: str
    input_schema: Json

    @property
    def offered_name(self) -> str:
        return self.name if self.namespace is None else f"{self.namespace}__{self.name}"
