"""A telemetry collector for tests: it accepts OTLP over HTTP, in both encodings, and records the events."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from app_server_protocol.encoding import Json
from tests.support.http_server import HttpHandler, http_server


@dataclass
class Collector:
    status: int = 200
    hang: threading.Event | None = None
    events: list[dict[str, Json]] = field(default_factory=list)
    resources: list[dict[str, Json]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        collector = self

        class Handler(HttpHandler):
            def serve(self) -> None:
                body = self.body()
                if collector.hang is not None:
                    collector.hang.wait()
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
                if "json" in self.headers["Content-Type"]:
                    collector.take_json(json.loads(body))
                else:
                    collector.take_binary(body)
                self.reply(collector.status)

        with http_server(Handler) as url:
            try:
                yield f"{url}/v1/logs"
            finally:
                if self.hang is not None:
                    self.hang.set()

    def take_binary(self, body: bytes) -> None:
        request = ExportLogsServiceRequest.FromString(body)
        for resource_logs in request.resource_logs:
            self.resources.append(
                {one.key: one.value.string_value for one in resource_logs.resource.attributes}
            )
            for scope_logs in resource_logs.scope_logs:
                for record in scope_logs.log_records:
                    self.times.append(record.time_unix_nano)
                    pairs = ((one.key, one.value) for one in record.attributes)
                    self.events.append(
                        {key: getattr(value, value.WhichOneof("value")) for key, value in pairs}
                    )

    def take_json(self, body: Json) -> None:
        for resource_logs in body["resourceLogs"]:
            self.resources.append(_plain(resource_logs["resource"]["attributes"]))
            for scope_logs in resource_logs["scopeLogs"]:
                for record in scope_logs["logRecords"]:
                    self.times.append(int(record["timeUnixNano"]))
                    self.events.append(_plain(record["attributes"]))

    def named(self, name: str) -> list[dict[str, Json]]:
        return [event for event in self.events if event["event.name"] == name]


def _plain(attributes: list[Json]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for one in attributes:
        ((kind, value),) = one["value"].items()
        found[one["key"]] = int(value) if kind == "intValue" else value
    return found
