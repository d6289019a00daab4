"""What is said about a thread as a whole."""

from protocol.structs import WireStruct
from protocol.v2.thread import Thread, ThreadStatus, ThreadTokenUsage
from protocol.v2.thread_work import ThreadGoal


class ThreadStartedNotification(WireStruct):
    thread: Thread


class ThreadStatusChangedNotification(WireStruct):
    thread_id: str
    status: ThreadStatus


class ThreadArchivedNotification(WireStruct):
    thread_id: str


class ThreadUnarchivedNotification(WireStruct):
    thread_id: str


class ThreadDeletedNotification(WireStruct):
    thread_id: str


class ThreadClosedNotification(WireStruct):
    thread_id: str


class ThreadRevertedNotification(WireStruct):
    thread_id: str


class ThreadNameUpdatedNotification(WireStruct):
    thread_id: str
    thread_name: str | None = None


class ThreadTokenUsageUpdatedNotification(WireStruct):
    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage


class ThreadGoalUpdatedNotification(WireStruct):
    thread_id: str
    turn_id: str | None = None
    goal: ThreadGoal


class ThreadGoalClearedNotification(WireStruct):
    thread_id: str
