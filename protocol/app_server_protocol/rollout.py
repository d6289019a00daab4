"""The lines of a stored conversation: one JSON object each, `{"timestamp", "type", "payload"}`. And the prefixes of
messages that a server adds to a history in the name of the user.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from msgspec import Struct
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

from app_server_protocol.encoding import Json
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.engine.thread_settings import (
    UNSET,
    ModeSettings,
    SettingsPatch,
    SystemPrompt,
    ThreadSettings,
    or_unset,
    patch_of,
)
from app_server_protocol.ids import ConversationId, SessionOrigin
from app_server_protocol.outgoing import EngineStruct, always_written, struct_from
from app_server_protocol.policy import (
    MAX_EFFORT_LENGTH,
    AskForApproval,
    QuestionKinds,
    ReasoningSummary,
    TurnMode,
    known_effort,
    without_profile,
)
from app_server_protocol.responses import ResponseItem, is_response_item
from app_server_protocol.wire_fields import StoredSandboxPolicy

if TYPE_CHECKING:
    from app_server_protocol.events.msg import EventMsg


class SubAgentKind(StrEnum):
    REVIEW = "review"
    COMPACT = "compact"


class OtherSubAgent(EngineStruct):
    other: str


SubAgentSource = TypeAliasType("SubAgentSource", SubAgentKind | OtherSubAgent)


class SubagentSessionSource(EngineStruct):
    subagent: SubAgentSource


SessionSource = TypeAliasType("SessionSource", SessionOrigin | SubagentSessionSource)


class GitInfo(EngineStruct, omit_defaults=True):
    """State of the working directory's repository when the conversation began."""

    commit_hash: str | None = None
    branch: str | None = None
    repository_url: str | None = None


class SessionMeta(EngineStruct, omit_defaults=True):
    """Facts of a conversation: who began it, where and with what."""

    id: ConversationId
    timestamp: str
    cwd: str
    originator: str
    cli_version: str
    instructions: str | None = always_written(None)
    source: SessionSource = always_written(SessionOrigin.VSCODE)
    model_provider: str | None = always_written(None)
    client_tools: tuple[ClientTool, ...] | None = None
    """Tools that the client brought, for the model of this conversation."""


class SessionMetaLine(SessionMeta, omit_defaults=True):
    """The first line of a stored conversation: the meta data, with git's where there is a repository."""

    git: GitInfo | None = None
    session_id: SkipJsonSchema[str | None] = None
    """In the paginated form; that of the conversation."""
    history_mode: SkipJsonSchema[str | None] = None
    """The form of the lines: `paginated`, or None and `legacy` for the older one."""
    forked_from_id: str | None = None
    """The conversation that it began as a copy of."""
    base_instructions: SkipJsonSchema[Json] = None
    """The instructions of codex, in its files and in copies of them: `{"text": …}`."""

    @property
    def base_text(self) -> str | None:
        text = self.base_instructions.get("text") if isinstance(self.base_instructions, dict) else None
        return text if isinstance(text, str) else None


PAGINATED: Final = "paginated"
"""The `history_mode` of a file whose lines are numbered and whose items are lines."""


class CompactedItem(EngineStruct, omit_defaults=True):
    """The history before this line was replaced by a summary (or, where given, by these items)."""

    message: str
    replacement_history: tuple[ResponseItem, ...] | None = None


class StoredProfile(EngineStruct):
    """A permission profile by its name."""

    id: str
    extends: str | None = None


class TurnContextItem(EngineStruct, omit_defaults=True):
    """The settings that a request to the model was made with."""

    cwd: str
    approval_policy: AskForApproval
    granular: QuestionKinds | None = None
    """Of `on-request`: which kinds of its questions reach the user."""
    turn_id: SkipJsonSchema[str | None] = None
    """None in files of codex 0.58."""
    active_permission_profile: SkipJsonSchema[StoredProfile | None] = None
    """The permission profile that the sandbox policy is, if it is one. What its name means the settings say."""
    permission_profile: SkipJsonSchema[Json] = None
    """What it was in this turn, as codex writes it. Earlier versions stored the name here."""
    sandbox_policy: StoredSandboxPolicy
    model: str
    effort: str | None = None
    further_effort: SkipJsonSchema[str | None] = None
    """The effort in the client's word, where codex 0.58 has none for it."""
    summary: ReasoningSummary = always_written(ReasoningSummary.AUTO)
    mode: TurnMode | None = None
    mode_instructions: str | None = None
    """The client's own for the mode."""
    service_tier: SkipJsonSchema[str | None] = None
    """The client's choice of a speed or price class."""
    system_prompt: SkipJsonSchema[SystemPrompt | None] = None
    """The client's own instructions; None if it gave none."""

    @classmethod
    def of(cls, settings: ThreadSettings, **others: Json) -> Self:
        """Return the line of a turn with these settings: what both have under the same name, the fields that codex
        0.58 writes in another form, and `others`, which the settings alone do not tell.
        """
        effort, mode = known_effort(settings.effort), settings.mode
        fields: dict[str, Json] = {
            "sandbox_policy": without_profile(settings.sandbox_policy, settings.cwd),
            "effort": effort,
            "further_effort": None if effort == settings.effort else settings.effort,
            "summary": settings.summary or ReasoningSummary.AUTO,
            "mode": None if mode.kind is TurnMode.DEFAULT else mode.kind,
            "mode_instructions": mode.instructions,
        }
        return struct_from(cls, settings, **{**fields, **others})

    def patch(self) -> SettingsPatch:
        """Return the settings with which a thread goes on after this turn. The summary is not restored: the line has
        one even if none was chosen. Foreign files may have an effort that no setting can have.
        """
        effort = self.chosen_effort or None
        known = bool(self.model) and len(effort or "") <= MAX_EFFORT_LENGTH
        return patch_of(
            self,
            cwd=self.cwd if self.cwd.startswith("/") else UNSET,
            model=self.model or UNSET,
            effort=effort if known else UNSET,
            summary=UNSET,
            service_tier=self.service_tier or UNSET,
            permission_profile=or_unset(self.profile_id),
            mode=ModeSettings(self.mode or TurnMode.DEFAULT, self.mode_instructions),
        )

    @property
    def profile_id(self) -> str | None:
        """Name of the permission profile; None if there is none."""
        if self.active_permission_profile is not None:
            return self.active_permission_profile.id
        return self.permission_profile if isinstance(self.permission_profile, str) else None

    @property
    def chosen_effort(self) -> str | None:
        return self.further_effort or self.effort


class StoredEvent(Struct, frozen=True):
    """An event as a rollout stores it: the legacy event, which every reader knows, and additional fields, which other
    readers ignore.
    """

    type: str
    body: bytes
    """The legacy event as JSON; or an object with its `type` only, for a kind that older readers do not know."""
    extra: Mapping[str, Json]

    def to_json(self) -> bytes:
        if not self.extra:
            return self.body
        return self.body[:-1] + b"," + json.dumps(self.extra, separators=(",", ":")).encode("ascii")[1:]


RolloutItem: TypeAlias = (
    "SessionMetaLine | ResponseItem | CompactedItem | TurnContextItem | EventMsg | StoredEvent"
)
LineType = Literal["session_meta", "response_item", "compacted", "turn_context", "event_msg"]


def stored_line(timestamp: str, payload: RolloutItem) -> bytes:
    """Return one line of a stored conversation, without its line end."""
    head = f'{{"timestamp":{json.dumps(timestamp)},"type":"{line_type(payload)}","payload":'
    return head.encode() + payload.to_json() + b"}"


_ORDINAL: Final = re.compile(rb'(\{"timestamp":"[^"\\]{0,40}",)(?:"ordinal":\d{1,15},)?')


def numbered(line: bytes, ordinal: int) -> bytes:
    """Return a stored line with its number in a file of the paginated form. A line in an unusual form is
    not changed.
    """
    match = _ORDINAL.match(line)
    return line if match is None else b'%b"ordinal":%d,%b' % (match[1], ordinal, line[match.end() :])


def line_type(payload: RolloutItem) -> LineType:
    match payload:
        case SessionMetaLine():
            return "session_meta"
        case CompactedItem():
            return "compacted"
        case TurnContextItem():
            return "turn_context"
        case StoredEvent():
            return "event_msg"
        case _:
            return "response_item" if is_response_item(payload) else "event_msg"


def utc_timestamp(moment: datetime) -> str:
    """Return a timestamp in the form of stored lines: UTC with milliseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


# These prefixes identify such messages later, also in conversations that codex stored, which uses the same ones:
# previews and compactions use only the messages that the user wrote.
ENVIRONMENT_HEAD: Final = "<environment_context>"
AGENTS_HEAD: Final = "# AGENTS.md instructions for "
OLD_AGENTS_HEAD: Final = "<user_instructions>"
"""Prefix that earlier versions of codex use."""
USER_SHELL_HEAD: Final = "<user_shell_command>"
SKILL_HEAD: Final = "<skill>\n"
MENTION_HEAD: Final = "<mention>\n"
REVIEW_HEAD: Final = "<user_action>"
"""Prefix of the message that tells the model the result of a review."""
HOOK_PROMPT_HEAD: Final = "<hook_prompt "
"""Prefix of words of hooks, because of which a turn went on."""
GOAL_HEAD: Final = '<codex_internal_context source="goal">\n'

# Prefixes of developer messages:
MODE_HEAD: Final = "<mode_instructions>"
"""Prefix of this server's message about the mode in which the model works with the user."""
CODEX_MODE_HEAD: Final = "<collaboration_mode>"
"""Prefix of codex's message about the same."""
SESSION_HEAD: Final = "<session_instructions>"
"""Prefix of the message with the instructions that a client appended for the session."""

_HEADS: Final = (
    *(ENVIRONMENT_HEAD, AGENTS_HEAD, OLD_AGENTS_HEAD, USER_SHELL_HEAD, SKILL_HEAD, MENTION_HEAD, REVIEW_HEAD),
    *(GOAL_HEAD, HOOK_PROMPT_HEAD),
)


def is_injected(text: str) -> bool:
    """Return whether the server wrote this user message."""
    return text.lstrip().startswith(_HEADS)
