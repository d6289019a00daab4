"""The optional arguments of the methods that open threads and begin turns, as typed dictionaries.

The names are those of the protocol's parameters; a value that is not given is the server's to choose.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from protocol.base import Json
from protocol.policy import ReasoningSummary, SandboxMode
from protocol.v2.policy import AskForApproval, SandboxPolicy
from protocol.v2.settings import CollaborationMode, Personality
from protocol.v2.thread_open import DynamicToolSpec

Folder = str | os.PathLike[str]

ApprovalWord = Literal["untrusted", "on-request", "never"]
SandboxWord = Literal["read-only", "workspace-write", "danger-full-access"]


class OpenOptions(TypedDict, total=False):
    """Settings of a thread, however it is opened."""

    cwd: Folder
    model: str
    model_provider: str
    approval_policy: ApprovalWord | AskForApproval
    sandbox: SandboxWord | SandboxMode
    config: Mapping[str, Json]
    """Further settings, by their dotted names in the configuration."""
    base_instructions: str
    developer_instructions: str


class StartOptions(OpenOptions, total=False):
    """Settings of a new thread."""

    personality: Personality
    ephemeral: bool
    """Nothing of the thread is stored."""
    dynamic_tools: Sequence[DynamicToolSpec]
    """Tools of the client; the model's calls arrive as `ClientToolRequest`."""


class ForkOptions(OpenOptions, total=False):
    """Settings of a copy."""

    last_turn_id: str
    """The last turn that the copy has."""
    ephemeral: bool


class TurnOptions(TypedDict, total=False):
    """Settings for a turn and those after it."""

    cwd: Folder
    model: str
    effort: str
    """How hard the model thinks: `low`, `medium`, `high` or what else the provider knows."""
    summary: ReasoningSummary
    approval_policy: ApprovalWord | AskForApproval
    sandbox_policy: SandboxPolicy
    personality: Personality
    collaboration_mode: CollaborationMode
    output_schema: Json
    """A JSON Schema for the final message, of this turn only; `run(output=...)` also reads the message."""


class ListOptions(TypedDict, total=False):
    """Which stored threads are listed, and in which order."""

    search: str
    """A text that the thread's name or first message contains."""
    cwd: Folder
    archived: bool
    model_providers: Sequence[str]
    sort_key: Literal["created_at", "updated_at", "recency_at"]
    sort_direction: Literal["asc", "desc"]
    page_size: int


def as_parameters(options: Mapping[str, object]) -> dict[str, object]:
    """The options as fields of a model; paths as text."""
    return {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value for name, value in options.items()
    }
