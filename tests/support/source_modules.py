"""The modules of the product and their syntax trees, for tests of its structure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = (ROOT / "app_server", ROOT / "protocol" / "app_server_protocol")


@cache
def modules() -> Mapping[str, Path]:
    """Return the path of each module of the product by its full name."""
    names = {}
    for source in SOURCES:
        for path in source.rglob("*.py"):
            name = ".".join(path.relative_to(source.parent).with_suffix("").parts)
            names[name.removesuffix(".__init__")] = path
    return names


@cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """Return the nodes of a module's syntax tree."""
    return tuple(ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))))


@cache
def imports(module: str) -> frozenset[str]:
    """Return the modules that a module imports: `from package import module` means the module."""
    return frozenset(imports_in(nodes(module)))


def imports_in(scope: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the modules that these nodes import, also by `import_module`."""
    for node in scope:
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                assert node.module is not None, "a relative import"
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                yield from (name if name in modules() else node.module for name in full)
            case ast.Call(func=ast.Name(id="import_module"), args=[ast.JoinedStr(values=[package, _])]):
                assert isinstance(package, ast.Constant), "any module may be meant"
                yield from (name for name in modules() if name.startswith(str(package.value)))
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module")):
                [name] = node.args
                assert isinstance(name, ast.Constant), "a module whose name no reader of the code knows"
                yield str(name.value)
