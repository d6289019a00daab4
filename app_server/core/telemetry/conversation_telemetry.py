"""The telemetry interface of a conversation, and an implementation that does nothing.

The session calls these methods unconditionally; the implementation decides whether events are built and sent.
"""

from __future__ import annotations

from typing import Protocol

from app_server.core.config.types import Config
from protocol.events.tokens import TokenUsage


class ConversationTelemetry(Protocol):
    """The events of one conversation. No method blocks or raises."""

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


class NoTelemetry:
    """Reports nothing."""

    __slots__ = ()

    def conversation_starts(self, config: Config) -> None:
        pass

    def api_request(
        self,
        attempt: int,
        duration_ms: int,
        *,
        status: int | None = None,
        error: str | None = None,
        cf_ray: str | None = None,
    ) -> None:
        pass

    def sse_event(self, kind: str, duration_ms: int, *, error: str | None = None) -> None:
        pass

    def response_completed(self, usage: TokenUsage) -> None:
        pass

    def user_prompt(self, prompt: str) -> None:
        pass

    def tool_decision(self, tool_name: str, call_id: str, decision: str, source: str) -> None:
        pass

    def tool_result(
        self, tool_name: str, call_id: str, arguments: str, duration_ms: int, *, success: bool, output: str
    ) -> None:
        pass


NO_TELEMETRY = NoTelemetry()
