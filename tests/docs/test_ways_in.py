"""The index of the documentation has an entry for each kind of reader, which is read in ten minutes."""

import re
from pathlib import Path

import pytest

from tests.docs.markdown_blocks import HEADING, ROOT, anchor_of, prose

INDEX = ROOT / "docs" / "README.md"
TEN_MINUTES = 2000
"""Number of words of prose that are read in ten minutes, at 200 a minute."""
STEP = re.compile(r"^\d\. .*(?:\n   .*)*", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+\.md)(?:#([^)\s]+))?\)")


def ways() -> dict[str, str]:
    """Return the sections of the index that address a kind of reader."""
    parts = re.split(r"^## (.*)$", INDEX.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {who: text for who, text in zip(parts[1::2], parts[2::2], strict=True) if who.startswith("You ")}


def read(page: Path, anchor: str) -> str:
    """Return the text under a heading, up to the next one of its level or above; under a title, up to the first
    heading.
    """
    text = prose(page)
    found = list(HEADING.finditer(text))
    [begin] = [match for match in found if anchor_of(match[2]) == anchor]
    level = max(len(begin[1]), 2)
    ends = [match.start() for match in found if match.start() > begin.start() and len(match[1]) <= level]
    return text[begin.start() : min(ends, default=len(text))]


def test_there_is_a_way_for_each_reader() -> None:
    assert list(ways()) == [
        "You use an editor",
        "You write a front end",
        "You write scripts",
        "You change it",
    ]


@pytest.mark.parametrize("who", ways())
def test_a_way_is_read_in_ten_minutes(who: str) -> None:
    steps = STEP.findall(ways()[who])
    assert len(steps) == 3
    words = 0
    for path, anchor in LINK.findall("\n".join(steps)):
        page = (INDEX.parent / path).resolve()
        words += len((read(page, anchor) if anchor else prose(page)).split())
    assert 300 < words < TEN_MINUTES
