"""What the server says of its own accord."""

from typing import Final

from protocol.table import AnyServerNotification, ServerNotification
from protocol.v2 import (
    account,
    commands,
    errors,
    files,
    item_events,
    limits,
    mcp,
    search,
    settings,
    skills,
    thread_events,
    turn,
)

THREAD_STARTED: Final = ServerNotification(
    "thread/started", thread_events.ThreadStartedNotification, "A thread was begun, forked or brought back."
)
THREAD_STATUS_CHANGED: Final = ServerNotification(
    "thread/status/changed",
    thread_events.ThreadStatusChangedNotification,
    "A thread is idle, busy, waiting for an answer, in trouble or no longer open.",
)
THREAD_ARCHIVED: Final = ServerNotification(
    "thread/archived", thread_events.ThreadArchivedNotification, "A thread went to the archive."
)
THREAD_UNARCHIVED: Final = ServerNotification(
    "thread/unarchived", thread_events.ThreadUnarchivedNotification, "A thread came back from the archive."
)
THREAD_DELETED: Final = ServerNotification(
    "thread/deleted", thread_events.ThreadDeletedNotification, "A thread was deleted."
)
THREAD_CLOSED: Final = ServerNotification(
    "thread/closed", thread_events.ThreadClosedNotification, "A thread that nobody used is no longer open."
)
THREAD_REVERTED: Final = ServerNotification(
    "thread/reverted", thread_events.ThreadRevertedNotification, "The end of a thread was cut off."
)
THREAD_NAME_UPDATED: Final = ServerNotification(
    "thread/name/updated", thread_events.ThreadNameUpdatedNotification, "A thread has another name."
)
THREAD_SETTINGS_UPDATED: Final = ServerNotification(
    "thread/settings/updated", settings.ThreadSettingsUpdatedNotification, "The settings of a thread changed."
)
THREAD_TOKEN_USAGE_UPDATED: Final = ServerNotification(
    "thread/tokenUsage/updated",
    thread_events.ThreadTokenUsageUpdatedNotification,
    "What the thread has used, after each answer of the model.",
)
THREAD_GOAL_UPDATED: Final = ServerNotification(
    "thread/goal/updated", thread_events.ThreadGoalUpdatedNotification, "The goal of a thread changed."
)
THREAD_GOAL_CLEARED: Final = ServerNotification(
    "thread/goal/cleared", thread_events.ThreadGoalClearedNotification, "A thread has no goal any more."
)
THREAD_COMPACTED: Final = ServerNotification(
    "thread/compacted",
    item_events.ContextCompactedNotification,
    "The older form of the item `contextCompaction`.",
)
TURN_STARTED: Final = ServerNotification(
    "turn/started",
    turn.TurnStartedNotification,
    "A turn begins; after the answer to the request that began it.",
)
TURN_COMPLETED: Final = ServerNotification(
    "turn/completed",
    turn.TurnCompletedNotification,
    "A turn ended, in whatever way. Once per turn, and the last of its notifications.",
)
TURN_DIFF_UPDATED: Final = ServerNotification(
    "turn/diff/updated", turn.TurnDiffUpdatedNotification, "The changes of the turn so far."
)
TURN_PLAN_UPDATED: Final = ServerNotification(
    "turn/plan/updated", turn.TurnPlanUpdatedNotification, "The model changed its plan."
)
ERROR: Final = ServerNotification("error", errors.ErrorNotification, "Something failed within a turn.")
ITEM_STARTED: Final = ServerNotification(
    "item/started", item_events.ItemStartedNotification, "An item begins."
)
ITEM_COMPLETED: Final = ServerNotification(
    "item/completed", item_events.ItemCompletedNotification, "An item ended."
)
ITEM_AGENT_MESSAGE_DELTA: Final = ServerNotification(
    "item/agentMessage/delta", item_events.AgentMessageDeltaNotification, "A piece of what the model says."
)
ITEM_PLAN_DELTA: Final = ServerNotification(
    "item/plan/delta", item_events.PlanDeltaNotification, "A piece of the plan that the model proposes."
)
ITEM_REASONING_SUMMARY_PART_ADDED: Final = ServerNotification(
    "item/reasoning/summaryPartAdded",
    item_events.ReasoningSummaryPartAddedNotification,
    "Another part of the summary of what the model thinks.",
)
ITEM_REASONING_SUMMARY_TEXT_DELTA: Final = ServerNotification(
    "item/reasoning/summaryTextDelta",
    item_events.ReasoningSummaryTextDeltaNotification,
    "A piece of that summary.",
)
ITEM_REASONING_TEXT_DELTA: Final = ServerNotification(
    "item/reasoning/textDelta",
    item_events.ReasoningTextDeltaNotification,
    "A piece of what the model thinks, where it is shown.",
)
ITEM_COMMAND_EXECUTION_OUTPUT_DELTA: Final = ServerNotification(
    "item/commandExecution/outputDelta",
    item_events.CommandExecutionOutputDeltaNotification,
    "A piece of a command's output, as text.",
)
ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION: Final = ServerNotification(
    "item/commandExecution/terminalInteraction",
    item_events.TerminalInteractionNotification,
    "The model wrote to a command.",
)
ITEM_FILE_CHANGE_OUTPUT_DELTA: Final = ServerNotification(
    "item/fileChange/outputDelta",
    item_events.FileChangeOutputDeltaNotification,
    "A piece of what applying a patch printed.",
)
ITEM_FILE_CHANGE_PATCH_UPDATED: Final = ServerNotification(
    "item/fileChange/patchUpdated",
    item_events.FileChangePatchUpdatedNotification,
    "The patch so far, while the model writes it.",
)
ITEM_MCP_TOOL_CALL_PROGRESS: Final = ServerNotification(
    "item/mcpToolCall/progress", item_events.McpToolCallProgressNotification, "A tool says how far it is."
)
SERVER_REQUEST_RESOLVED: Final = ServerNotification(
    "serverRequest/resolved",
    item_events.ServerRequestResolvedNotification,
    "A question needs no answer any more.",
)
MCP_SERVER_STARTUP_STATUS_UPDATED: Final = ServerNotification(
    "mcpServer/startupStatus/updated",
    mcp.McpServerStatusUpdatedNotification,
    "A server of a thread starts, is ready or failed.",
)
MCP_SERVER_OAUTH_LOGIN_COMPLETED: Final = ServerNotification(
    "mcpServer/oauthLogin/completed",
    mcp.McpServerOauthLoginCompletedNotification,
    "A login at a server ended.",
)
ACCOUNT_UPDATED: Final = ServerNotification(
    "account/updated", account.AccountUpdatedNotification, "After a login or a logout."
)
ACCOUNT_LOGIN_COMPLETED: Final = ServerNotification(
    "account/login/completed",
    account.AccountLoginCompletedNotification,
    "A login succeeded, failed or timed out.",
)
ACCOUNT_RATE_LIMITS_UPDATED: Final = ServerNotification(
    "account/rateLimits/updated",
    limits.AccountRateLimitsUpdatedNotification,
    "How much of the account is used up.",
)
SKILLS_CHANGED: Final = ServerNotification(
    "skills/changed", skills.SkillsChangedNotification, "The skills changed; ask again."
)
FS_CHANGED: Final = ServerNotification(
    "fs/changed", files.FsChangedNotification, "Something changed below a watched path."
)
FUZZY_FILE_SEARCH_SESSION_UPDATED: Final = ServerNotification(
    "fuzzyFileSearch/sessionUpdated",
    search.FuzzyFileSearchSessionUpdatedNotification,
    "What a search has found so far.",
)
FUZZY_FILE_SEARCH_SESSION_COMPLETED: Final = ServerNotification(
    "fuzzyFileSearch/sessionCompleted",
    search.FuzzyFileSearchSessionCompletedNotification,
    "A search has looked at everything.",
)
COMMAND_EXEC_OUTPUT_DELTA: Final = ServerNotification(
    "command/exec/outputDelta",
    commands.CommandExecOutputDeltaNotification,
    "A piece of the output of a client's command.",
)
WARNING: Final = ServerNotification(
    "warning", errors.WarningNotification, "Something that the user should know, and that ends nothing."
)
DEPRECATION_NOTICE: Final = ServerNotification(
    "deprecationNotice", errors.DeprecationNoticeNotification, "Something that will not work for ever."
)
CONFIG_WARNING: Final = ServerNotification(
    "configWarning", errors.ConfigWarningNotification, "Something in the configuration was not understood."
)

NOTIFICATIONS: Final[tuple[AnyServerNotification, ...]] = (
    THREAD_STARTED,
    THREAD_STATUS_CHANGED,
    THREAD_ARCHIVED,
    THREAD_UNARCHIVED,
    THREAD_DELETED,
    THREAD_CLOSED,
    THREAD_REVERTED,
    THREAD_NAME_UPDATED,
    THREAD_SETTINGS_UPDATED,
    THREAD_TOKEN_USAGE_UPDATED,
    THREAD_GOAL_UPDATED,
    THREAD_GOAL_CLEARED,
    THREAD_COMPACTED,
    TURN_STARTED,
    TURN_COMPLETED,
    TURN_DIFF_UPDATED,
    TURN_PLAN_UPDATED,
    ERROR,
    ITEM_STARTED,
    ITEM_COMPLETED,
    ITEM_AGENT_MESSAGE_DELTA,
    ITEM_PLAN_DELTA,
    ITEM_REASONING_SUMMARY_PART_ADDED,
    ITEM_REASONING_SUMMARY_TEXT_DELTA,
    ITEM_REASONING_TEXT_DELTA,
    ITEM_COMMAND_EXECUTION_OUTPUT_DELTA,
    ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION,
    ITEM_FILE_CHANGE_OUTPUT_DELTA,
    ITEM_FILE_CHANGE_PATCH_UPDATED,
    ITEM_MCP_TOOL_CALL_PROGRESS,
    SERVER_REQUEST_RESOLVED,
    MCP_SERVER_STARTUP_STATUS_UPDATED,
    MCP_SERVER_OAUTH_LOGIN_COMPLETED,
    ACCOUNT_UPDATED,
    ACCOUNT_LOGIN_COMPLETED,
    ACCOUNT_RATE_LIMITS_UPDATED,
    SKILLS_CHANGED,
    FS_CHANGED,
    FUZZY_FILE_SEARCH_SESSION_UPDATED,
    FUZZY_FILE_SEARCH_SESSION_COMPLETED,
    COMMAND_EXEC_OUTPUT_DELTA,
    WARNING,
    DEPRECATION_NOTICE,
    CONFIG_WARNING,
)
