"""What a session reports as telemetry. The class itself reports nothing; `EventTelemetry` builds and sends events.

The session calls these methods unconditionally.
"""

from __future__ import annotations

from app_server.core.config.types import Config
from protocol.events.tokens import TokenUsage


class ConversationTelemetry:
    """The events of one conversation. No method blocks or raises."""

    __slots__ = ()

    def conversation_starts(self, config: Config) -> None: ...

    def api_request(
        self,
        attempt: int,
        duration_ms: int,
        *,
        status: int | None = None,
        error: str | None = None,
        cf_ray: str | None = None,
    ) -> None:
        """One HTTP request to the model; `error` where it failed."""

    def sse_event(self, kind: str, duration_ms: int, *, error: str | None = None) -> None:
        """One event of the model's stream, and how long it was waited for."""

    def response_completed(self, usage: TokenUsage) -> None:
        """The last event of a stream, with what the response cost."""

    def user_prompt(self, prompt: str) -> None: ...

    def tool_decision(self, tool_name: str, call_id: str, decision: str, source: str) -> None:
        """`decision` is approved, approved_for_session, denied or abort; `source` is config or user."""

    def tool_result(
        self, tool_name: str, call_id: str, arguments: str, duration_ms: int, *, success: bool, output: str
    ) -> None: ...


NO_TELEMETRY = ConversationTelemetry()
