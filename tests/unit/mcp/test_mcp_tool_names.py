"""Names that every model API takes, unique and telling."""

import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.mcp.offer import qualify

FIT = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def test_a_plain_name_is_prefixed_with_its_server() -> None:
    assert qualify([("files", "read")]) == {"mcp__files__read": ("files", "read")}


def test_a_long_name_ends_in_the_sha1_of_the_whole() -> None:
    (name,) = qualify([("fake", "a" * 200)])
    assert name == "mcp__fake__aaaaaaaaaaaaa" + hashlib.sha1(b"mcp__fake__" + b"a" * 200).hexdigest()
    assert len(name) == 64


def test_names_that_become_the_same_stay_two() -> None:
    named = qualify([("s", "a.b"), ("s", "a b"), ("a__b", "c"), ("a", "b__c")])
    assert list(named.values()) == [("s", "a.b"), ("s", "a b"), ("a__b", "c"), ("a", "b__c")]


def test_a_tool_is_offered_once_and_not_without_a_name() -> None:
    assert list(qualify([("s", "x"), ("s", "x"), ("s", ""), ("s", "  ")])) == ["mcp__s__x"]


def test_a_name_that_is_taken_is_not_given_again() -> None:
    (name,) = qualify([("s", "x")], taken={"mcp__s__x"})
    assert name != "mcp__s__x"
    assert FIT.fullmatch(name)


@given(st.lists(st.tuples(st.from_regex(r"[a-zA-Z0-9_-]{1,90}", fullmatch=True), st.text(max_size=90))))
def test_every_name_fits_and_leads_to_one_tool(pairs: list[tuple[str, str]]) -> None:
    named = qualify(pairs)
    assert all(FIT.fullmatch(name) for name in named)
    assert set(named.values()) == {pair for pair in pairs if pair[1].strip()}
    assert len(set(named.values())) == len(named)
