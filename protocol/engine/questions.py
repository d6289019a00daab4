"""Questions to a client that are not about consent, and answers that the conversation API has no words for.

A question is emitted as an event; its answer comes back as `ClientAnswer`, an operation. An answer of None is none: the
client refused, or nobody is there who could be asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.base import Json
from protocol.records import dataclass
from protocol.responses import FunctionCallOutputContentItem


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


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """An operation: the answer to the question with this id in this turn."""

    operation_id: str
    call_id: str
    answer: ToolCallAnswer | UserInputAnswer | KeepRule | AllowFiles | None
