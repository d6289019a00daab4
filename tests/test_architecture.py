"""Who may import whom. ARCHITECTURE.md says why; docs/adr/0002-layers.md says how it was decided.

Every import counts, also one inside a function or under TYPE_CHECKING.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

OUTER = (
    {"__main__"},
    {"cli"},
    {"stdio_server"},
    {"process", "demo"},
    {"server"},
    {"lazy_engine"},
    {"early_list", "extras", "greeting", "limits", "logs"},
    {"handlers"},
    {"conversations"},
    {"projection", "rpc", "transport", "core"},
)
"""Each level imports what is below it. Those that share a level do not import one another."""

CORE = (
    {"engine"},
    {"opening"},
    {"session"},
    {"tools"},
    {"approvals", "context", "mcp", "rollout"},
    {"exec", "model"},
    {"commands", "sandbox", "patch", "auth", "git", "files", "notify", "prompts", "telemetry"},
    {"config", "http"},
    {"errors", "shell_tree", "yielding"},
    {"bounds"},
)

WIRE = ("protocol.v1", "protocol.methods", "protocol.names", "protocol.jsonrpc")
"""The faces of the wire, which the engine does not know."""

EFFECTS = {"anyio", "asyncio", "httpx", "socket", "subprocess"}

PURE_FOLDERS = {"protocol", "app_server.projection", "app_server.core.commands"}

PURE_MODULES = {
    "app_server.transport": {"framing"},
    "app_server.core": {"bounds", "errors", "shell_tree"},
    "app_server.core.approvals": {"decide", "memory"},
    "app_server.core.config": {"features", "layers", "providers", "reader", "resolve", "types"},
    "app_server.core.context": {"compaction", "environment", "history", "instructions", "output"},
    "app_server.core.files": {"fuzzy", "wildmatch"},
    "app_server.core.http": {"address", "content", "proxies", "sse", "types"},
    "app_server.core.mcp": {"names"},
    "app_server.core.model": {
        *("chat_api", "chat_request", "events", "failures", "families", "payload"),
        *("rate_limits", "reply_size", "request", "responses_api", "retry"),
    },
    "app_server.core.patch": {
        *("diff", "errors", "hunks", "lines", "parse", "plan", "safety", "seek", "shell_forms"),
        *("text", "turn_diff"),
    },
    "app_server.core.rollout": {"lines", "names", "policy"},
    "app_server.core.sandbox": {"denial", "macos", "plan"},
    "app_server.core.session": {"assemble", "coalesce", "findings", "items", "state"},
}

PURE = sorted(PURE_FOLDERS | {f"{folder}.{name}" for folder, names in PURE_MODULES.items() for name in names})
"""Modules and folders that decide and never act; nor does anything that they import."""


@cache
def modules() -> Mapping[str, Path]:
    paths = [path for top in ("app_server", "protocol") for path in (ROOT / top).rglob("*.py")]
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


@cache
def imports(module: str) -> frozenset[str]:
    """What a module imports, as modules: `from package import module` means the module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None, f"{module} has a relative import"
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(name if name in modules() else node.module for name in full)
    return frozenset(found)


def inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def edges(package: str) -> Iterator[tuple[str, str]]:
    """Every import of a module inside the package."""
    for module in modules():
        if inside(module, package):
            yield from ((module, imported) for imported in sorted(imports(module)))


def upward(package: str, levels: tuple[set[str], ...]) -> list[str]:
    """The imports between parts of a package that do not go down."""
    rank = {part: depth for depth, parts in enumerate(levels) for part in parts}

    def part(module: str) -> str | None:
        rest = module.removeprefix(f"{package}.")
        return rest.split(".")[0] if rest != module else None

    wrong = []
    for module, imported in edges(package):
        above, below = part(module), part(imported)
        if above is None or below is None or above == below or not inside(imported, package):
            continue
        if above in rank and (below not in rank or rank[above] >= rank[below]):
            wrong.append(f"{module} imports {imported}")
    return wrong


def test_the_server_imports_downward() -> None:
    assert upward("app_server", OUTER) == []


def test_the_engine_imports_downward() -> None:
    assert upward("app_server.core", CORE) == []


@pytest.mark.parametrize(("package", "levels"), [("app_server", OUTER), ("app_server.core", CORE)])
def test_every_part_has_its_level(package: str, levels: tuple[set[str], ...]) -> None:
    depth = package.count(".") + 1
    parts = {name.split(".")[depth] for name in modules() if name.startswith(f"{package}.")}
    assert parts <= {part for level in levels for part in level}


def test_the_engine_knows_nothing_of_the_wire() -> None:
    known = [pair for pair in edges("app_server.core") if any(inside(pair[1], face) for face in WIRE)]
    assert known == []


def test_the_protocol_knows_nobody() -> None:
    assert [pair for pair in edges("protocol") if inside(pair[1], "app_server")] == []


def test_the_demo_is_a_client() -> None:
    """It meets the server where an editor does, on the wire."""
    inner = [pair for pair in edges("app_server.demo") if inside(pair[1], "app_server")]
    assert [
        pair for pair in inner if not inside(pair[1], "app_server.demo") and pair[1] != "app_server"
    ] == []


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_do_nothing(name: str) -> None:
    reached = [module for module in modules() if inside(module, name)]
    assert reached, f"there is no {name}"
    acting = set()
    for module in reached:  # grows while it is walked
        acting |= {f"{module} imports {each}" for each in imports(module) if each.split(".")[0] in EFFECTS}
        reached.extend(each for each in imports(module) if each in modules() and each not in reached)
    assert acting == set()


def test_the_engine_does_not_look_at_the_process() -> None:
    """Its environment is passed in. The guard of MCP servers is a program of its own."""
    words = ("os.environ", "os.getenv", "create_default_context(", "trust_env=True")
    found = [
        (module, word)
        for module, path in modules().items()
        if inside(module, "app_server.core") and module != "app_server.core.mcp.guard"
        for word in words
        if word in path.read_text(encoding="utf-8")
    ]
    assert found == []


def test_no_modules_of_a_room_import_each_other_in_a_circle() -> None:
    """Where two do, neither can be understood or loaded alone."""
    left = {module: {name for name in imports(module) if name in modules()} for module in modules()}
    while free := {module for module, needed in left.items() if not needed & left.keys()}:
        left = {module: needed for module, needed in left.items() if module not in free}
    assert sorted(left) == []


def test_the_engine_is_imported_late() -> None:
    """A client that only asks for what is stored does not wait for the agent."""
    late = [
        f"app_server.core.{name}"
        for name in ("engine", "tools.runtime", "session.session", "model.client", "mcp.manager")
    ]
    code = "import sys, app_server.stdio_server; sys.exit(any(name in sys.modules for name in sys.argv[1:]))"
    assert subprocess.run([sys.executable, "-c", code, *late], check=False).returncode == 0
