"""Report of the tests that were skipped because this machine lacks something, and how to run them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

WANTS: Final = (
    (
        r"REFERENCE_CODEX_THREADS",
        "threads read by codex",
        "REFERENCE_CODEX_THREADS=/path/to/codex-0.169 make test",
    ),
    (
        r"REFERENCE_CODEX",
        "conversations from codex and back",
        "REFERENCE_CODEX=/path/to/codex-0.58 make test",
    ),
    (r"axe-core", "accessibility of the inspector's page", "pip install --no-deps --group accessibility"),
    (r"playwright|Chromium", "the inspector's page", "pip install --group browser, and a Chromium"),
    (r"mkdocs|material", "the site of the documentation", "pip install --group docs"),
    (r"starlette|inspect", "the inspector", "pip install -e '.[inspect]'"),
    (r"opentelemetry|otel", "telemetry", "pip install -e '.[otel]'"),
    (r"'rich'", "the chat", "pip install -e '.[chat]'"),
    (r"no ray", "batches on a Ray cluster", "pip install -e '.[ray]'"),
    (r"openai_codex", "the Python SDK of codex", "pip install --no-deps --group clients"),
    (
        r"mcp_server_time|mcp-server-time|official SDK|mcp\.server",
        "MCP servers of others",
        "pip install --group dev",
    ),
    (r"fastmcp", "MCP servers of fastmcp", "FASTMCP=/path/to/fastmcp make test"),
    (r"npm", "servers and adapters from npm", "install node and npm; the registry has to answer"),
    (r"there is no (\w+)", r"what needs \1", r"install \1"),
    (r"only root", "what only root meets", "run the tests as root, in a container"),
    (r"user may", "what root never meets", "run the tests as a user without special rights"),
    (
        r"kernel|Landlock|namespaces|mount|attributes",
        "features of the kernel",
        "use one with Landlock and namespaces",
    ),
    (r"Linux|/proc|inotify|subreaper|locks of open", "what only Linux has", "run the tests on Linux"),
)
"""Pattern of the skip reason, the tests that were skipped, and how to run them."""


def not_run(reasons: Iterable[str]) -> Iterator[str]:
    """Yield a line for each missing thing, with the number of tests that it skipped."""
    for (what, how), count in Counter(map(_wanted, reasons)).most_common():
        yield f"{count} of {what}: {how}"


def _wanted(reason: str) -> tuple[str, str]:
    for pattern, what, how in WANTS:
        if found := re.search(pattern, reason):
            return found.expand(what), found.expand(how)
    return "others", reason
