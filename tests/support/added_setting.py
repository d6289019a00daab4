"""A plugin of pytest that gives threads one more lasting setting, `flavour`: before anything is loaded, it adds the
field to the sources of the few modules in which a new setting is written. `added_setting_case` plays what must carry
it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Final

ADDED: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "app_server_protocol.engine.thread_settings": [
        ("    mode: ModeSettings | U = DEFAULT_MODE\n", "    flavour: str | U | None = None\n"),
    ],
    "app_server_protocol.rollout": [
        ("    mode_instructions: str | None = None\n", "    flavour: SkipJsonSchema[str | None] = None\n"),
    ],
    "app_server_protocol.v2.settings": [
        ("    personality: Personality | None = None\n", "    flavour: str | None = None\n"),
        ("    config: dict[str, Json] | None = None\n", "    flavour: str | None = None\n"),
    ],
}
"""Modules that declare the field: the declaration, the stored line, the shapes of the thread API. Each with the lines
behind which the field is added, wherever they stand, and the line of the field.
"""

LEFT_OUT: Final = "ADDED_SETTING_LEFT_OUT"
"""Environment variable with the name of a module that does not get the field."""


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        source = self.get_source(fullname)
        assert source is not None
        for anchor, field in ADDED[fullname]:
            assert anchor in source, f"{fullname} has no line {anchor!r}"
            source = source.replace(anchor, anchor + field)
        return compile(source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in ADDED or fullname == os.environ.get(LEFT_OUT):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Loader(fullname, spec.origin)
        return spec


assert not sys.modules.keys() & ADDED, "the plugin is loaded first"
sys.meta_path.insert(0, _Finder())
