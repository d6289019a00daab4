"""Flowcharts as SVG for the site: docs/flowchart_svg.py."""

import re
import runpy
from collections.abc import Callable

import pytest

from tests.docs.markdown_blocks import ROOT

drawn: Callable[[str], str] = runpy.run_path(str(ROOT / "docs" / "flowchart_svg.py"))["drawn"]

CHART = """flowchart TD
    a["<b>one</b><br>its <parts>"]
    b["two"]
    c["three"]
    a --> b
    a --> c
    b -. "wire" .-> c
"""


def test_boxes_stand_below_those_that_point_to_them() -> None:
    svg = drawn(CHART)
    heights = [int(y) for y in re.findall(r'<rect x="\d+" y="(\d+)"', svg)]
    assert heights[0] < heights[1] == heights[2]
    assert svg.count("<line") == 3
    assert svg.count('class="dotted"') == 1


def test_texts_are_escaped_and_in_lines() -> None:
    svg = drawn(CHART)
    assert "its &lt;parts&gt;" in svg
    assert ">one</text>" in svg
    assert 'aria-label="a to b; a to c; b to c"' in svg


@pytest.mark.parametrize("line", ["a ==> b", "graph LR", "a[no quotes]"])
def test_an_unknown_line_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="neither a box nor an arrow"):
        drawn(f"{CHART}    {line}\n")
    with pytest.raises(ValueError, match="not a flowchart"):
        drawn("sequenceDiagram\n")
