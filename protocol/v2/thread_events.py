"""What is said about a thread as a whole."""

from protocol.base import WireModel
from protocol.v2.thread import Thread, ThreadStatus, ThreadTokenUsage
from protocol.v2.thread_work import ThreadGoal


class ThreadStartedNotification(WireModel):
    thread: Thread


class ThreadStatusChangedNotification(WireModel):
    thread_id: str
    status: ThreadStatus


class ThreadArchivedNotification(WireModel):
    thread_id: str


class ThreadUnarchivedNotification(WireModel):
    thread_id: str


class ThreadDeletedNotification(WireModel):
    thread_id: str


class ThreadClosedNotification(WireModel):
    thread_id: str


class ThreadRevertedNotification(WireModel):
    thread_id: str


class ThreadNameUpdatedNotification(WireModel):
    thread_id: str
    thread_name: str | None = None


class ThreadTokenUsageUpdatedNotification(WireModel):
    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage


class ThreadGoalUpdatedNotification(WireModel):
    thread_id: str
    turn_id: str | None = None
    goal: ThreadGoal


class ThreadGoalClearedNotification(WireModel):
    thread_id: str
