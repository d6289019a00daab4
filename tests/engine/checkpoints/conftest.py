"""A repository for the tests of this folder."""

from pathlib import Path

import pytest

from tests.support.sandpit import Sandpit


@pytest.fixture
def pit(tmp_path: Path) -> Sandpit:
    pit = Sandpit(tmp_path)
    pit.root.mkdir()
    pit.run("init", "-q", "-b", "main")
    return pit
