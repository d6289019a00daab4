"""Every event of the catalogue reaches a collector. Telemetry that is off sends, builds and imports nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app_server.engine.config.config_values import (
    Config,
    OtelConfig,
    OtelExporter,
    OtelProtocol,
    ProviderConfig,
)
from app_server.engine.config.mcp_server_settings import McpServerConfig, McpStdioTransport
from app_server.engine.config.model_tables import ModelSettings
from app_server.engine.telemetry.telemetry_events import (
    NO_TELEMETRY,
    ConversationFacts,
    ConversationTelemetry,
    TelemetryExport,
    open_export,
)
from app_server_protocol.encoding import Json
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.policy import ReasoningEffort

if TYPE_CHECKING:
    from tests.engine.telemetry.collector import Collector

NOW = 1_760_000_000.25
FACTS = ConversationFacts(
    conversation_id="c-1",
    app_version="1.2.3",
    terminal_type="test-client",
    model="gpt-x",
    slug="gpt",
    auth_mode="ApiKey",
    account_id="acc",
)


def config() -> Config:
    provider = ProviderConfig(id="mock", name="Mock")
    server = McpServerConfig(name="s", transport=McpStdioTransport(command="x"))
    return Config(
        home=Path("/h"),
        thread=ThreadSettings(cwd="/ws", model="gpt-x", effort=ReasoningEffort.LOW),
        model=ModelSettings(context_window=1000),
        provider=provider,
        providers={"mock": provider},
        mcp_servers={"two": server, "one": server},
        profile="mine",
    )


@pytest.fixture
def collector() -> Collector:
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    from tests.engine.telemetry.collector import Collector  # noqa: PLC0415  needs the extra

    return Collector()


@asynccontextmanager
async def exporting(
    endpoint: str, env: Mapping[str, str] | None = None, **more: Json
) -> AsyncIterator[ConversationTelemetry]:
    """Report to a collector, and wait until it has received everything."""
    settings = OtelConfig(exporter=OtelExporter.OTLP_HTTP, endpoint=endpoint, **more)
    export = await open_export(settings, "1.2.3", lambda: NOW, env or {})
    assert export is not None
    yield ConversationTelemetry(export, FACTS)
    await export.close()


def report_everything(telemetry: ConversationTelemetry) -> None:
    telemetry.conversation_starts(config())
    telemetry.user_prompt("my secret prompt")
    telemetry.api_request(1, 0.25, 503, "overloaded")
    telemetry.api_request(2, 0.09, 200, None)
    telemetry.sse_event("response.output_text.delta", 5)
    telemetry.sse_event("", 300, error="idle timeout")
    usage = TokenUsage(
        input_tokens=10, cached_input_tokens=4, output_tokens=5, reasoning_output_tokens=2, total_tokens=15
    )
    telemetry.response_completed(usage)
    telemetry.tool_decision("shell", "call-1", "approved", "config")
    telemetry.tool_result("shell", "call-1", '{"command":["ls"]}', 12, success=False, output="no\ud800")


@pytest.mark.parametrize("protocol", list(OtelProtocol))
async def test_a_collector_finds_every_event_of_the_catalogue(
    collector: Collector, protocol: OtelProtocol
) -> None:
    more: dict[str, Json] = {"environment": "test", "headers": {"x-token": "t"}, "protocol": protocol}
    with collector.running() as endpoint:
        async with exporting(endpoint, **more) as telemetry:
            report_everything(telemetry)
    assert collector.resources[0].items() >= {
        ("service.name", "codex-cli"), ("service.version", "1.2.3"), ("env", "test"),
    }  # fmt: skip
    assert collector.headers[0]["x-token"] == "t"
    assert set(collector.times) == {int(NOW * 1e9)}
    common = {
        "event.timestamp": "2025-10-09T08:53:20.250Z",
        "conversation.id": "c-1",
        "app.version": "1.2.3",
        "auth_mode": "ApiKey",
        "user.account_id": "acc",
        "terminal.type": "test-client",
        "model": "gpt-x",
        "slug": "gpt",
    }
    assert all(event.items() >= common.items() for event in collector.events)
    assert [own(event, common) for event in collector.events] == [
        {
            "event.name": "codex.conversation_starts",
            "provider_name": "Mock",
            "reasoning_effort": "low",
            "reasoning_summary": "auto",
            "context_window": 1000,
            "approval_policy": "on-request",
            "sandbox_policy": "read-only",
            "mcp_servers": "one, two",
            "active_profile": "mine",
        },
        {"event.name": "codex.user_prompt", "prompt_length": 16, "prompt": "[REDACTED]"},
        {
            "event.name": "codex.api_request",
            "attempt": 1,
            "duration_ms": 250,
            "http.response.status_code": 503,
            "error.message": "overloaded",
        },
        {
            "event.name": "codex.api_request",
            "attempt": 2,
            "duration_ms": 90,
            "http.response.status_code": 200,
        },
        {"event.name": "codex.sse_event", "event.kind": "response.output_text.delta", "duration_ms": 5},
        {
            "event.name": "codex.sse_event",
            "event.kind": "",
            "duration_ms": 300,
            "error.message": "idle timeout",
        },
        {
            "event.name": "codex.sse_event",
            "event.kind": "response.completed",
            "input_token_count": 10,
            "output_token_count": 5,
            "cached_token_count": 4,
            "reasoning_token_count": 2,
            "tool_token_count": 15,
        },
        {
            "event.name": "codex.tool_decision",
            "tool_name": "shell",
            "call_id": "call-1",
            "decision": "approved",
            "source": "config",
        },
        {
            "event.name": "codex.tool_result",
            "tool_name": "shell",
            "call_id": "call-1",
            "arguments": '{"command":["ls"]}',
            "duration_ms": 12,
            "success": "false",
            "output": "no�",
        },
    ]


def own(event: dict[str, Json], common: dict[str, str]) -> dict[str, Json]:
    return {key: value for key, value in event.items() if key not in common}


class Told:
    """Provider that keeps the attributes of events."""

    def __init__(self) -> None:
        self.attributes: list[Mapping[str, str | int]] = []

    def emit(self, name: str, seconds: float, attributes: Mapping[str, str | int]) -> None:
        self.attributes.append(attributes)

    def shutdown(self) -> None:
        pass


def test_a_prompt_is_given_away_only_where_the_user_allowed_it() -> None:
    told = Told()
    for allowed in (False, True):
        ConversationTelemetry(TelemetryExport(told, lambda: NOW, allowed), FACTS).user_prompt("words")
    assert [each["prompt"] for each in told.attributes] == ["[REDACTED]", "words"]


def test_a_long_text_is_cut() -> None:
    told = Told()
    telemetry = ConversationTelemetry(TelemetryExport(told, lambda: NOW), FACTS)
    telemetry.tool_result("t", "c", "{}", 1, success=True, output="x" * 10**6)
    assert len(str(told.attributes[0]["output"])) < 100_000


async def test_without_an_exporter_no_telemetry_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    assert await open_export(OtelConfig(), "1", lambda: NOW, {}) is None
    report_everything(NO_TELEMETRY)
    assert await open_export(OtelConfig(exporter=OtelExporter.OTLP_HTTP), "1", lambda: NOW, {}) is None
    assert "names no endpoint" in caplog.text


def test_off_imports_nothing_of_the_sdk() -> None:
    script = (
        "import sys, anyio\n"
        "from app_server.engine.config.config_values import OtelConfig\n"
        "from app_server.engine.telemetry.telemetry_events import open_export\n"
        "anyio.run(open_export, OtelConfig(), '1', lambda: 0.0, {})\n"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=30).returncode == 0


async def test_without_the_extra_there_is_a_warning_and_no_telemetry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk._logs", None)
    monkeypatch.delitem(sys.modules, "app_server.engine.telemetry.otlp", raising=False)
    settings = OtelConfig(exporter=OtelExporter.OTLP_HTTP, endpoint="http://127.0.0.1:9")
    with caplog.at_level(logging.WARNING):
        export = await open_export(settings, "1", lambda: NOW, {})
    assert export is None
    assert "extra `otel`" in caplog.text


@pytest.mark.parametrize("protocol", list(OtelProtocol))
async def test_events_go_the_way_that_the_users_environment_names(
    collector: Collector, protocol: OtelProtocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with collector.running() as endpoint:
        for url, env in ((endpoint, {}), ("http://collector.test/v1/logs", {"HTTP_PROXY": endpoint})):
            async with exporting(url, env, protocol=protocol) as telemetry:
                telemetry.sse_event("x", 1)
    assert [headers["host"] for headers in collector.headers] == [endpoint.split("/")[2], "collector.test"]


@pytest.mark.parametrize("exporter", [OtelExporter.OTLP_HTTP, OtelExporter.OTLP_GRPC])
async def test_certificates_that_cannot_be_read_turn_it_off(
    exporter: OtelExporter, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    settings = OtelConfig(exporter=exporter, endpoint="https://collector.test/v1/logs")
    export = await open_export(settings, "1", lambda: NOW, {"SSL_CERT_FILE": "/nowhere/at/all"})
    assert export is None
    assert "SSL_CERT_FILE names no file" in caplog.text


async def test_a_socks_proxy_without_its_package_turns_it_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
    monkeypatch.setitem(sys.modules, "socksio", None)
    settings = OtelConfig(exporter=OtelExporter.OTLP_HTTP, endpoint="http://collector.test/v1/logs")
    assert await open_export(settings, "1", lambda: NOW, {"all_proxy": "socks5://127.0.0.1:9"}) is None
    assert "a SOCKS proxy needs the package socksio" in caplog.text


@pytest.mark.parametrize("protocol", list(OtelProtocol))
async def test_a_failing_collector_loses_only_its_events(
    collector: Collector, protocol: OtelProtocol
) -> None:
    collector.status = 400
    with collector.running() as endpoint:
        async with exporting(endpoint, protocol=protocol) as telemetry:
            report_everything(telemetry)
    assert len(collector.headers) == 1


async def test_a_collector_that_hangs_does_not_hold_up_the_end(collector: Collector) -> None:
    collector.hang = released = threading.Event()
    with collector.running() as endpoint:
        async with exporting(endpoint) as telemetry:
            report_everything(telemetry)
        assert not released.is_set()
