"""Links of the documentation have existing targets, in the repository and on the site that is built from it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.docs.markdown_blocks import HEADING, ROOT, anchor_of, pages, prose

PAGES = pages()
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")


@cache
def anchors(page: Path) -> set[str]:
    return {anchor_of(heading[2]) for heading in HEADING.finditer(prose(page))}


def broken(page: Path, root: Path = ROOT) -> Iterator[str]:
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not (target.is_relative_to(root) and target.exists()) or (
            anchor and anchor not in anchors(target)
        ):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n[a](#one-two) [b](#two) [c](missing.md)\n```\n[d](missing.md)\n```\n")
    assert anchors(page) == {"one-two"}
    assert list(broken(page, tmp_path)) == ["#two", "missing.md"]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_can_be_searched(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="no mkdocs")
    done = subprocess.run(
        (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")),
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert_diagrams_need_no_script(tmp_path / "site")
    index = json.loads((tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    own = {page for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"}
    assert {f"{page.stem}/" for page in own} | {"", "CONTRIBUTING/", "SECURITY/"} <= found
    assert not any(location.startswith("schema/") for location in found)  # these are lists of files


def assert_diagrams_need_no_script(site: Path) -> None:
    shown = (ROOT / "docs" / "threads.md").read_text(encoding="utf-8").count("```mermaid")
    page = (site / "threads" / "index.html").read_text(encoding="utf-8")
    assert (page.count('<svg class="sequence"'), "mermaid" in page) == (shown, False)
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]* src=\"https?:|<link[^>]* rel=\"stylesheet\"[^>]* href=\"https?:"
    )
    assert [path for path in site.rglob("*.html") if loaded.search(path.read_text(encoding="utf-8"))] == []
