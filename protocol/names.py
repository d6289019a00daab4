"""Names of methods that are needed before any table is loaded."""

from typing import Final

INITIALIZE: Final = "initialize"
"""The first request of every connection; answered before anything else is imported."""

INITIALIZED: Final = "initialized"

LIST_CONVERSATIONS: Final = "listConversations"
"""Often the second; see `app_server.startup.early_list`."""

NEW_CONVERSATION: Final = "newConversation"
"""Often the next; see `app_server.startup.early_conversations`."""

THREAD_START: Final = "thread/start"
"""The same over the thread API."""

THREAD_STARTED: Final = "thread/started"
"""Comes behind its answer."""

NEW_SESSION: Final = "session/new"
"""The same over the Agent Client Protocol."""

SESSION_UPDATE: Final = "session/update"
"""The one notification of the Agent Client Protocol; its content is in its `updates` and `tool_calls`."""

THREAD_LIST: Final = "thread/list"
"""Stored threads; see `app_server.startup.early_threads`."""

RESUME_CONVERSATION: Final = "resumeConversation"
"""A stored conversation goes on; see `app_server.startup.early_resumes`."""

SESSION_CONFIGURED: Final = "sessionConfigured"
"""Comes before its answer."""

THREAD_RESUME: Final = "thread/resume"
"""The same over the thread API."""

THREAD_STATUS_CHANGED: Final = "thread/status/changed"
"""Comes before its answer."""
