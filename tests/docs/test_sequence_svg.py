"""Sequence diagrams as SVG for the site: docs/sequence_svg.py."""

import runpy
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import pytest

from tests.docs.markdown_blocks import ROOT

drawn: Callable[[str], str] = runpy.run_path(str(ROOT / "docs" / "sequence_svg.py"))["drawn"]

DIAGRAM = """sequenceDiagram
    participant C as Client
    participant S as app-server
    C->>S: turn/start “a < b”
    S-->>C: result of turn/start
    S-)C: turn/started (inProgress)
"""


def test_names_and_messages_are_drawn_in_their_order() -> None:
    svg = ElementTree.fromstring(drawn(DIAGRAM))
    texts = ["".join(each.itertext()) for each in svg.iter("text")]
    assert texts == [
        "Client",
        "app-server",
        "turn/start “a < b”",
        "result of turn/start",
        "turn/started (inProgress)",
    ]


def test_an_arrow_leads_from_its_sender_to_its_receiver() -> None:
    svg = ElementTree.fromstring(drawn(DIAGRAM))
    client, server, *arrows = [
        (each.get("class"), each.get("x1"), each.get("x2")) for each in svg.iter("line")
    ]
    left, right = client[1], server[1]
    assert arrows == [("request", left, right), ("answer", right, left), ("request", right, left)]


@pytest.mark.parametrize("text", ["flowchart TD", "sequenceDiagram\n    Note over C: hm"])
def test_what_cannot_be_drawn_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"hm|flowchart"):
        drawn(text)
