"""OTLP over gRPC, whose packages are not always installed. Used in the SDK's worker thread."""

from __future__ import annotations

from collections.abc import Mapping

import grpc  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.grpc import _log_exporter
from opentelemetry.sdk._logs.export import LogRecordExporter

from app_server.core.http.address import proxy_for
from app_server.core.http.connections import trusted_pem
from protocol.structs import Json


def grpc_exporter(
    endpoint: str, headers: Mapping[str, str], timeout: float, env: Mapping[str, str]
) -> LogRecordExporter:
    """Make an exporter over gRPC. It would look for a proxy and certificates by itself; it is given both, from `env`.

    `timeout` in seconds. Raises ValueError and TrustUnavailable where `env` misleads.
    """
    insecure = endpoint.startswith("http://")
    proxy = proxy_for(endpoint if "://" in endpoint else f"https://{endpoint}", env)
    credentials = None if insecure else grpc.ssl_channel_credentials(root_certificates=trusted_pem(env))
    options: Json = ("grpc.enable_http_proxy", 0) if proxy is None else ("grpc.http_proxy", proxy)
    exporter: LogRecordExporter = _log_exporter.OTLPLogExporter(
        endpoint=endpoint,
        headers=tuple((name.lower(), value) for name, value in headers.items()),
        insecure=insecure,
        credentials=credentials,
        timeout=timeout,
        channel_options=(options,),
    )
    return exporter
