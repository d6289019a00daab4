"""Limits come from the environment, or are said to be no limits."""

from dataclasses import fields
from pathlib import Path

import pytest

from app_server.identity import PREFIX, SMALLEST, Limits, limits_of


def test_without_a_word_the_defaults_hold() -> None:
    assert limits_of({"PATH": "/bin"}) == Limits()


def test_each_can_be_set() -> None:
    given = {
        f"{PREFIX}{each.name.upper()}": str(SMALLEST[each.name] + n) for n, each in enumerate(fields(Limits))
    }
    limits = limits_of(given)
    assert limits == Limits(*(SMALLEST[each.name] + n for n, each in enumerate(fields(Limits))))


@pytest.mark.parametrize("text", ["0", "-1", "many", "1e9", "٣", "9" * 40, "1.5"])
def test_what_is_no_limit_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"APP_SERVER_MAX_CONVERSATIONS expects a number of at least 1"):
        limits_of({"APP_SERVER_MAX_CONVERSATIONS": text})


def test_the_documentation_names_each() -> None:
    text = (Path(__file__).parents[2] / "docs" / "limits.md").read_text(encoding="utf-8")
    for each in fields(Limits):
        assert f"`{PREFIX}{each.name.upper()}`" in text
