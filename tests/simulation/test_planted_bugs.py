"""Planted bugs: every patch applies to the product, and worlds find the bugs."""

from pathlib import Path

import pytest

from tests.simulation.planted_bugs import ROOT, apply, names, search, sentence

pytestmark = pytest.mark.simulation

SOON = {
    "error_after_the_end": 12,
    "idle_before_the_end": 0,
    "one_retry_too_many": 8,
    "users_edit_taken_back": 63,
}
"""Bugs that worlds find soon, with the seed of the first such world: the search begins there. `make simulate
ARGS=--mutants` searches for all bugs from the first world on.
"""


@pytest.mark.parametrize("name", names())
def test_a_bug_can_be_planted(name: str) -> None:
    """Check that a patch applies. One that does not apply any more has to be made anew from its first line, which
    describes the bug.
    """
    assert sentence(name).endswith(".")
    apply(name, ROOT, check=True)


@pytest.mark.parametrize("name", SOON)
def test_a_planted_bug_is_found(name: str) -> None:
    find = search(name, SOON[name], most=100)
    assert find.seed is not None
    assert find.problem


def test_a_patch_is_applied_to_a_copy(tmp_path: Path) -> None:
    changed = ROOT / "app_server" / "server" / "apis" / "v1" / "v1_adapter.py"
    copy = tmp_path / changed.relative_to(ROOT)
    copy.parent.mkdir(parents=True)
    copy.write_text(changed.read_text())
    apply("error_after_the_end", tmp_path)
    assert copy.read_text() != changed.read_text()
