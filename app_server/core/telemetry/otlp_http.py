"""OTLP over HTTP, in its binary and its JSON encoding. Used in the SDK's worker thread.

The SDK's own exporter speaks only the former, brings an HTTP client of its own, and takes proxies and certificates from
the process's environment.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

import httpx
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]  # has no stubs
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult

from app_server.core.config.types import OtelProtocol
from app_server.core.http.httpx_options import httpx_options

log = logging.getLogger(__name__)

CONTENT_TYPES = {OtelProtocol.BINARY: "application/x-protobuf", OtelProtocol.JSON: "application/json"}


class HttpLogExporter(LogRecordExporter):
    """One POST per batch; a batch that is refused is dropped. Of a response only the status is read."""

    def __init__(
        self,
        endpoint: str,
        protocol: OtelProtocol,
        headers: Mapping[str, str],
        seconds: float,
        env: Mapping[str, str],
    ) -> None:
        self._endpoint, self._protocol = endpoint, protocol
        self._client = httpx.Client(
            **httpx_options(endpoint, env),
            headers={**headers, "Content-Type": CONTENT_TYPES[protocol], "Accept-Encoding": "identity"},
            timeout=seconds,
        )

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        request = encode_logs(batch)
        body = (
            json.dumps(MessageToDict(request)).encode()
            if self._protocol is OtelProtocol.JSON
            else request.SerializeToString()
        )
        try:
            with self._client.stream("POST", self._endpoint, content=body) as response:
                status = response.status_code
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError):  # the last where it was closed meanwhile
            log.warning("telemetry could not be sent: the collector cannot be reached")
            return LogRecordExportResult.FAILURE
        if not 200 <= status < 300:
            log.warning("telemetry could not be sent: the collector answered %d", status)
            return LogRecordExportResult.FAILURE
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        return True

    def shutdown(self) -> None:
        self._client.close()
