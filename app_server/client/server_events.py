"""The notifications that concern no thread, for programs that watch an account, files, searches or logins.

They are in a module of their own, because loading their shapes takes time, and few programs need one.
"""

from __future__ import annotations as annotations

from app_server_protocol.v2.account import (
    AccountLoginCompletedNotification as AccountLoginCompletedNotification,
)
from app_server_protocol.v2.account import AccountUpdatedNotification as AccountUpdatedNotification
from app_server_protocol.v2.commands import (
    CommandExecOutputDeltaNotification as CommandExecOutputDeltaNotification,
)
from app_server_protocol.v2.files import FsChangedNotification as FsChangedNotification
from app_server_protocol.v2.files import (
    FuzzyFileSearchSessionCompletedNotification as FuzzyFileSearchSessionCompletedNotification,
)
from app_server_protocol.v2.files import (
    FuzzyFileSearchSessionUpdatedNotification as FuzzyFileSearchSessionUpdatedNotification,
)
from app_server_protocol.v2.hook_runs import HookCompletedNotification as HookCompletedNotification
from app_server_protocol.v2.hook_runs import HookRunSummary as HookRunSummary
from app_server_protocol.v2.hook_runs import HookStartedNotification as HookStartedNotification
from app_server_protocol.v2.mcp import (
    McpServerOauthLoginCompletedNotification as McpServerOauthLoginCompletedNotification,
)
from app_server_protocol.v2.models import ModelReroutedNotification as ModelReroutedNotification
from app_server_protocol.v2.server import (
    AccountRateLimitsUpdatedNotification as AccountRateLimitsUpdatedNotification,
)
from app_server_protocol.v2.server import ConfigWarningNotification as ConfigWarningNotification
from app_server_protocol.v2.server import DeprecationNoticeNotification as DeprecationNoticeNotification
from app_server_protocol.v2.skills import SkillsChangedNotification as SkillsChangedNotification
from app_server_protocol.v2.thread import (
    McpServerStatusUpdatedNotification as McpServerStatusUpdatedNotification,
)
from app_server_protocol.v2.thread_store import (
    ThreadSearchPartialNotification as ThreadSearchPartialNotification,
)
