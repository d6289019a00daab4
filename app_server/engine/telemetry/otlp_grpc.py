"""The exporter of telemetry over gRPC. Imported as a module, so that it is loaded only for a collector that is spoken
to in this way.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.grpc import _log_exporter
from opentelemetry.sdk._logs.export import LogRecordExporter

from app_server.engine.config.config_values import OtelConfig
from app_server.engine.http.address import proxy_for
from app_server.engine.http.trust_store import trusted_pem
from app_server_protocol.encoding import Json


def grpc_exporter(config: OtelConfig, env: Mapping[str, str], *, seconds: float) -> LogRecordExporter:
    """Return an exporter over gRPC, with a time limit for sending. It is given the proxy and the certificates, which it
    would otherwise look up itself.
    """
    endpoint = config.endpoint or ""
    insecure = endpoint.startswith("http://")
    proxy = proxy_for(endpoint if "://" in endpoint else f"https://{endpoint}", env)
    credentials = None if insecure else grpc.ssl_channel_credentials(root_certificates=trusted_pem(env))
    options: Json = ("grpc.enable_http_proxy", 0) if proxy is None else ("grpc.http_proxy", proxy)
    exporter: LogRecordExporter = _log_exporter.OTLPLogExporter(
        endpoint=endpoint,
        headers=tuple((name.lower(), value) for name, value in config.headers.items()),
        insecure=insecure,
        credentials=credentials,
        timeout=seconds,
        channel_options=(options,),
    )
    return exporter
