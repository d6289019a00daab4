"""The tests that SECURITY.md names for each promise exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
PROMISES = re.findall(r"^\d+\. \*\*.*?(?=^\d+\. \*\*|^Keys|\Z)", TEXT, re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"`(tests/[\w/.]+)`")


def test_each_promise_names_tests() -> None:
    assert len(PROMISES) == 17
    assert [promise.splitlines()[0] for promise in PROMISES if not NAMED.search(promise)] == []


def test_the_tests_that_are_named_exist() -> None:
    assert [name for name in NAMED.findall(TEXT) if not (ROOT / name).exists()] == []


def test_the_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!http)([^)#]+)", TEXT)
    assert [link for link in links if not (ROOT / link).exists()] == []
