"""Adds the pages of this repository to the site, with working links.

The site's root is docs/. Files that its pages link to outside of it (CONTRIBUTING.md, examples, schemas) join the site
under their own path; a folder becomes a list of its files. Every link is then rewritten for the location of its page on
the site, and every diagram is drawn.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import flowchart_svg
import sequence_svg
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIST = "files.md"
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/ that pages link to, and the files that those link to."""
    waiting = sorted(DOCS.rglob("*.md"))
    met: set[Path] = set()
    while waiting:
        for path in _linked(waiting.pop()):
            if path not in met:
                met.add(path)
                files.append(_file(path, config))
                waiting.extend([path] if path.suffix == ".md" and path.exists() else [])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, and draw its diagrams."""
    markdown = DIAGRAM.sub(lambda found: f"<div>{_drawn(found[1])}</div>", markdown)
    source = page.file.abs_src_path
    if source is None:
        return markdown  # the files of such a list are beside it
    there = os.path.dirname(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        target = (Path(source).resolve().parent / link[1]).resolve()
        return os.path.relpath(_place(target), there or ".") if target.exists() else link[1]

    return LINK.sub(moved, markdown)


def _drawn(diagram: str) -> str:
    """Return a diagram as SVG. Raises ValueError for one of another kind."""
    kinds = flowchart_svg if diagram.startswith("flowchart") else sequence_svg
    return kinds.drawn(diagram)


def _linked(page: Path) -> Iterator[Path]:
    """Yield the files and the lists of files outside of docs/ that a page needs."""
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        target = (page.parent / link).resolve()
        if target.is_relative_to(DOCS) or not target.is_relative_to(ROOT) or not target.exists():
            continue
        if not target.is_dir():
            yield target
        elif (target / "README.md").exists():
            yield target / "README.md"
        else:
            yield from (target / LIST, *_files_of(target))


def _files_of(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_file())


def _file(path: Path, config: MkDocsConfig) -> File:
    if path.exists():
        return File.generated(config, _place(path), abs_src_path=str(path))
    names = (f"- [{each.name}]({each.name})" for each in _files_of(path.parent))
    text = NOT_SEARCHED + "\n".join((f"# {path.parent.relative_to(ROOT)}", "", *names, ""))
    return File.generated(config, _place(path), content=text)


def _place(path: Path) -> str:
    """Return the place of a file on the site, or of a folder's page."""
    if path.is_dir():
        path /= "README.md" if (path / "README.md").exists() else LIST
    return path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT).as_posix()
