"""Which settings are read, and as what: reads an example configuration with a reader that takes notes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from app_server.core.config.layers import Layered
from app_server.core.config.resolve import ResolveInputs, resolve_settings
from app_server.core.config.settings_reader import Choice, SettingsReader
from app_server.core.config.types import Config
from protocol.base import Json

EXAMPLES: tuple[Mapping[str, Json], ...] = (
    {
        "model_providers": {"NAME": {"name": "Name"}},
        "mcp_servers": {"NAME": {"command": "program", "tools": {"TOOL": {}}}},
        "projects": {"PATH": {"trust_level": "trusted"}},
        "otel": {"exporter": {"otlp-http": {"endpoint": "http://localhost:4318/v1/logs"}}},
    },
    {
        "approval_policy": {
            "granular": {"sandbox_approval": True, "rules": True, "mcp_elicitations": True},
        },
        "mcp_servers": {"NAME": {"url": "http://localhost/mcp"}},
        "otel": {"exporter": {"otlp-grpc": {"endpoint": "http://localhost:4317"}}},
    },
)
"""Together they open every table that settings may have. Capitals are for names that users choose."""


class RecordingReader(SettingsReader):
    """Notes the kind of each value that is read, by its dotted key. Its readers share the notes."""

    __slots__ = ("kinds",)

    def __init__(self, raw: Mapping[str, Json], path: tuple[str, ...], kinds: dict[str, str]) -> None:
        super().__init__(raw, path)
        self.kinds = kinds

    def text(self, key: str) -> str | None:
        self._note(key, "string")
        return super().text(key)

    def word(self, key: str, most: int) -> str | None:
        found = super().word(key, most)
        self._note(key, f"string, of at most {most} characters")
        return found

    def flag(self, key: str) -> bool | None:
        self._note(key, "boolean")
        return super().flag(key)

    def integer(self, key: str, minimum: int = 0) -> int | None:
        self._note(key, f"integer, at least {minimum}")
        return super().integer(key, minimum)

    def seconds(self, key: str) -> float | None:
        self._note(key, "seconds, above 0")
        return super().seconds(key)

    def choice(self, key: str, kind: type[Choice]) -> Choice | None:
        found = super().choice(key, kind)
        self._note(key, _words(kind))
        return found

    def texts(self, key: str) -> tuple[str, ...] | None:
        self._note(key, "list of strings")
        return super().texts(key)

    def text_map(self, key: str) -> dict[str, str] | None:
        self._note(key, "table of strings")
        return super().text_map(key)

    def _note(self, key: str, kind: str) -> None:
        self.kinds[self.name(key)] = kind

    def _child(self, raw: Mapping[str, Json], key: str) -> SettingsReader:
        return RecordingReader(raw, (*self._path, key), self.kinds)


def recorded() -> tuple[Mapping[str, str], Config]:
    """The kind of each setting by its key, and the configuration of the first example, for the defaults."""
    kinds: dict[str, str] = {}
    configs = []
    for example in EXAMPLES:
        reader = RecordingReader(example, (), kinds)
        inputs = ResolveInputs(Path("/home"), Path("/work"), MappingProxyType({}))
        configs.append(resolve_settings(reader, Layered(example, None), inputs))
    return kinds, configs[0]


def _words(kind: type[StrEnum]) -> str:
    return " ".join(f"`{each.value}`" for each in kind)
