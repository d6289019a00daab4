"""The page about what the thread API leaves out names no method that is served."""

import re
from fnmatch import fnmatchcase

from app_server_protocol.v2 import v2_table
from tests.support.source_modules import ROOT

PAGE = ROOT / "docs" / "threads-left-out.md"


def left_out() -> list[str]:
    """Return the names in the first column of the table of methods; `*` stands for any further words."""
    table = PAGE.read_text("utf-8").partition("## Methods")[2].partition("## Fields")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def test_no_method_is_said_to_be_left_out_that_is_served() -> None:
    names, table = left_out(), v2_table.TABLE
    assert len(names) > 50
    served = [*table.client_requests, *table.server_notifications, *table.server_requests]
    found = {name: each for name in names for each in served if fnmatchcase(each, name)}
    assert found == {}
