"""The setting `approval_policy`: a word, or a table that says which kinds of questions reach the user. Pure."""

from __future__ import annotations

from app_server.core.config.settings_reader import SettingsReader
from protocol.policy import AskForApproval, QuestionKinds

KEY = "approval_policy"
TABLE = "granular"
_REQUIRED = ("sandbox_approval", "rules", "mcp_elicitations")
_OPTIONAL = ("skill_approval", "request_permissions")


def read_approval_policy(table: SettingsReader) -> tuple[AskForApproval | None, QuestionKinds | None]:
    """The policy, None where nothing is set, and the kinds if not all questions are asked. Raises SettingError."""
    value = table.table_or_text(KEY)
    if not isinstance(value, SettingsReader):
        return table.choice(KEY, AskForApproval), None
    if not value.has(TABLE):
        raise table.invalid(KEY, f"must be a word, or a table with `{TABLE}`")
    kinds = value.table(TABLE)
    switches: dict[str, bool] = {}
    for name in _REQUIRED:
        switch = kinds.flag(name)
        if switch is None:
            raise kinds.invalid(name, "must be true or false, and is missing")
        switches[name] = switch
    for name in _OPTIONAL:
        switches[name] = kinds.flag(name) or False
    return AskForApproval.ON_REQUEST, QuestionKinds(**switches)
