"""Builds the wheel. In it the package `protocol` is called `app_server_protocol`: anyone may have a `protocol`.

The sources are copied, and the name is replaced where they import it; docs/adr/0076 says why here.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SHIPPED = "app_server_protocol"

IMPORTS = re.compile(r"^(\s*)(from|import) protocol\b", re.MULTILINE)
"""`from protocol…` and `import protocol…`."""

NAMES = re.compile(r"(?<![\w.])protocol\.(?=(?:acp|engine|events|export|mcp|v1|v2)\b)")
"""Modules that are named in full: where they are used, loaded by their names, or told of."""


def shipped(source: str) -> str:
    """Return the source of a module as it is in the wheel."""
    return NAMES.sub(f"{SHIPPED}.", IMPORTS.sub(rf"\1\2 {SHIPPED}", source))


class WheelHook(BuildHookInterface[Any]):
    """Puts the copies into the wheel. An editable installation has the sources themselves."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._copies = Path(tempfile.mkdtemp(prefix="wheel-"))
        for package, name in (("app_server", "app_server"), ("protocol", SHIPPED)):
            target = self._copies / name
            shutil.copytree(Path(self.root, package), target, ignore=shutil.ignore_patterns("__pycache__"))
            for module in target.rglob("*.py"):
                module.write_text(shipped(module.read_text(encoding="utf-8")), encoding="utf-8")
            build_data["force_include"][str(target)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            shutil.rmtree(self._copies, ignore_errors=True)
