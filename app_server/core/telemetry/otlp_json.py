"""OTLP over HTTP in its JSON encoding, which the SDK's own exporter does not speak. Used in the SDK's worker thread."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence

import httpx
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]  # has no stubs
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult

log = logging.getLogger(__name__)


class JsonLogExporter(LogRecordExporter):
    """One POST per batch; a batch that is refused is dropped."""

    def __init__(self, endpoint: str, headers: Mapping[str, str], seconds: float) -> None:
        self._endpoint = endpoint
        self._client = httpx.Client(headers=dict(headers), timeout=seconds, follow_redirects=False)

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        body = json.dumps(MessageToDict(encode_logs(batch))).encode()
        try:
            answer = self._client.post(
                self._endpoint, content=body, headers={"Content-Type": "application/json"}
            )
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError):  # the last where it was closed meanwhile
            log.warning("telemetry could not be sent: the collector cannot be reached")
            return LogRecordExportResult.FAILURE
        if not answer.is_success:
            log.warning("telemetry could not be sent: the collector answered %d", answer.status_code)
            return LogRecordExportResult.FAILURE
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        return True

    def shutdown(self) -> None:
        self._client.close()
