"""The OpenTelemetry SDK, set up for one collector. Imports it, so it is imported only where telemetry is on."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.resources import Resource

from app_server.core.config.types import OtelConfig, OtelExporter
from app_server.core.telemetry.telemetry_events import Attribute

SERVICE_NAME = "codex-cli"
"""As dashboards for this family of agents filter by it."""
SEND_SECONDS = 2.0
"""Less than the server waits when it ends."""


class OtlpProvider:
    """Takes events and sends them in batches."""

    def __init__(self, config: OtelConfig, version: str, env: Mapping[str, str]) -> None:
        resource = Resource(
            {"service.name": SERVICE_NAME, "service.version": version, "env": config.environment}
        )
        self._provider = LoggerProvider(resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(_exporter(config, env)))
        self._logger = self._provider.get_logger("app_server", version)

    def emit(self, name: str, seconds: float, attributes: Mapping[str, Attribute]) -> None:
        nanoseconds = int(seconds * 1e9)
        self._logger.emit(
            LogRecord(
                timestamp=nanoseconds,
                observed_timestamp=nanoseconds,
                severity_text="INFO",
                severity_number=SeverityNumber.INFO,
                attributes=attributes,
                event_name=name,
            )
        )

    def shutdown(self) -> None:
        """Send what is left, then stop."""
        self._provider.shutdown()


def _exporter(config: OtelConfig, env: Mapping[str, str]) -> LogRecordExporter:
    """Make an exporter. Raises ImportError without the extra, ValueError or TrustUnavailable by `env`."""
    endpoint, headers = config.endpoint or "", dict(config.headers)
    if config.exporter is OtelExporter.OTLP_GRPC:
        from app_server.core.telemetry.otlp_grpc import grpc_exporter  # noqa: PLC0415 - not always installed

        return grpc_exporter(endpoint, headers, SEND_SECONDS, env)
    from app_server.core.telemetry.otlp_http import HttpLogExporter  # noqa: PLC0415 - imports httpx

    return HttpLogExporter(endpoint, config.protocol, headers, SEND_SECONDS, env)
