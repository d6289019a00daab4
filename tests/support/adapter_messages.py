"""The lines that a client which keeps up is sent for the messages of an adapter."""

from collections.abc import Iterable

from app_server.server.conversations.adapter import Message, OutboundMessage


def lines_of(messages: Iterable[Message]) -> list[bytes]:
    """Return the lines of messages; of a text that has grown, those of its pieces so far."""
    lines: list[bytes] = []
    for each in messages:
        if isinstance(each, OutboundMessage):
            lines.append(each.data)
        else:
            lines += each.lines.lines(each.start, each.lines.end, joined=False)
    return lines
