"""The preface of a proxy to a server, written without `json`."""

import json
import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app_server import __version__
from app_server.server.proxy.connect import ProxyRefused, accepted, as_json, preface

TEXTS = st.binary().map(os.fsdecode) | st.text()
VALUES = st.recursive(
    TEXTS | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(VALUES)
@example('"\\\x00\x1f\x7f\n')
@example(os.fsdecode(b"\x80\xff"))
def test_what_is_written_is_json(value: object) -> None:
    text = as_json(value)
    assert json.loads(text) == value
    assert json.loads(json.dumps(value)) == value  # check that both agree
    assert "\n" not in text


@given(st.dictionaries(st.binary().map(os.fsdecode), st.binary().map(os.fsdecode)))
def test_a_preface_is_one_line_with_the_environment_as_it_is(environment: dict[str, str]) -> None:
    line = preface(7, "acp", "/work", environment, {"options": {"config": ["a=1"]}})
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "preface": 1,
        "version": __version__,
        "pid": 7,
        "api": "acp",
        "cwd": "/work",
        "options": {"config": ["a=1"]},
        "env": environment,
    }


def test_an_answer_is_a_yes_or_says_why_not() -> None:
    assert accepted(b'{"preface":1,"version":"9","ok":true}')
    for line, why in (
        (b'{"preface":1,"ok":false,"reason":"full"}', "^full$"),
        (b'{"preface":2,"ok":true}', "a version that does not understand"),
        (b'{"preface":1,"ok":false}', "gave no reason"),
        (b'{"id":1,"result":{}}', "no server of this kind"),
        (b"HTTP/1.1 400 Bad Request", "no server of this kind"),
        (b"\xff\x00", "no server of this kind"),
        (b"[]", "no server of this kind"),
    ):
        with pytest.raises(ProxyRefused, match=why):
            accepted(line)
