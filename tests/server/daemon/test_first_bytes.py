"""Detection of a client's protocol by its first bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.server.daemon.client_connections import (
    MOST_WAITING,
    UnknownProtocol,
    WireProtocol,
    speech_after_preface,
    speech_of,
)
from app_server.server.proxy.connect import MOST_BYTES


@pytest.mark.parametrize(
    ("said", "speech"),
    [
        (b"", None),
        (b"G", WireProtocol.HTTP),
        (b"GET / HTTP/1.1\r\n", WireProtocol.HTTP),
        (b"{", None),
        (b'{"id":1}', None),
        (b'{"id":1}\n', WireProtocol.LINES),
        (b"{" + b"x" * MOST_WAITING, WireProtocol.LINES),
        (b'{"preface', None),
        (b'{"preface":1,', None),
        (b'{"preface":1}\n', WireProtocol.PREFACE),
        (b'{"preface":' + b"x" * (MOST_BYTES - 100), None),
        (b'{"prefaces":1}\n', WireProtocol.LINES),
    ],
)
def test_the_first_bytes_decide(said: bytes, speech: WireProtocol | None) -> None:
    assert speech_of(said, b"\n" in said) is speech


@pytest.mark.parametrize(
    "said",
    [b"x", b" {", b"\n", b"\xff", b"POST", b'{"preface":' + b"x" * MOST_BYTES, b"\x16\x03\x01"],
    ids=["a letter", "a space", "an empty line", "no UTF-8", "POST", "an endless preface", "TLS"],
)
def test_anything_else_is_none_of_ours(said: bytes) -> None:
    with pytest.raises(UnknownProtocol):
        speech_of(said, b"\n" in said)


@given(st.binary(min_size=1))
def test_behind_a_preface_any_line_may_come(said: bytes) -> None:
    assert speech_after_preface(said, b"\n" in said) is (
        WireProtocol.HTTP if said.startswith(b"G") else WireProtocol.LINES
    )


@given(st.binary())
def test_what_was_decided_stays(said: bytes) -> None:
    """More bytes never change the protocol, except that a preface may turn out to be endless."""
    decided: list[WireProtocol | type[UnknownProtocol]] = []
    for end in range(len(said) + 1):
        try:
            found = speech_of(said[:end], b"\n" in said[:end])
        except UnknownProtocol:
            decided.append(UnknownProtocol)
        else:
            decided += [found] if found else []
    assert len(set(decided)) <= 1
