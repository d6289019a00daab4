"""Keeping head and tail; building requests; the launcher's small parts."""

import socket

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.exec.streams import HeadTail
from app_server.core.launcher import descendants, wire


@given(st.lists(st.binary(max_size=40)), st.integers(2, 60))
def test_head_and_tail_are_kept(chunks: list[bytes], cap: int) -> None:
    kept = HeadTail(cap)
    for chunk in chunks:
        kept.add(chunk)
    whole, value, half = b"".join(chunks), kept.value(), cap // 2
    if len(whole) <= 2 * half:
        assert value == whole
    else:
        assert value.startswith(whole[:half])
        assert value.endswith(whole[-half:])
        assert b"[... %d bytes omitted ...]" % (len(whole) - 2 * half) in value


@given(st.dictionaries(st.binary(), st.lists(st.integers() | st.binary() | st.none())))
def test_a_message_arrives_as_it_was_sent(value: dict[bytes, list[int | bytes | None]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, value, [])
        assert wire.receive(theirs) == (value, [])
        ours.close()
        assert wire.receive(theirs) is None


def test_descriptors_travel_and_are_not_inherited() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as sent:
        wire.send(ours, "x" * 10, [sent.fileno()])
        message = wire.receive(theirs)
        assert message is not None
        with socket.socket(fileno=message[1][0]) as got:
            assert not got.get_inheritable()


def test_below_finds_every_descendant() -> None:
    assert descendants.below(1, {2: 1, 3: 2, 4: 2, 5: 9, 6: 4, 1: 0}) == [2, 3, 4, 6]
