"""One stored line: cut without parsing where it has the usual form, parsed where it has another."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.rollout.records import parse_journal_line, parse_line
from app_server.core.rollout.rollout_lines import cut_line, is_blank, parse_object, parse_record
from protocol.base import Json
from protocol.rollout import CompactedItem, RolloutLine
from tests.unit.rollout.stored import assistant, meta, raw_line

STAMP = "2026-01-02T03:04:05.678Z"
NOTHING = (b"", b"", None)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def line(kind: str, payload: Json) -> bytes:
    record = {"timestamp": STAMP, "type": kind, "payload": payload}
    return json.dumps(record, separators=(",", ":")).encode()


@given(
    st.from_regex(r"[a-z_]{1,20}", fullmatch=True),
    st.none() | st.from_regex(r"[a-z_]{1,40}", fullmatch=True),
    st.dictionaries(st.text(max_size=4).filter(lambda key: key != "type"), values, max_size=3),
)
def test_a_line_in_the_usual_form_is_cut_into_its_parts(
    kind: str, name: str | None, fields: dict[str, Json]
) -> None:
    payload = fields if name is None else {"type": name, **fields}
    found, body, found_name = cut_line(line(kind, payload))
    assert (found, json.loads(body)) == (kind.encode(), payload)
    assert found_name == (None if name is None else name.encode())


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"{}",
        line("event_msg", {}) + b" ",
        line("event_msg", []),
        line("Event", {}),
        raw_line("event_msg", {}).rstrip(),
        line("event_msg", {}).replace(STAMP.encode(), b'x\\"y'),
    ],
)
def test_a_line_in_another_form_is_not_cut(other: bytes) -> None:
    assert cut_line(other) == NOTHING


def test_records_are_parsed_in_any_form() -> None:
    item = assistant("x")
    expected = RolloutLine(STAMP, "response_item", item)
    usual = line("response_item", item.to_value())
    spaced = json.dumps(json.loads(usual)).encode()
    for form in (usual, spaced, b"\xef\xbb\xbf" + usual + b"\r", b"\0\0" + usual + b"\0 ", b'{"torn' + usual):
        assert parse_line(form) == expected
    compacted = parse_line(line("compacted", {"message": "m"}))
    assert compacted is not None
    assert compacted.payload == CompactedItem(message="m")


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"5",
        b"[]",
        b"{}",
        b"{" * 100_000,
        line("novel", {}),
        line("response_item", {"type": "novel"}),
        line("session_meta", {"id": 5}),
        b'{"timestamp":' + b'{"a":' * 50_000,
    ],
)
def test_what_is_no_record_is_none(other: bytes) -> None:
    assert parse_line(other) is None


def test_objects() -> None:
    assert parse_object(b'{"a":1}') == {"a": 1}
    for other in (b"", b"[1]", b' {"a":1}', b"{", b'{"a":1}x', b"{" * 100_000, b"{\xff}"):
        assert parse_object(other) is None
    assert parse_record(b' {"a":1}') == {"a": 1}
    assert parse_record(b'torn{"timestamp":1}') == {"timestamp": 1}
    assert parse_record(b'torn{"a":1}') is None
    assert is_blank(b"\0 \t\r")
    assert not is_blank(b" x")


def journaled(payload: Json, after: object = 12) -> bytes:
    body = json.dumps(payload, separators=(",", ":"))
    return f'{{"timestamp":"{STAMP}","type":"response_item","after":{after},"payload":{body}}}'.encode()


def test_a_line_of_a_journal_has_the_item_and_where_the_rollout_ended() -> None:
    item = assistant("x")
    found = parse_journal_line(journaled(item.to_value()))
    assert found is not None
    assert (found.after, found.item) == (12, item)
    assert json.loads(found.payload) == item.to_value()
    assert parse_journal_line(line("session_meta", meta().to_value())) is None


@pytest.mark.parametrize(
    "other",
    [
        b"",
        journaled(assistant("x").to_value())[:-1],
        journaled({"type": "novel"}),
        journaled({"type": "message"}),
        journaled({}).replace(b"{}", b"{x}"),
        journaled(assistant("x").to_value(), '"12"'),
        journaled(assistant("x").to_value(), -1),
        line("response_item", assistant("x").to_value()),
    ],
)
def test_what_is_no_line_of_a_journal_is_none(other: bytes) -> None:
    assert parse_journal_line(other) is None
