"""One stored line: cut without parsing where it has the usual form, parsed where it has another."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.rollout.record import StoredRecord, parse_journal_line, parse_object, read_record
from protocol.base import Json
from tests.unit.rollout.stored import assistant, meta

STAMP = "2026-01-02T03:04:05.678Z"
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
    found = read_record(line(kind, payload))
    assert found is not None
    assert (found.kind, found.name) == (kind, name)
    assert found.value() == payload
    assert json.loads(found.payload) == payload


def test_records_are_parsed_in_any_form() -> None:
    payload = assistant("x").to_value()
    usual = line("response_item", payload)
    spaced = json.dumps(json.loads(usual)).encode()
    for form in (usual, spaced, b"\xef\xbb\xbf" + usual + b"\r", b"\0\0" + usual + b"\0 ", b'{"torn' + usual):
        found = read_record(form)
        assert found is not None
        assert (found.kind, found.name, found.value()) == ("response_item", "message", payload)
        assert json.loads(found.payload) == payload


def test_a_record_behind_a_torn_one_counts_unless_it_is_a_part_of_it() -> None:
    whole, inner = line("compacted", {"message": "m"}), line("event_msg", {"type": "x"})
    glued = read_record(line("event_msg", {"type": "user_message", "message": "x"})[:-4] + whole)
    assert glued is not None
    assert (glued.kind, glued.value()) == ("compacted", {"message": "m"})
    around = read_record(line("event_msg", {"type": "x", "record": json.loads(inner)}))
    assert around is not None
    assert (around.kind, around.value()) == ("event_msg", {"type": "x", "record": json.loads(inner)})


@pytest.mark.parametrize(
    "other",
    [
        b"",
        b"5",
        b"[]",
        b"{}",
        b"{" * 100_000,
        line("event_msg", []),
        line("event_msg", {})[:-1],
        b'{"timestamp":' + b'{"a":' * 50_000,
    ],
)
def test_what_is_no_record_is_none(other: bytes) -> None:
    assert read_record(other) is None


def test_a_payload_that_is_damaged_has_no_value() -> None:
    for payload in (b"{x}", b'{"type":"x"},{}', b'{"a":' * 50_000):
        found = read_record(
            b'{"timestamp":"t","type":"event_msg","payload":{"type":"x","a":' + payload + b"}}"
        )
        assert found is None or found.value() is None


def test_a_payload_that_was_parsed_is_json_whatever_it_holds() -> None:
    for text in ("\ud800", "ß"):
        found = StoredRecord.of("event_msg", {"type": text, "n": float("inf")})
        assert json.loads(found.payload) == {"type": text, "n": None}


def test_objects() -> None:
    assert parse_object(b'{"a":1}') == {"a": 1}
    assert parse_object(b'{"a":"\\ud800"}') == {"a": "\ud800"}
    assert parse_object(b'{"a":1e400}') == {"a": float("inf")}
    for other in (b"", b"[1]", b' {"a":1}', b"{", b'{"a":1}x', b"{" * 100_000, b"{\xff}"):
        assert parse_object(other) is None


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
