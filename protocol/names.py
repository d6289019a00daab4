"""Names of methods that are needed before any table is loaded."""

from typing import Final

INITIALIZE: Final = "initialize"
"""The first request of every connection; answered before anything else is imported."""

INITIALIZED: Final = "initialized"
"""The client is ready; accepted, not required."""

SESSION_UPDATE: Final = "session/update"
"""The one notification of the Agent Client Protocol; its content is in its `updates` and `tool_calls`."""
