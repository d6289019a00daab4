"""Reads from the disk: stored conversations, and the files of a workspace."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from benchmarks.bench import Benchmark, Run, Watch
from benchmarks.stored import store, store_one

STORED = 5_000
LISTED = 1_000
EXCHANGES = 5_000
"""Number of exchanges of the long conversation. Each has four lines."""

FOLDERS, FILES = 200, 100
QUERIES = ("m1f2", "module19file", "pkg3a", "zzzz", "file99")


async def stored(run: Run) -> Mapping[str, float]:
    """Measure lists and a resume. The first page is requested right after the handshake, as editors do; the second
    request finds caches.
    """
    store(run.place.home, STORED)
    long = store_one(run.place.home, EXCHANGES)
    first, again, rest, resumed = Watch(), Watch(), Watch(), Watch()
    async with run.server() as server:
        with first.timed():
            page = await server.call("listConversations", {"pageSize": 50})
        with again.timed():
            await server.call("listConversations", {"pageSize": 50})
        seen = len(page["items"])
        with rest.timed():
            while page["nextCursor"] and seen < LISTED:
                asked = {"pageSize": 100, "cursor": page["nextCursor"]}
                page = await server.call("listConversations", asked)
                seen += len(page["items"])
        with resumed.timed():
            await server.ask("resumeConversation", {"path": str(long)})
        return {
            "list_first_page_s": first.last,
            "list_again_s": again.last,
            "list_1000_s": first.last + rest.last,
            "resume_20k_lines_s": resumed.last,
        }


async def file_search(run: Run) -> Mapping[str, float]:
    """Measure several queries and return the median; the first finds no index."""
    _plant(run.place.workspace)
    watch = Watch()
    async with run.server() as server:
        for query in QUERIES:
            asked = {"query": query, "roots": [str(run.place.workspace)], "cancellationToken": None}
            with watch.timed():
                await server.ask("fuzzyFileSearch", asked)
    return {"file_search_20k_s": statistics.median(watch.seconds)}


def _plant(workspace: Path) -> None:
    for n in range(FOLDERS):
        folder = workspace / f"pkg{n % 20}" / f"module{n}"
        folder.mkdir(parents=True)
        for m in range(FILES):
            (folder / f"file{m}_{'abcdefgh'[m % 8]}.py").touch()


DISK_BENCHMARKS = (Benchmark("stored", stored), Benchmark("file_search", file_search))
