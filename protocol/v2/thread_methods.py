"""Methods about threads as a whole: open, find, change."""

from typing import Final

from protocol.table import AnyClientRequest, ClientRequest
from protocol.v2 import settings, thread_edit, thread_open, thread_store, thread_work

_THREAD: Final = "threadId"
"""Requests about the same thread are served one after another."""

THREAD_START: Final = ClientRequest(
    "thread/start",
    thread_open.ThreadStartParams,
    thread_open.ThreadStartResponse,
    "Begins a thread and subscribes to it. `thread/started` follows.",
)
THREAD_RESUME: Final = ClientRequest(
    "thread/resume",
    thread_open.ThreadResumeParams,
    thread_open.ThreadResumeResponse,
    "Opens a stored thread or joins one that is open, and subscribes to it. Open questions are asked again.",
    ordered_by=_THREAD,
)
THREAD_FORK: Final = ClientRequest(
    "thread/fork",
    thread_open.ThreadForkParams,
    thread_open.ThreadForkResponse,
    "Copies a thread, whole or up to a turn, and subscribes to the copy. `thread/started` follows.",
    ordered_by=_THREAD,
)
THREAD_UNSUBSCRIBE: Final = ClientRequest(
    "thread/unsubscribe",
    thread_open.ThreadUnsubscribeParams,
    thread_open.ThreadUnsubscribeResponse,
    "Ends the subscription of this connection; the thread goes on.",
    ordered_by=_THREAD,
)
THREAD_READ: Final = ClientRequest(
    "thread/read",
    thread_store.ThreadReadParams,
    thread_store.ThreadReadResponse,
    "One thread, stored or open, without subscribing to it.",
)
THREAD_TURNS_LIST: Final = ClientRequest(
    "thread/turns/list",
    thread_store.ThreadTurnsListParams,
    thread_store.ThreadTurnsListResponse,
    "The turns of a thread, by pages.",
)
THREAD_ITEMS_LIST: Final = ClientRequest(
    "thread/items/list",
    thread_store.ThreadItemsListParams,
    thread_store.ThreadItemsListResponse,
    "The items of a thread or of one turn, by pages.",
)
THREAD_LIST: Final = ClientRequest(
    "thread/list",
    thread_store.ThreadListParams,
    thread_store.ThreadListResponse,
    "Stored threads, by pages.",
)
THREAD_SEARCH: Final = ClientRequest(
    "thread/search",
    thread_store.ThreadSearchParams,
    thread_store.ThreadSearchResponse,
    "Finds stored threads by what was said in them.",
    experimental=True,
)
THREAD_LOADED_LIST: Final = ClientRequest(
    "thread/loaded/list",
    thread_store.ThreadLoadedListParams,
    thread_store.ThreadLoadedListResponse,
    "The ids of the threads that are open in this server.",
)
THREAD_ARCHIVE: Final = ClientRequest(
    "thread/archive",
    thread_edit.ThreadArchiveParams,
    thread_edit.ThreadArchiveResponse,
    "Ends a thread if it is open and moves its file to the archive.",
    ordered_by=_THREAD,
)
THREAD_UNARCHIVE: Final = ClientRequest(
    "thread/unarchive",
    thread_edit.ThreadUnarchiveParams,
    thread_edit.ThreadUnarchiveResponse,
    "Brings the file of a thread back from the archive. The thread is not opened.",
    ordered_by=_THREAD,
)
THREAD_DELETE: Final = ClientRequest(
    "thread/delete",
    thread_edit.ThreadDeleteParams,
    thread_edit.ThreadDeleteResponse,
    "Ends a thread if it is open and deletes its file.",
    ordered_by=_THREAD,
)
THREAD_NAME_SET: Final = ClientRequest(
    "thread/name/set",
    thread_edit.ThreadSetNameParams,
    thread_edit.ThreadSetNameResponse,
    "Gives a thread a name.",
    ordered_by=_THREAD,
)
THREAD_METADATA_UPDATE: Final = ClientRequest(
    "thread/metadata/update",
    thread_edit.ThreadMetadataUpdateParams,
    thread_edit.ThreadMetadataUpdateResponse,
    "Changes what is stored about a thread beside its turns.",
    ordered_by=_THREAD,
)
THREAD_REVERT: Final = ClientRequest(
    "thread/revert",
    thread_edit.ThreadRevertParams,
    thread_edit.ThreadRevertResponse,
    "Forgets a turn and all after it. Files stay as they are.",
    ordered_by=_THREAD,
)
THREAD_SETTINGS_UPDATE: Final = ClientRequest(
    "thread/settings/update",
    settings.ThreadSettingsUpdateParams,
    settings.ThreadSettingsUpdateResponse,
    "Sets what the next turns work with.",
    ordered_by=_THREAD,
    experimental=True,
)
THREAD_COMPACT_START: Final = ClientRequest(
    "thread/compact/start",
    thread_work.ThreadCompactStartParams,
    thread_work.ThreadCompactStartResponse,
    "Replaces the history by a summary, as a turn of its own.",
    ordered_by=_THREAD,
)
THREAD_INJECT_ITEMS: Final = ClientRequest(
    "thread/inject_items",
    thread_work.ThreadInjectItemsParams,
    thread_work.ThreadInjectItemsResponse,
    "Puts items into the history; the model sees them with the next request.",
    ordered_by=_THREAD,
)
THREAD_SHELL_COMMAND: Final = ClientRequest(
    "thread/shellCommand",
    thread_work.ThreadShellCommandParams,
    thread_work.ThreadShellCommandResponse,
    "Runs a command of the user, as a turn of its own or within the one that runs.",
    ordered_by=_THREAD,
)
THREAD_BACKGROUND_TERMINALS_LIST: Final = ClientRequest(
    "thread/backgroundTerminals/list",
    thread_work.ThreadBackgroundTerminalsListParams,
    thread_work.ThreadBackgroundTerminalsListResponse,
    "The commands that go on after their turn.",
    ordered_by=_THREAD,
    experimental=True,
)
THREAD_BACKGROUND_TERMINALS_TERMINATE: Final = ClientRequest(
    "thread/backgroundTerminals/terminate",
    thread_work.ThreadBackgroundTerminalsTerminateParams,
    thread_work.ThreadBackgroundTerminalsTerminateResponse,
    "Ends one of these commands.",
    ordered_by=_THREAD,
    experimental=True,
)
THREAD_BACKGROUND_TERMINALS_CLEAN: Final = ClientRequest(
    "thread/backgroundTerminals/clean",
    thread_work.ThreadBackgroundTerminalsCleanParams,
    thread_work.ThreadBackgroundTerminalsCleanResponse,
    "Ends all of these commands.",
    ordered_by=_THREAD,
    experimental=True,
)
THREAD_GOAL_SET: Final = ClientRequest(
    "thread/goal/set",
    thread_work.ThreadGoalSetParams,
    thread_work.ThreadGoalSetResponse,
    "Sets what the thread works for by itself, or parts of it.",
    ordered_by=_THREAD,
)
THREAD_GOAL_GET: Final = ClientRequest(
    "thread/goal/get",
    thread_work.ThreadGoalGetParams,
    thread_work.ThreadGoalGetResponse,
    "The goal of a thread.",
    ordered_by=_THREAD,
)
THREAD_GOAL_CLEAR: Final = ClientRequest(
    "thread/goal/clear",
    thread_work.ThreadGoalClearParams,
    thread_work.ThreadGoalClearResponse,
    "Takes the goal away.",
    ordered_by=_THREAD,
)

REQUESTS: Final[tuple[AnyClientRequest, ...]] = (
    THREAD_START,
    THREAD_RESUME,
    THREAD_FORK,
    THREAD_UNSUBSCRIBE,
    THREAD_READ,
    THREAD_TURNS_LIST,
    THREAD_ITEMS_LIST,
    THREAD_LIST,
    THREAD_SEARCH,
    THREAD_LOADED_LIST,
    THREAD_ARCHIVE,
    THREAD_UNARCHIVE,
    THREAD_DELETE,
    THREAD_NAME_SET,
    THREAD_METADATA_UPDATE,
    THREAD_REVERT,
    THREAD_SETTINGS_UPDATE,
    THREAD_COMPACT_START,
    THREAD_INJECT_ITEMS,
    THREAD_SHELL_COMMAND,
    THREAD_BACKGROUND_TERMINALS_LIST,
    THREAD_BACKGROUND_TERMINALS_TERMINATE,
    THREAD_BACKGROUND_TERMINALS_CLEAN,
    THREAD_GOAL_SET,
    THREAD_GOAL_GET,
    THREAD_GOAL_CLEAR,
)
