"""The table of providers in docs/providers.md, and the strict providers of the tests: each row of the data is
in both.
"""

from pathlib import Path

import pytest

from app_server.engine.model.quirks import provider_rows
from app_server.server.providers_reference import main, table, with_table
from tests.support import strict_chat_rows, strict_messages, strict_responses

ROOT = Path(__file__).resolve().parents[3]

ANYWHERE = {"loopback", ""}
"""Rows of servers that are found by their address, which test servers share, or by the name of the model."""


def test_the_table_is_what_the_data_says() -> None:
    """`python -m app_server.server.providers_reference` writes the table."""
    assert main(["--check", "--root", str(ROOT)]) == 0


def test_every_row_has_a_line_and_a_strict_provider() -> None:
    rows = {row.id for row in provider_rows()} - ANYWHERE
    strict = {*strict_chat_rows.PROVIDERS, *strict_responses.PROVIDERS, *strict_messages.providers()}
    assert rows <= strict
    assert all(f"\n| {id} |" in table() for id in rows)


def test_a_page_without_a_place_for_the_table_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no"):
        with_table("# Providers\n")
