"""Names of methods of the thread API that 0.58 publishes. Generated clients thereby know the whole protocol.

No row of the table stands behind them: this version answers such a request like any unknown method and
never sends such a notification.
"""

from typing import Final

REQUESTS: Final = (
    "thread/start",
    "thread/resume",
    "thread/archive",
    "thread/list",
    "thread/compact",
    "turn/start",
    "turn/interrupt",
    "account/login/start",
    "account/login/cancel",
    "account/logout",
    "account/rateLimits/read",
    "feedback/upload",
    "account/read",
)

WITHOUT_PARAMS: Final = frozenset({"account/logout", "account/rateLimits/read"})

NOTIFICATIONS: Final = (
    "thread/started",
    "turn/started",
    "turn/completed",
    "item/started",
    "item/completed",
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/mcpToolCall/progress",
    "account/updated",
    "account/rateLimits/updated",
    "account/login/completed",
)
