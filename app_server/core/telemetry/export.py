"""Exports events to a collector through the OpenTelemetry SDK, or nowhere.

The SDK is imported only if an exporter is configured; without the extra `otel`, there is a warning and no telemetry. A
worker thread of the SDK sends batches; `close` waits a limited time for the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import anyio
from msgspec import Struct

from app_server.core.config.types import OtelConfig, OtelExporter
from app_server.core.http.exchange import TrustUnavailable
from app_server.core.telemetry.telemetry_events import (
    Attribute,
    ConversationFacts,
    ConversationTelemetry,
    Reporting,
)
from app_server.core.threads import run_in_thread

log = logging.getLogger(__name__)

CLOSE_SECONDS = 3.0


class _Provider(Protocol):
    def emit(self, name: str, seconds: float, attributes: Mapping[str, Attribute]) -> None: ...

    def shutdown(self) -> None: ...


class TelemetryExport(Struct, frozen=True):
    """Sends events of every conversation to one collector. One per process."""

    provider: _Provider
    clock: Callable[[], float]
    log_user_prompt: bool

    def conversation(self, facts: ConversationFacts) -> ConversationTelemetry:
        return ConversationTelemetry(Reporting(self.provider.emit, facts, self.clock, self.log_user_prompt))

    async def close(self) -> None:
        """Send the remaining events, within a time limit."""
        with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope:
            await run_in_thread(self.provider.shutdown, abandon_on_cancel=True)
        if scope.cancelled_caught:
            log.warning("the last telemetry could not be sent in time")


async def open_export(
    config: OtelConfig, version: str, clock: Callable[[], float], env: Mapping[str, str]
) -> TelemetryExport | None:
    """Return what the table `[otel]` asks for; None is nothing. Never raises; a failure is logged.

    `clock` gives seconds since 1970; `env` is the user's environment, which names proxies and certificates.
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


def _provider(config: OtelConfig, version: str, env: Mapping[str, str]) -> _Provider:
    """Make the SDK's provider, in a thread: the SDK takes a third of a second to import."""
    from app_server.core.telemetry.otlp import OtlpProvider  # noqa: PLC0415  heavy, and not always installed

    return OtlpProvider(config, version, env)
