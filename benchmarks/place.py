"""The place of a measured server: a temporary folder with a home, a workspace and a configuration. It is removed
afterwards.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CONFIG = """\
model = "bench-model"
model_provider = "bench"
approval_policy = "never"
sandbox_mode = "{sandbox}"

[model_providers.bench]
name = "Prepared"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""

KEPT = ("PATH", "LANG", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class Place:
    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def environment(self) -> Mapping[str, str]:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        own = {"CODEX_HOME": str(self.home), "HOME": str(self.root / "user"), "NO_PROXY": "127.0.0.1"}
        return kept | own | {"RUST_LOG": "off"}

    def configure(self, model_url: str, sandbox: str) -> None:
        (self.home / "config.toml").write_text(CONFIG.format(sandbox=sandbox, url=model_url))


@contextmanager
def temporary_place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="app-server-bench-", ignore_cleanup_errors=True) as folder:
        place = Place(Path(folder).resolve())
        for each in ("home", "workspace", "user"):
            (place.root / each).mkdir()
        yield place
