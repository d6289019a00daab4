"""Telemetry of a session: the reports of the session, the events that are built from them, and their export through the
OpenTelemetry SDK.

The session calls the methods of `ConversationTelemetry` unconditionally. Names and attributes are those of codex 0.58,
which dashboards know. Attributes without a value are omitted. Events contain the text of a prompt only if the user's
settings allow it. The SDK is imported only if an exporter is configured; without the extra `otel`, there is a warning
and no telemetry. A worker thread of the SDK sends batches; `close` waits a limited time for the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

import anyio
from msgspec import Struct

from app_server.engine.config.config_values import Config, OtelConfig, OtelExporter
from app_server.engine.http.interface import TrustUnavailable
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.policy import ReasoningSummary
from app_server_protocol.values import Redacted

REDACTED = "[REDACTED]"
MAX_TEXT_CHARS = 32 * 1024
"""Maximum length of arguments, outputs and error texts, in characters."""

CLOSE_SECONDS = 3.0

Attribute = str | int

log = logging.getLogger(__name__)


class ConversationFacts(Redacted, frozen=True, kw_only=True):
    """The attributes of every event of a conversation."""

    HIDDEN = ("account_email",)
    conversation_id: str
    app_version: str
    terminal_type: str
    """Description of the client, as the client itself sent it."""
    model: str
    slug: str
    """Name of the model's family."""
    auth_mode: str | None = None
    account_id: str | None = None
    account_email: str | None = None


class TelemetryProvider(Protocol):
    """Receives the events of all conversations; `seconds` are since 1970."""

    def emit(self, name: str, seconds: float, attributes: Mapping[str, Attribute]) -> None: ...

    def shutdown(self) -> None: ...


class TelemetryExport(Struct, frozen=True):
    """Sends events of every conversation to one collector. One per process."""

    provider: TelemetryProvider
    clock: Callable[[], float]
    """Returns the time in seconds since 1970."""
    log_user_prompt: bool = False

    async def close(self) -> None:
        """Send the remaining events, within a time limit."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope:
            await run_in_thread(self.provider.shutdown, abandon_on_cancel=True)
        if scope.cancelled_caught:
            log.warning("the last telemetry could not be sent in time")


class ConversationTelemetry:
    """Builds the events of one conversation and exports them, if export is enabled. No method blocks or raises."""

    def __init__(self, to: TelemetryExport | None, facts: ConversationFacts | None) -> None:
        self._to, self._facts = to, facts

    def conversation_starts(self, config: Config) -> None:
        effort = config.thread.effort
        self._emit(
            "codex.conversation_starts",
            {
                "provider_name": config.provider.name,
                "reasoning_effort": None if effort is None else str(effort),
                "reasoning_summary": str(config.thread.summary or ReasoningSummary.AUTO),
                "context_window": config.model.context_window,
                "max_output_tokens": config.model.max_output_tokens,
                "auto_compact_token_limit": config.model.auto_compact_token_limit,
                "approval_policy": str(config.thread.approval_policy),
                "sandbox_policy": config.thread.sandbox_policy.mode,
                "mcp_servers": ", ".join(sorted(config.mcp_servers)),
                "active_profile": config.profile,
            },
        )

    def api_request(self, attempt: int, seconds: float, status: int | None, error: str | None) -> None:
        """Record one HTTP request to the model; `error` is None if it succeeded."""
        self._emit(
            "codex.api_request",
            {
                "attempt": attempt,
                "duration_ms": int(seconds * 1000),
                "http.response.status_code": status,
                "error.message": error,
            },
        )

    def sse_event(self, kind: str, duration_ms: int, *, error: str | None = None) -> None:
        """Record one event of the model's stream, and how long the turn waited for it."""
        self._emit(
            "codex.sse_event", {"event.kind": kind, "duration_ms": duration_ms, "error.message": error}
        )

    def response_completed(self, usage: TokenUsage) -> None:
        """Record the last event of a stream, with the token usage of the response."""
        self._emit(
            "codex.sse_event",
            {
                "event.kind": "response.completed",
                "input_token_count": usage.input_tokens,
                "output_token_count": usage.output_tokens,
                "cached_token_count": usage.cached_input_tokens,
                "reasoning_token_count": usage.reasoning_output_tokens,
                "tool_token_count": usage.total_tokens,
            },
        )

    def user_prompt(self, prompt: str) -> None:
        shown = prompt if self._to is not None and self._to.log_user_prompt else REDACTED
        self._emit("codex.user_prompt", {"prompt_length": len(prompt), "prompt": shown})

    def tool_decision(self, tool_name: str, call_id: str, decision: str, source: str) -> None:
        """Record approved, approved_for_session, denied or abort; `source` is config or user."""
        self._emit(
            "codex.tool_decision",
            {"tool_name": tool_name, "call_id": call_id, "decision": decision, "source": source},
        )

    def tool_result(
        self, tool_name: str, call_id: str, arguments: str, duration_ms: int, *, success: bool, output: str
    ) -> None:
        self._emit(
            "codex.tool_result",
            {
                "tool_name": tool_name,
                "call_id": call_id,
                "arguments": arguments,
                "duration_ms": duration_ms,
                "success": "true" if success else "false",
                "output": output,
            },
        )

    def _emit(self, name: str, own: Mapping[str, Attribute | None]) -> None:
        if self._to is None or self._facts is None:
            return
        now, facts = self._to.clock(), self._facts
        attributes: dict[str, Attribute | None] = {
            "event.name": name,
            "event.timestamp": timestamp(now),
            "conversation.id": facts.conversation_id,
            "app.version": facts.app_version,
            "auth_mode": facts.auth_mode,
            "user.account_id": facts.account_id,
            "user.email": facts.account_email,
            "terminal.type": facts.terminal_type,
            "model": facts.model,
            "slug": facts.slug,
            **own,
        }
        self._to.provider.emit(
            name, now, {key: _bounded(value) for key, value in attributes.items() if value is not None}
        )


NO_TELEMETRY = ConversationTelemetry(None, None)


def timestamp(seconds: float) -> str:
    """Return a time in UTC to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _bounded(value: Attribute) -> Attribute:
    if not isinstance(value, str):
        return value
    text = value if len(value) <= MAX_TEXT_CHARS else value[:MAX_TEXT_CHARS] + "…"
    return text.encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    )  # protobuf cannot encode lone surrogates


async def open_export(
    config: OtelConfig, version: str, clock: Callable[[], float], env: Mapping[str, str]
) -> TelemetryExport | None:
    """Open the export that the table `[otel]` configures; return None if there is none. Never raises; a failure is
    logged.

    `clock` returns seconds since 1970; `env` is the user's environment, which names proxies and certificates.
    """
    if config.exporter is OtelExporter.NONE:
        return None
    if not config.endpoint:
        log.warning("telemetry is off: the table [otel] names no endpoint")
        return None
    try:
        provider = await run_in_thread(_provider, config, version, env)
    except ImportError as error:
        missing = f"{error.name} is not installed (it comes with the extra `otel`)" if error.name else error
        log.warning("telemetry is off: %s", missing)
        return None
    except (TrustUnavailable, ValueError) as error:
        log.warning("telemetry is off: %s", error)
        return None
    return TelemetryExport(provider, clock, config.log_user_prompt)


def _provider(config: OtelConfig, version: str, env: Mapping[str, str]) -> TelemetryProvider:
    """Create the SDK's provider, in a thread: the SDK takes a third of a second to import."""
    from app_server.engine.telemetry.otlp import OtlpProvider  # noqa: PLC0415  heavy, and not always installed

    return OtlpProvider(config, version, env)
