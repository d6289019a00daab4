"""Sets up the OpenTelemetry SDK for one collector, over HTTP or gRPC. Import it only if telemetry is enabled.

The SDK's own exporter over HTTP speaks only the binary encoding, brings an HTTP client of its own, and takes proxies
and certificates from the process's environment.
"""

from __future__ import annotations

import json
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import httpx2
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]  # has no stubs
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import Resource

from app_server.engine.config.config_values import OtelConfig, OtelExporter, OtelProtocol
from app_server.engine.http.address import address, proxy_for
from app_server.engine.http.http_client import UrlCredentials, built_request, no_cookies
from app_server.engine.http.interface import HttpRequest
from app_server.engine.http.trust_store import trust_store
from app_server.engine.telemetry import otlp_grpc

log = logging.getLogger(__name__)

SERVICE_NAME = "codex-cli"
"""Name of the service, by which dashboards for this family of agents filter."""
SEND_SECONDS = 2.0
"""Time limit of one request, in seconds. It is less than the server waits when it ends."""

CONTENT_TYPES = {OtelProtocol.BINARY: "application/x-protobuf", OtelProtocol.JSON: "application/json"}


class OtlpProvider:
    """Receives events and sends them in batches."""

    def __init__(self, config: OtelConfig, version: str, env: Mapping[str, str]) -> None:
        """Create the provider. Raises ImportError without the extra, and ValueError or TrustUnavailable by `env`."""
        resource = Resource(
            {"service.name": SERVICE_NAME, "service.version": version, "env": config.environment}
        )
        exporter: Callable[[OtelConfig, Mapping[str, str]], LogRecordExporter] = HttpLogExporter
        if config.exporter is OtelExporter.OTLP_GRPC:
            exporter = partial(otlp_grpc.grpc_exporter, seconds=SEND_SECONDS)
        self._provider = LoggerProvider(resource, shutdown_on_exit=False)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter(config, env)))
        self._logger = self._provider.get_logger("app_server", version)

    def emit(self, name: str, seconds: float, attributes: Mapping[str, str | int]) -> None:
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
        """Send the remaining events, then stop."""
        self._provider.shutdown()


class HttpLogExporter(LogRecordExporter):
    """Sends one POST per batch, in the SDK's worker thread; a batch that is refused is dropped. Only the status of a
    response is read.
    """

    def __init__(self, config: OtelConfig, env: Mapping[str, str]) -> None:
        self._config, self._url = config, config.endpoint or ""
        proxy = proxy_for(self._url, env)
        encrypted = address(self._url).scheme == "https" or (proxy or "").startswith("https:")
        # An unencrypted request gets a context without certificates; httpx2 would load those of the process.
        trust = trust_store(env) if encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            transport = httpx2.HTTPTransport(verify=trust, trust_env=False, proxy=_httpx_proxy(proxy, trust))
        except ImportError as error:
            raise ValueError("a SOCKS proxy needs the package socksio") from error
        self._client = httpx2.Client(
            transport=transport, trust_env=False, cookies=no_cookies(), auth=UrlCredentials()
        )

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        protocol, logs = self._config.protocol, encode_logs(batch)
        is_json = protocol is OtelProtocol.JSON
        request = HttpRequest(
            method="POST",
            url=self._url,
            headers={**self._config.headers, "Content-Type": CONTENT_TYPES[protocol]},
            body=json.dumps(MessageToDict(logs)).encode() if is_json else logs.SerializeToString(),
            idle_seconds=SEND_SECONDS,
            header_seconds=SEND_SECONDS,
        )
        try:
            built = built_request(request, SEND_SECONDS)
            response = self._client.send(built, stream=True)
            response.close()
        except (httpx2.TransportError, ValueError):
            log.warning("telemetry could not be sent: the collector cannot be reached")
            return LogRecordExportResult.FAILURE
        if not response.is_success:
            log.warning("telemetry could not be sent: the collector answered %d", response.status_code)
            return LogRecordExportResult.FAILURE
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        return True

    def shutdown(self) -> None:
        self._client.close()


def _httpx_proxy(url: str | None, trust: ssl.SSLContext) -> httpx2.Proxy | None:
    """Return the proxy at an address; None without an address. Raises ValueError for an invalid one."""
    if url is None:
        return None
    try:
        return httpx2.Proxy(url, ssl_context=trust if url.startswith("https:") else None)
    except httpx2.InvalidURL as error:
        raise ValueError("not the address of a proxy") from error
