"""Draws the sequence diagrams of the documentation as SVG for the site. A page needs no script, and no resource of
another server, to show one.

The module supports the part of Mermaid's notation that recorded diagrams use: participants, and messages with `->>`,
`-->>` and `-)`.
"""

import re
from dataclasses import dataclass
from html import escape

PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
MESSAGE = re.compile(r"(\w+)(->>|-->>|-\))(\w+): (.+)")

LANE = 460
"""Distance between two participants, in pixels."""
MARGIN = 90
ROW = 30
HEAD = 50
"""Height of the names above the first message, and of the space below the last, in pixels."""

STYLE = (
    ".sequence{max-width:100%;height:auto;font:13px sans-serif;color:inherit}"
    ".sequence text{fill:currentColor;text-anchor:middle}"
    ".sequence line,.sequence path,.sequence rect{stroke:currentColor;fill:none}"
    ".sequence .head{fill:currentColor}.sequence .lane{opacity:.4}.sequence .answer{stroke-dasharray:5 4}"
)


@dataclass(frozen=True, slots=True)
class Message:
    sender: str
    arrow: str
    receiver: str
    text: str


def drawn(diagram: str) -> str:
    """Return a diagram as an SVG element. Raises ValueError for an unknown line."""
    participants: dict[str, str] = {}
    messages: list[Message] = []
    kind, *lines = (line.strip() for line in diagram.strip().splitlines())
    if kind != "sequenceDiagram":
        raise ValueError(f"not a sequence diagram: {kind}")
    for line in lines:
        if found := PARTICIPANT.fullmatch(line):
            participants[found[1]] = found[2]
        elif found := MESSAGE.fullmatch(line):
            messages.append(Message(*found.groups()))
        else:
            raise ValueError(f"neither a participant nor a message: {line}")
    places = {name: MARGIN + LANE * number for number, name in enumerate(participants)}
    width, bottom = 2 * MARGIN + LANE * (len(places) - 1), HEAD + ROW * len(messages)
    parts = [_participant(participants[name], x, bottom + ROW // 2) for name, x in places.items()]
    parts += [_message(each, places, HEAD + ROW * number) for number, each in enumerate(messages, 1)]
    said = escape(
        "; ".join(f"{each.sender} to {each.receiver}: {each.text}" for each in messages), quote=True
    )
    size = f'viewBox="0 0 {width} {bottom + HEAD}" width="{width}"'
    return f'<svg class="sequence" role="img" aria-label="{said}" {size}><style>{STYLE}</style>{"".join(parts)}</svg>'


def _participant(name: str, x: int, bottom: int) -> str:
    box = f'<rect x="{x - 70}" y="8" width="140" height="28" rx="4"/>'
    lane = f'<line class="lane" x1="{x}" y1="36" x2="{x}" y2="{bottom}"/>'
    return f'{box}<text x="{x}" y="27">{escape(name)}</text>{lane}'


def _message(message: Message, places: dict[str, int], y: int) -> str:
    """Draw an arrow with its text above it: dashed for an answer, with an open head if no answer is expected."""
    start, end = places[message.sender], places[message.receiver]
    back = -9 if end > start else 9
    line = "answer" if message.arrow == "-->>" else "request"
    head = f"M{end + back} {y - 5}L{end} {y}L{end + back} {y + 5}"
    tip = f'<path d="{head}"/>' if message.arrow == "-)" else f'<path class="head" d="{head}Z"/>'
    text = f'<text x="{(start + end) // 2}" y="{y - 6}">{escape(message.text)}</text>'
    return f'{text}<line class="{line}" x1="{start}" y1="{y}" x2="{end}" y2="{y}"/>{tip}'
