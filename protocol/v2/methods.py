"""The table of the thread API: every method of it, once, in the order of the documentation.

The rows are beside the shapes that they name. Nothing else spells these methods' names.
"""

from typing import Final

from protocol.table import Api, Table, by_method
from protocol.v2 import (
    account,
    approval,
    commands,
    config,
    files,
    item_events,
    mcp,
    models,
    question,
    server,
    settings,
    skills,
    thread,
    thread_open,
    thread_store,
    thread_work,
    turn,
)

TABLE: Final = Table(
    api=Api.V2,
    client_requests=by_method(
        (
            server.INITIALIZE,
            *(models.MODEL_LIST, models.MODEL_PROVIDER_LIST, models.MODEL_PROVIDER_CAPABILITIES_READ),
            *(models.EXPERIMENTAL_FEATURE_LIST, models.EXPERIMENTAL_FEATURE_ENABLEMENT_SET),
            *(settings.PERMISSION_PROFILE_LIST, settings.COLLABORATION_MODE_LIST),
            *(skills.SKILLS_LIST, skills.SKILLS_EXTRA_ROOTS_SET, skills.SKILLS_CONFIG_WRITE),
            *(account.ACCOUNT_READ, account.ACCOUNT_LOGIN_START, account.ACCOUNT_LOGIN_CANCEL),
            *(account.ACCOUNT_LOGOUT, account.ACCOUNT_RATE_LIMITS_READ),
            *(config.CONFIG_READ, config.CONFIG_VALUE_WRITE, config.CONFIG_BATCH_WRITE),
            config.CONFIG_REQUIREMENTS_READ,
            *(thread_open.THREAD_START, thread_open.THREAD_RESUME, thread_open.THREAD_FORK),
            thread_open.THREAD_UNSUBSCRIBE,
            *(thread_store.THREAD_READ, thread_store.THREAD_TURNS_LIST, thread_store.THREAD_ITEMS_LIST),
            *(thread_store.THREAD_LIST, thread_store.THREAD_SEARCH, thread_store.THREAD_LOADED_LIST),
            *(thread_store.THREAD_ARCHIVE, thread_store.THREAD_UNARCHIVE, thread_store.THREAD_DELETE),
            *(thread_store.THREAD_NAME_SET, thread_store.THREAD_METADATA_UPDATE, thread_store.THREAD_REVERT),
            settings.THREAD_SETTINGS_UPDATE,
            *(thread_work.THREAD_COMPACT_START, thread_work.THREAD_INJECT_ITEMS),
            *(thread_work.THREAD_SHELL_COMMAND, thread_work.THREAD_BACKGROUND_TERMINALS_LIST),
            thread_work.THREAD_BACKGROUND_TERMINALS_TERMINATE,
            *(thread_work.THREAD_BACKGROUND_TERMINALS_CLEAN, thread_work.THREAD_GOAL_SET),
            *(thread_work.THREAD_GOAL_GET, thread_work.THREAD_GOAL_CLEAR),
            *(turn.TURN_START, turn.TURN_STEER, turn.TURN_INTERRUPT, turn.REVIEW_START),
            *(files.FS_READ_FILE, files.FS_WRITE_FILE, files.FS_CREATE_DIRECTORY, files.FS_GET_METADATA),
            *(files.FS_READ_DIRECTORY, files.FS_REMOVE, files.FS_COPY, files.FS_WATCH, files.FS_UNWATCH),
            *(files.FUZZY_FILE_SEARCH, files.FUZZY_FILE_SEARCH_SESSION_START),
            *(files.FUZZY_FILE_SEARCH_SESSION_UPDATE, files.FUZZY_FILE_SEARCH_SESSION_STOP),
            *(commands.COMMAND_EXEC, commands.COMMAND_EXEC_WRITE, commands.COMMAND_EXEC_RESIZE),
            commands.COMMAND_EXEC_TERMINATE,
            *(mcp.MCP_SERVER_STATUS_LIST, mcp.MCP_SERVER_TOOL_CALL, mcp.MCP_SERVER_RESOURCE_READ),
            *(mcp.MCP_SERVER_OAUTH_LOGIN, mcp.CONFIG_MCP_SERVER_RELOAD),
            *(skills.HOOKS_LIST, skills.APP_LIST, skills.APP_INSTALLED, skills.PLUGIN_LIST),
            *(skills.PLUGIN_INSTALLED, skills.WINDOWS_SANDBOX_READINESS),
        )
    ),
    client_notifications=by_method((server.INITIALIZED,)),
    server_notifications=by_method(
        (
            *(thread.THREAD_STARTED, thread.THREAD_STATUS_CHANGED, thread.THREAD_ARCHIVED),
            *(thread.THREAD_UNARCHIVED, thread.THREAD_DELETED, thread.THREAD_CLOSED, thread.THREAD_REVERTED),
            thread.THREAD_NAME_UPDATED,
            settings.THREAD_SETTINGS_UPDATED,
            thread.THREAD_TOKEN_USAGE_UPDATED,
            *(thread.THREAD_GOAL_UPDATED, thread.THREAD_GOAL_CLEARED),
            *(turn.TURN_STARTED, turn.TURN_COMPLETED, turn.TURN_DIFF_UPDATED, turn.TURN_PLAN_UPDATED),
            server.ERROR,
            *(item_events.ITEM_STARTED, item_events.ITEM_COMPLETED, item_events.ITEM_AGENT_MESSAGE_DELTA),
            *(item_events.ITEM_PLAN_DELTA, item_events.ITEM_REASONING_SUMMARY_PART_ADDED),
            *(item_events.ITEM_REASONING_SUMMARY_TEXT_DELTA, item_events.ITEM_REASONING_TEXT_DELTA),
            item_events.ITEM_COMMAND_EXECUTION_OUTPUT_DELTA,
            item_events.ITEM_COMMAND_EXECUTION_TERMINAL_INTERACTION,
            item_events.SERVER_REQUEST_RESOLVED,
            *(thread.MCP_SERVER_STARTUP_STATUS_UPDATED, mcp.MCP_SERVER_OAUTH_LOGIN_COMPLETED),
            *(account.ACCOUNT_UPDATED, account.ACCOUNT_LOGIN_COMPLETED, server.ACCOUNT_RATE_LIMITS_UPDATED),
            skills.SKILLS_CHANGED,
            *(files.FS_CHANGED, files.FUZZY_FILE_SEARCH_SESSION_UPDATED),
            files.FUZZY_FILE_SEARCH_SESSION_COMPLETED,
            commands.COMMAND_EXEC_OUTPUT_DELTA,
            *(server.WARNING, server.DEPRECATION_NOTICE, server.CONFIG_WARNING),
        )
    ),
    server_requests=by_method(
        (
            *(approval.ITEM_COMMAND_EXECUTION_REQUEST_APPROVAL, approval.ITEM_FILE_CHANGE_REQUEST_APPROVAL),
            approval.ITEM_PERMISSIONS_REQUEST_APPROVAL,
            *(question.ITEM_TOOL_REQUEST_USER_INPUT, question.ITEM_TOOL_CALL),
            question.MCP_SERVER_ELICITATION_REQUEST,
        )
    ),
)
